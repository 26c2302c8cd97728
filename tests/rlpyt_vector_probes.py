"""Files of rlpyt's DDPG, TD3 and SAC agents with random weights, and their formula.

No file of TD3 and of the SAC with V was at hand: theirs follow the description.
"""

from itertools import pairwise

import torch

CRITICS = {"DDPG": ["q_model"], "TD3": ["q_model", "q2_model"], "SAC": ["q1_model", "q2_model"]}
CRITICS["SAC (with V)"] = CRITICS["SAC"]


def mlp(state, x):
    """What rlpyt's MLP of these weights gives."""
    n = len(state) // 2
    for i in range(n):
        x = x @ state[f"mlp.model.{2 * i}.weight"].T + state[f"mlp.model.{2 * i}.bias"]
        x = x.relu() if i < n - 1 else x
    return x


def adam(*models):
    """Adam's state of all parameters of some models in a row: first moment w + 1, second w ** 2, 3 steps."""
    weights = [value for model in models for value in model.values()]
    state = {i: {"step": 3, "exp_avg": w + 1, "exp_avg_sq": w.square()} for i, w in enumerate(weights)}
    return {"state": state, "param_groups": [{"params": list(state)}]}


class VectorRun:
    """A snapshot as rlpyt's runners write it."""

    def __init__(
        self, name, *, n_obs, n_dims, hidden, critic_hidden=None, value_hidden=None, moments=False, log_alpha=0.5
    ):
        self.critics = CRITICS[name]
        self._generator = torch.Generator().manual_seed(5)
        actor = (n_obs, *hidden, n_dims * (2 if name.startswith("SAC") else 1))
        critic = (n_obs + n_dims, *(critic_hidden or hidden), 1)
        self.agent = {"model": self._weights(actor)}
        if name == "SAC (with V)":
            value = (n_obs, *(value_hidden or hidden), 1)
            self.agent |= {q: self._weights(critic) for q in self.critics}
            self.agent |= {v: self._weights(value) for v in ("v_model", "target_v_model")}
        else:
            self.agent |= {prefix + q: self._weights(critic) for q in self.critics for prefix in ("", "target_")}
        if not name.startswith("SAC"):
            self.agent["target_model"] = self._weights(actor)
        q = [self.agent[critic_name] for critic_name in self.critics]
        self.optimizer = {}
        if moments and name.startswith("SAC"):
            self.optimizer = {f"q{k}_optimizer": adam(critic) for k, critic in enumerate(q, 1)}
            self.optimizer["pi_optimizer"] = adam(self.agent["model"])
            if name == "SAC":
                self.optimizer["alpha_optimizer"] = adam({"log_alpha": torch.tensor([log_alpha])})
                self.optimizer["log_alpha"] = log_alpha
            else:
                self.optimizer["v_optimizer"] = adam(self.agent["v_model"])
        elif moments:
            self.optimizer = {"q": adam(*q), "mu": adam(self.agent["model"])}

    def _weights(self, sizes):
        state = {}
        for i, (n_in, n_out) in enumerate(pairwise(sizes)):
            state[f"mlp.model.{2 * i}.weight"] = torch.randn(n_out, n_in, generator=self._generator) * 0.3
            state[f"mlp.model.{2 * i}.bias"] = torch.randn(n_out, generator=self._generator) * 0.3
        return state

    def content(self):
        return {"itr": 7, "cum_steps": 40, "agent_state_dict": self.agent, "optimizer_state_dict": self.optimizer}

    def save(self, path):
        torch.save(self.content(), path)
        return path
