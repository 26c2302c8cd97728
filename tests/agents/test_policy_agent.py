import torch
from gymnasium import spaces
from torch import nn

from rlcli.agents.policy import PolicyAgent
from rlcli.models.action_distributions import distribution_for
from tests.policy_probes import COMPOSITE

BOX = spaces.Box(-0.1, 0.1, (2,), "float64")


class FixedParams(nn.Module):
    """The same parameters for every observation."""

    def __init__(self, params):
        super().__init__()
        self.params = nn.Parameter(torch.tensor(params))

    def forward(self, obs):
        return self.params.expand(obs.shape[0], -1), torch.full((obs.shape[0],), 7.0)


def act(agent, uniforms, explore=True):
    uniforms = torch.tensor(uniforms, dtype=torch.float64)
    n = uniforms.shape[0]
    return agent.act(torch.zeros(n, 1), None, uniforms, env_ids=range(n), step=0, explore=explore)


def gaussian(**options):
    return PolicyAgent(FixedParams([0.05, 5.0, 0.0, 0.0]), distribution_for(BOX), action_space=BOX, **options)


def test_the_environment_gets_a_clipped_action_and_the_record_the_drawn_one():
    # quantiles of the standard normal: 0 at 1/2, 1 at 0.8413
    result = act(gaussian(notes_log_prob=True), [[0.5, 0.8413447], [0.8413447, 0.5]])

    torch.testing.assert_close(result.action, torch.tensor([[0.05, 0.1], [0.1, 0.1]]), atol=1e-6, rtol=0)
    torch.testing.assert_close(result.record["action"], torch.tensor([[0.05, 6.0], [1.05, 5.0]]), atol=1e-5, rtol=0)
    # -z^2 / 2 - ln(2 pi) of the drawn ones, z = (0, 1) and (1, 0)
    torch.testing.assert_close(result.record["log_prob"], torch.full((2,), -0.5 - 1.8378771), atol=1e-5, rtol=0)
    assert (result.action.double().numpy() <= BOX.high).all()  # 0.1 in float32 is more than in float64


def test_evaluation_takes_the_mean_clipped():
    result = act(gaussian(), [[0.9, 0.9]], explore=False)

    torch.testing.assert_close(result.action, torch.tensor([[0.05, 0.1]]), atol=1e-6, rtol=0)


def test_actions_without_bounds_are_not_noted_twice():
    space = spaces.Box(-float("inf"), float("inf"), (2,))
    agent = PolicyAgent(FixedParams([0.05, 5.0, 0.0, 0.0]), distribution_for(space), action_space=space)

    assert {"value"} == act(agent, [[0.5, 0.5]]).record.keys()


def test_composite_spaces_keys_are_those_of_the_environment():
    agent = PolicyAgent(FixedParams([0.0] * 14), distribution_for(COMPOSITE), action_space=COMPOSITE)

    action = act(agent, [[0.5] * agent.n_uniforms]).action

    assert {"turn", "pair", "lights"} == action.keys()
    assert {"0", "1"} == action["pair"].keys()


def test_act_is_a_pure_function_of_its_arguments():
    agent = gaussian()

    first, second = (act(agent, [[0.3, 0.8]]).action for _ in range(2))

    assert torch.equal(first, second)
