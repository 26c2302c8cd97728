"""Recurrent policies and composite actions in every sampler: the same samples, up to rounding of other matmul sizes."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from rlcli.algos.ppo_config import PPOConfig
from rlcli.core.tree import leaves
from tests.policy_probes import SMALL, BanditConfig, CueConfig, Session
from tests.sampler_modes import batches, config
from tests.sampler_probes import WanderConfig, make_setup

MODES = ["cpu of 2", "gpu of 2", "alternating of 2"]
CASES = {
    "lstm": (WanderConfig(), replace(SMALL, recurrent="lstm")),
    "gru": (CueConfig(), replace(SMALL, recurrent="gru")),
    "composite": (BanditConfig(), SMALL),
    "composite lstm": (BanditConfig(), replace(SMALL, recurrent="lstm")),
    "normalised": (WanderConfig(), replace(SMALL, normalize_obs=True)),
}


@cache
def setup(case):
    session = Session(CASES[case][0], PPOConfig(), CASES[case][1])
    session.agent.model.policy.weight.data.mul_(30)
    session.agent.observe(1000 * torch.rand(5, 1, 4), torch.ones(4, 1, dtype=torch.bool))
    session.agent._notes_state = True
    return make_setup(session.env, session.agent)


@cache
def ran(mode, case, reset):
    return [got.samples for got in batches(config(mode, 11, 5, reset=reset), setup(case), 3)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("reset", ["mid_batch", "between_batches"])
def test_every_sampler_gives_what_the_serial_one_gives(case, mode, reset):
    for a, b in zip(ran("serial", case, reset), ran(mode, case, reset), strict=True):
        assert torch.equal(a.valid, b.valid)
        for name in ("obs", "action", "reward", "record", "state"):
            pairs = list(zip(leaves(getattr(a, name), name), leaves(getattr(b, name), name), strict=True))
            assert pairs or name == "state"
            for (path, x), (_, y) in pairs:
                torch.testing.assert_close(x, y, atol=1e-4, rtol=1e-5, msg=path)


def test_the_state_that_a_batch_begins_with_is_the_one_behind_the_last():
    first, second = ran("serial", "lstm", "mid_batch")[:2]

    begins = ~first.valid[-1]
    assert (second.state["h"][~begins].abs().max(-1).values > 0).all()
    assert torch.equal(second.state["h"], second.record["state"]["h"][0])
