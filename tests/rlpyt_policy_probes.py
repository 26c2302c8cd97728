"""rlpyt's MuJoCo policies as its description has them, with its layers' names: no file of its own was at hand."""

from itertools import pairwise

import torch
from torch import nn

from tests.rlpyt_probes import Wrapped


def layers(widths, activation, *, ends_linear):
    parts = [part for n_in, n_out in pairwise(widths) for part in (nn.Linear(n_in, n_out), activation())]
    return Wrapped("model", *(parts[:-1] if ends_linear else parts))


class Statistics(nn.Module):
    """Of observations, as rlpyt saves them."""

    def __init__(self, n):
        super().__init__()
        self.register_buffer("mean", torch.randn(n))
        self.register_buffer("var", torch.rand(n) + 0.1)
        self.var[0] = 1e-9  # an element that hardly ever changes
        self.register_buffer("count", torch.tensor(1000.0))

    def some(self, *leading):
        """Observations that are few deviations from the mean, none of which is clipped."""
        return self.mean + torch.randn(*leading, len(self.mean)) * self.var.clamp(min=1e-6).sqrt()

    def forward(self, obs):
        return ((obs - self.mean) / self.var.clamp(min=1e-6).sqrt()).clamp(-10, 10)


class FeedForward(nn.Module):
    """Tanh MLPs for the means and for the value, and one deviation for all states; observations [N, n_obs]."""

    def __init__(self, n_obs, n_dims, hidden, *, normalizes=False, tanh_mean=False, value_hidden=None):
        super().__init__()
        mu = layers((n_obs, *hidden, n_dims), nn.Tanh, ends_linear=True)
        self.mu = nn.Sequential(mu, nn.Tanh()) if tanh_mean else mu
        self.v = layers((n_obs, *(value_hidden or hidden), 1), nn.Tanh, ends_linear=True)
        self.log_std = nn.Parameter(torch.randn(n_dims))
        if normalizes:
            self.obs_rms = Statistics(n_obs)

    def forward(self, obs):
        if hasattr(self, "obs_rms"):
            obs = self.obs_rms(obs)
        mean = self.mu[0].model(obs).tanh() if isinstance(self.mu, nn.Sequential) else self.mu.model(obs)
        return mean, self.log_std.expand(len(obs), -1), self.v.model(obs).squeeze(-1)


class Recurrent(nn.Module):
    """A ReLU MLP, an LSTM that takes the previous action and reward too, and one layer for means, deviations, value."""

    def __init__(self, n_obs, n_dims, hidden, n_lstm, *, normalizes=False):
        super().__init__()
        self.n_dims = n_dims
        self.mlp = layers((n_obs, *hidden), nn.ReLU, ends_linear=False)
        self.lstm = nn.LSTM(hidden[-1] + n_dims + 1, n_lstm)
        self.head = nn.Linear(n_lstm, 2 * n_dims + 1)
        if normalizes:
            self.obs_rms = Statistics(n_obs)

    def forward(self, obs, previous_action, previous_reward):
        """Of [T, B, ...] from the zero state."""
        if hasattr(self, "obs_rms"):
            obs = self.obs_rms(obs)
        out, _ = self.lstm(torch.cat([self.mlp.model(obs), previous_action, previous_reward], -1))
        out = self.head(out)
        return out[..., : self.n_dims], out[..., self.n_dims : -1], out[..., -1]


class PolicyRun:
    """A snapshot of such a network; its Adam's first moment is w + 1, the second w ** 2, after 3 steps."""

    def __init__(self, network):
        self.network = network

    def content(self):
        weights = [w.detach() for w in self.network.parameters()]
        state = {i: {"step": 3, "exp_avg": w + 1, "exp_avg_sq": w.square()} for i, w in enumerate(weights)}
        return {
            "itr": 7,
            "cum_steps": 40,
            "agent_state_dict": self.network.state_dict(),
            "optimizer_state_dict": {"state": state, "param_groups": [{"params": list(state)}]},
        }

    def save(self, path):
        torch.save(self.content(), path)
        return path
