import numpy as np
import pytest
import torch
from torch import nn

from rlcli.agents.epsilon_config import ApexEpsilon, ConstantEpsilon, ExponentialEpsilon, LinearEpsilon
from rlcli.agents.policy import PolicyAgent
from rlcli.agents.q import QAgent
from rlcli.models.action_distributions import Categorical


class FixedValues(nn.Module):
    """The same action values for every observation."""

    def __init__(self, values):
        super().__init__()
        self.values = nn.Parameter(torch.tensor(values, dtype=torch.float32))

    def forward(self, obs):
        return self.values.expand(obs.shape[0], -1)


class FixedPolicy(FixedValues):
    """The same probabilities for every observation, value 7."""

    def forward(self, obs):
        return self.values.log().expand(obs.shape[0], -1), torch.full((obs.shape[0],), 7.0)


def act(agent, uniforms, *, env_ids=None, explore=True, step=0):
    uniforms = torch.tensor(uniforms, dtype=torch.float64)
    n = uniforms.shape[0]
    return agent.act(torch.zeros(n, 1), None, uniforms, env_ids=env_ids or range(n), step=step, explore=explore)


def test_coin_below_epsilon_takes_the_drawn_action():
    agent = QAgent(FixedValues([0.0, 9.0, 0.0, 0.0]), ConstantEpsilon(0.5), 4)

    # coins 0.49 (random), 0.5 (greedy: the draw is below epsilon, not at it), 0 (random); draws floor(4 u)
    action = act(agent, [[0.49, 0.99], [0.5, 0.0], [0.0, 0.25], [0.49, 0.0]]).action

    assert [3, 1, 1, 0] == action.tolist()


def test_equal_values_take_the_first_action():
    assert [1] == act(QAgent(FixedValues([0.0, 2.0, 2.0]), ConstantEpsilon(0.0), 1), [[0.5, 0.5]]).action.tolist()


def test_evaluation_uses_its_own_epsilon():
    agent = QAgent(FixedValues([0.0, 9.0]), ConstantEpsilon(1.0, eval=0.0), 1)

    assert [1] == act(agent, [[0.0, 0.0]], explore=False).action.tolist()
    assert [0] == act(agent, [[0.0, 0.0]], explore=True).action.tolist()


def test_vector_epsilon_hangs_on_the_global_env_id():
    agent = QAgent(FixedValues([0.0, 9.0]), LinearEpsilon(1.0, 0.1, 0, 100, final_min=0.001), 4)

    # at the end of the schedule: 0.001, 0.00464, 0.0215, 0.1; a coin of 0.01 is random for envs 2 and 3 only
    action = act(agent, [[0.01, 0.0], [0.01, 0.0]], env_ids=[1, 2], step=100).action

    assert [1, 0] == action.tolist()


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, [1.0] * 4), (50, [0.5005, 0.50232, 0.51077, 0.55]), (100, [0.001, 0.0046416, 0.0215443, 0.1])],
)
def test_vector_epsilon_anneals_each_env_to_its_own_end(step, expected):
    epsilon = LinearEpsilon(1.0, 0.1, 0, 100, final_min=0.001)

    np.testing.assert_allclose(epsilon.per_env(step, 4), expected, rtol=1e-4)


def test_apex_epsilon_is_the_papers():
    # 0.4 ** (1 + 7 i / 2)
    np.testing.assert_allclose(ApexEpsilon().per_env(0, 3), [0.4, 0.4**4.5, 0.4**8])


def test_exponential_epsilon_halves_its_logarithm():
    np.testing.assert_allclose(ExponentialEpsilon(1.0, 0.01, 0, 100).per_env(50, 1), [0.1])


def test_categorical_draws_by_the_inverse_cumulative_distribution():
    agent = PolicyAgent(FixedPolicy([0.2, 0.5, 0.3]), Categorical(3))

    result = act(agent, [[0.0], [0.19], [0.21], [0.69], [0.71], [0.999999999]])

    assert [0, 0, 1, 1, 2, 2] == result.action.tolist()
    assert [7.0] * 6 == result.record["value"].tolist()


def test_categorical_evaluation_takes_the_likeliest():
    assert [1] == act(
        PolicyAgent(FixedPolicy([0.2, 0.5, 0.3]), Categorical(3)), [[0.99]], explore=False
    ).action.tolist()


def test_act_is_a_pure_function_of_its_arguments():
    agent = PolicyAgent(FixedPolicy([0.2, 0.5, 0.3]), Categorical(3))

    first, second = (act(agent, [[0.3], [0.8]]).action.tolist() for _ in range(2))

    assert first == second
