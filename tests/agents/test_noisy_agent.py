"""Acting with a noisy network: the noise is a function of the step's uniforms."""

import pytest
import torch

from rlcli.agents.epsilon_config import ConstantEpsilon
from rlcli.agents.q import QAgent, seeded_normals
from rlcli.models.config import AutoModelConfig
from rlcli.models.heads import QNetwork
from tests.models.test_trunk import VECTOR

OBS = torch.zeros(64, 3)


@pytest.fixture
def agent():
    torch.manual_seed(0)
    model = QNetwork(AutoModelConfig(mlp_hidden=[8, 8]).build_for_streams(VECTOR), 5, dueling=True, noisy=True)
    return QAgent(model, ConstantEpsilon(0.0, eval=0.0), 64, model.n_noise)


def act(agent, uniforms, explore=True, env_ids=range(64)):
    obs = OBS[: len(uniforms)]
    return agent.act(obs, None, uniforms, env_ids=list(env_ids), step=0, explore=explore).action.tolist()


def uniforms(seed, agent):
    return torch.rand(64, agent.n_uniforms, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_equal_uniforms_give_equal_actions_and_others_give_others(agent):
    u = uniforms(1, agent)

    assert act(agent, u) == act(agent, u)
    assert act(agent, u) != act(agent, uniforms(2, agent))
    assert len(set(act(agent, u))) > 1  # one observation, an environment each: noise of its own


def test_noise_hangs_on_the_environments_own_uniforms_and_not_on_the_batch(agent):
    u = uniforms(1, agent)

    halves = [*act(agent, u[:32], env_ids=range(32)), *act(agent, u[32:], env_ids=range(32, 64))]

    assert halves == act(agent, u)


def test_evaluation_acts_on_the_mean_weights(agent):
    expected = [int(agent.model(OBS[:1]).argmax())] * 64

    assert expected == act(agent, uniforms(1, agent), explore=False) == act(agent, uniforms(2, agent), explore=False)


def test_noise_leaves_the_uniforms_of_epsilon_alone(agent):
    assert 3 == agent.n_uniforms
    assert 2 == QAgent(agent.model, ConstantEpsilon(0.0), 64).n_uniforms


def test_seeded_normals_are_standard_normal_and_rows_are_unrelated():
    z = seeded_normals(torch.arange(200, dtype=torch.float64) / 200, 500)

    assert abs(float(z.mean())) < 0.02
    assert abs(float(z.std()) - 1) < 0.02
    assert float((z[:-1] * z[1:]).mean().abs()) < 0.02
    assert float(z.corrcoef().fill_diagonal_(0).abs().max()) < 0.3
