"""DDPG, TD3 and SAC from the command line, with no key but the environment."""

import pytest

import rlcli
from rlcli.core.errors import ConfigError

ALGOS = ("ddpg", "td3", "sac", "sac_v")
TINY = ["n_steps=100", "logger.ui=quiet", "model.mlp_hidden=[8]", "replay.size=1000", "device=cpu"]


@pytest.mark.parametrize("algo", ALGOS)
def test_cartpole_is_refused_by_name(algo, tmp_path):
    with pytest.raises(ConfigError, match=rf"algo: {algo} needs one Box of floats as action, env has Discrete\(2\)"):
        rlcli.train([f"algo={algo}", "env=cartpole", f"run_dir={tmp_path}/run"])


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("replay=prioritized", "replay: prioritized is not for this algo"),
        ("model.recurrent=lstm", "model.recurrent: 'lstm' is not for this algo"),
    ],
)
def test_what_these_algorithms_do_not_know_is_refused_by_name(word, line, tmp_path):
    with pytest.raises(ConfigError, match=line):
        rlcli.train(["algo=sac", "env=pendulum", word, *TINY, f"run_dir={tmp_path}/run"])


@pytest.mark.parametrize(("algo", "hidden"), [("ddpg", [400, 300]), ("td3", [256, 256]), ("sac", [256, 256])])
def test_network_sizes_are_the_papers_unless_others_are_asked_for(algo, hidden):
    from rlcli.cli.argv import Request
    from rlcli.cli.compose import plan, prepare

    def sizes(*words):
        request = Request([f"algo={algo}", "env=pendulum", *words])
        prepare(request)
        return plan(request).configs[0].model.mlp_hidden

    assert hidden == sizes()
    assert [64, 64] == sizes("model=auto")
    assert [7] == sizes("model.mlp_hidden=[7]")
