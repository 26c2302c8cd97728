"""Workers that are started again: the run goes on, the gap is marked, and nobody else notices."""

import functools
import multiprocessing
import os
import re
import signal
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rlcli.core.errors import EnvError, WorkerError
from rlcli.core.rng import Purpose, integer_seed
from rlcli.core.tree import as_numpy, leaves
from rlcli.replay.config import UniformReplayConfig
from rlcli.samplers import crew
from tests.fault_probes import FaultConfig, stream
from tests.sampler_faults import WITH_WORKERS, B, T, built, children, collect, kill_when_marked, setup, soon
from tests.sampler_probes import make_setup

N = 8
"""Batches of a run."""
AGAIN = {"on_worker_failure": "restart"}
ANEW = make_setup(incarnation=1).incarnation_of()
"""Incarnation of the environments of a process of an async sampler that was started again once."""
EVAL_ENV_1 = (integer_seed(0, Purpose.EVAL_ENV, 1),)
FAULTS = [("gpu", fault) for fault in ("raise", "exit", "kill", "hang")]
FAULTS += [("cpu", "hang"), ("cpu", "exit"), ("alternating", "kill"), ("alternating", "raise")]
FAULTS += [("async-cpu", "exit"), ("async-gpu", "hang"), ("async-alternating", "raise")]
EVENT = re.compile(
    r"worker_restart: (?:worker|sampler process) (\d) \(envs ([\d, -]+)\): (.*); starting it again in ([\d.]+) s "
    r"\((\d+) of (\d+) within an hour\)"
)
CAUSES = {
    "raise": "EnvError: env 3, step 50: step() raised ValueError: marker-7",
    "exit": "exited with code 3, at step",
    "kill": "died by signal 9, SIGKILL (often: out of memory), at step",
    "hang": r"no sign of life for \d s (sampler.timeout_s) at step, asked to .*",
}


@pytest.fixture(autouse=True)
def no_process_is_left():
    before = children()
    yield
    assert soon(lambda: children() <= before), children() - before


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    make_quick(monkeypatch)


def make_quick(monkeypatch):
    monkeypatch.setattr(crew, "_FIRST_BACKOFF_S", 0.02)
    monkeypatch.setattr(crew, "_LOOK_S", 0.1)


def ids_of(text):
    """Numbers of ``0-1, 3``."""
    ends = [list(map(int, part.split("-"))) for part in text.split(", ")]
    return [i for end in ends for i in range(end[0], end[-1] + 1)]


@functools.cache
def run(mode, fault, reset="mid_batch"):
    """N batches, what was said, and who was lost; environment 3 fails at its 50th step, once."""
    said = []
    env = FaultConfig(fault, sleep_s=0)
    with pytest.MonkeyPatch.context() as patch:
        make_quick(patch)
        with built(mode, env, said, timeout_s=2.0, reset=reset, **AGAIN) as sampler:
            batches = collect(sampler, N)
    events = [found for line in said if (found := EVENT.fullmatch(line))]
    lost = ids_of(events[0][2]) if events else []
    kept = [b for b in range(B) if b not in lost]
    return SimpleNamespace(samples=[got.samples for got in batches], got=batches, events=events, lost=lost, kept=kept)


def cuts(samples):
    return samples.truncated & ~samples.valid


def column(samples, b):
    """Everything of one environment, as bytes by path."""
    parts = [(f, getattr(samples, f)) for f in ("obs", "action", "reward", "terminated", "truncated", "valid")]
    parts += leaves(samples.record)
    return {name: as_numpy(leaf)[:, b].tobytes() for name, leaf in parts}


@pytest.mark.parametrize(("mode", "fault"), FAULTS)
def test_event_names_worker_envs_and_cause(mode, fault):
    (event,) = run(mode, fault).events

    assert "3" in event[2]
    assert re.fullmatch(re.sub(r"([()])", r"\\\1", CAUSES[fault]), event[3])
    assert ("0.02", "1", "3") == event.groups()[3:]


@pytest.mark.parametrize("reset", ["mid_batch", "between_batches"])
@pytest.mark.parametrize("mode", WITH_WORKERS)
def test_other_envs_do_not_notice(mode, reset):
    healthy, hurt = run(mode, "", reset), run(mode, "exit", reset)

    assert healthy.events == []
    assert len(hurt.kept) >= 2
    for expected, actual in zip(healthy.samples, hurt.samples, strict=True):
        for b in hurt.kept:
            assert column(expected, b) == column(actual, b)


@pytest.mark.parametrize(("mode", "fault"), FAULTS)
def test_lost_envs_and_no_others_show_a_cut(mode, fault):
    hurt = run(mode, fault)
    seen = torch.stack([cuts(s).any(0) for s in hurt.samples]).any(0)

    assert hurt.lost == seen.nonzero().flatten().tolist()


@pytest.mark.parametrize(("mode", "fault"), FAULTS)
def test_observation_of_the_first_cut_is_the_successor_of_the_row_before(mode, fault):
    hurt = run(mode, fault)
    obs = torch.cat([s.obs[:-1] for s in hurt.samples])
    cut, valid = (torch.cat([get(s) for s in hurt.samples]) for get in (cuts, lambda s: s.valid))
    n_checked = 0
    for b in hurt.lost:
        t = int(cut[:, b].nonzero()[0])
        if valid[t - 1, b]:
            n_checked += 1
            assert obs[t, b, 0] == stream(b)
            assert [obs[t - 1, b, 1].item(), obs[t - 1, b, 2].item() + 1] == obs[t, b, 1:3].tolist()
    assert n_checked


@pytest.mark.parametrize("reset", ["mid_batch", "between_batches"])
@pytest.mark.parametrize("mode", WITH_WORKERS)
def test_lost_envs_begin_new_episodes_on_streams_of_the_next_incarnation(mode, reset):
    hurt = run(mode, "exit", reset)
    obs = torch.cat([s.obs[:-1] for s in hurt.samples])
    cut, valid = (torch.cat([get(s) for s in hurt.samples]) for get in (cuts, lambda s: s.valid))
    for b in hurt.lost:
        first, last = cut[:, b].nonzero().flatten()[[0, -1]].tolist()
        after = last + 1
        assert [stream(b, 1), 0, 0] == obs[after, b, :3].tolist()
        assert valid[after, b]
        assert {stream(b)} == set(obs[:first, b, 0].int().tolist())
        assert {stream(b, 1)} == set(obs[after:, b, 0].int().tolist())
        assert not valid[first:after, b].any()


@pytest.mark.parametrize("mode", WITH_WORKERS)
def test_exploration_of_lost_envs_does_not_repeat_itself(mode):
    hurt = run(mode, "exit")
    action = torch.cat([s.action for s in hurt.samples])
    cut = torch.cat([cuts(s) for s in hurt.samples])
    b = hurt.lost[0]
    after = int(cut[:, b].nonzero()[-1]) + 1

    assert not torch.equal(action[:40, b], action[after : after + 40, b])


@pytest.mark.parametrize("mode", WITH_WORKERS)
def test_steps_are_the_valid_rows(mode):
    for got in run(mode, "exit").got:
        assert int(got.samples.valid.sum()) == got.n_steps


@pytest.mark.parametrize("reset", ["mid_batch", "between_batches"])
@pytest.mark.parametrize("mode", WITH_WORKERS)
def test_episodes_that_were_lost_are_in_no_statistics(mode, reset):
    hurt = run(mode, "exit", reset)
    s = hurt.samples
    ends = sum(int(((batch.terminated | batch.truncated) & batch.valid).sum()) for batch in s)

    assert ends == sum(len(got.episodes) for got in hurt.got)
    assert all(2 <= episode.length <= 11 for got in hurt.got for episode in got.episodes)


@pytest.mark.parametrize("reset", ["mid_batch", "between_batches"])
@pytest.mark.parametrize("mode", [*WITH_WORKERS, "async-serial"])
def test_no_window_of_replay_crosses_the_gap(mode, reset):
    hurt = run(mode, "exit", reset)
    spec = setup(FaultConfig()).spec
    replay = UniformReplayConfig(size=N * T * B).build(spec, B, seed=0, discount=0.9, n_step=3)
    for samples in hurt.samples:
        replay.append(samples)
    row, env = replay.eligible()
    batch = replay.batch_at(row, env)
    replay.close()

    n_used = batch.next_obs[:, 2] - batch.obs[:, 2]
    assert len(row) > 0.8 * sum(got.n_steps for got in hurt.got)
    assert torch.equal(batch.obs[:, :2], batch.next_obs[:, :2])  # stream and episode
    assert {1, 2, 3} == set(n_used.int().tolist())
    incarnations = (0, ANEW if mode == "async-serial" else 1)
    assert {stream(b, i) for b in hurt.lost for i in incarnations} <= set(batch.obs[:, 0].int().tolist())


# faults of the environment that would come again


@pytest.mark.parametrize("mode", [*WITH_WORKERS, "async-serial"])
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("nan reward", "env 3, step 50: reward is nan, must be finite"),
        ("nan obs", "env 3, step 50: obs is nan, must be finite"),
        ("long obs", "env 3, step 50: obs: expected float32 (4,), got "),
    ],
)
def test_what_is_found_wrong_with_an_env_ends_the_run_all_the_same(mode, fault, told):
    said = []
    with pytest.raises((EnvError, WorkerError)) as caught, built(mode, FaultConfig(fault), said, **AGAIN) as sampler:
        collect(sampler, N)

    assert told in str(caught.value)
    assert not [line for line in said if line.startswith("worker_restart")]


@pytest.mark.parametrize("mode", WITH_WORKERS)
def test_what_is_found_wrong_in_an_evaluation_ends_the_run_all_the_same(mode):
    said = []
    env = FaultConfig("nan obs", at=5, victims=EVAL_ENV_1)
    with pytest.raises((EnvError, WorkerError)) as caught, built(mode, env, said, **AGAIN) as sampler:
        sampler.evaluate(0)

    assert "evaluation env 1, step 5: obs[3] is nan, must be finite" in str(caught.value)
    assert not [line for line in said if line.startswith("worker_restart")]


# again and again


@pytest.mark.parametrize("mode", WITH_WORKERS)
def test_worker_that_always_dies_ends_the_run_with_a_message(mode):
    said = []
    always = FaultConfig("exit", at=10, victims=())
    with (
        pytest.raises(WorkerError) as caught,
        built(mode, always, said, n_workers=1, max_restarts=2, **AGAIN) as sampler,
    ):
        collect(sampler)

    assert (
        "exited with code 3, at step; it had been started again 2 times within an hour (sampler.max_restarts)"
        == caught.value.reason
    )
    pauses = [found.groups()[3:] for line in said if (found := EVENT.fullmatch(line))]
    assert [("0.02", "1", "2"), ("0.04", "2", "2")] == pauses


@pytest.mark.parametrize("mode", ["cpu", "gpu", "async-gpu"])
def test_worker_that_never_starts_ends_the_run_with_a_message(mode):
    with pytest.raises(
        WorkerError, match=r"exited with code 3, at constructing env \d; it had been started again 2 times"
    ):
        built(mode, FaultConfig("exit", "build", at=1), max_restarts=2, **AGAIN).__enter__()


@pytest.mark.parametrize("mode", WITH_WORKERS)
def test_death_while_starting_is_survived(mode, tmp_path):
    said = []
    env = FaultConfig("exit", "build", at=1, once=str(tmp_path / "once"))
    with built(mode, env, said, **AGAIN) as sampler:
        n_steps = sum(got.n_steps for got in collect(sampler, 2))

    assert 1 == sum(bool(EVENT.fullmatch(line)) for line in said)
    assert n_steps > 0


@pytest.mark.parametrize("mode", ["cpu", "gpu", "alternating"])
def test_kill_between_two_batches_is_survived(mode):
    said = []
    with built(mode, FaultConfig(), said, **AGAIN) as sampler:
        before = collect(sampler, 1)
        (victim,) = [p for p in multiprocessing.active_children() if p.name == "rlcli-worker-1"]
        os.kill(victim.pid, signal.SIGKILL)
        victim.join()
        after = collect(sampler, 2)

    (event,) = [found for line in said if (found := EVENT.fullmatch(line))]
    assert ids_of(event[2]) == cuts(after[0].samples).any(0).nonzero().flatten().tolist()
    assert torch.equal(before[0].samples.obs[T], after[0].samples.obs[0])  # what the cut has to show
    assert before[0].n_steps > 0
    assert after[1].n_steps > 60


@pytest.mark.parametrize("mode", ["gpu", "async-cpu"])
def test_pause_before_a_restart_is_no_stall_of_the_process_that_waits(mode, monkeypatch):
    monkeypatch.setattr(crew, "_FIRST_BACKOFF_S", 2.5)
    with built(mode, FaultConfig("exit"), timeout_s=1.5, **AGAIN) as sampler:
        assert N == len(collect(sampler, N))


@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_worker_starts_again_whatever_the_start_method(start_method):
    said = []
    with built("gpu", FaultConfig("exit"), said, start_method=start_method, **AGAIN) as sampler:
        collect(sampler, 4)

    assert 1 == sum(bool(EVENT.fullmatch(line)) for line in said)


def test_process_of_an_async_sampler_is_started_again():
    hurt = run("async-serial", "exit")
    (event,) = hurt.events
    after = torch.cat([s.obs[:-1] for s in hurt.samples])[-T:]

    assert "exited with code 3, at step" == event[3]
    assert [0, 1, 2, 3, 4] == hurt.lost
    assert [{stream(b, ANEW)} for b in range(B)] == [set(after[:, b, 0].int().tolist()) for b in range(B)]


# evaluation


def evaluation(mode, fault):
    """An evaluation in which environment 1 may fail, once, at its 5th step, between two batches; and the events."""
    said = []
    with tempfile.TemporaryDirectory() as folder:
        once = str(Path(folder) / "once")
        env = FaultConfig(fault, at=5, victims=EVAL_ENV_1, once=once)
        with built(mode, env, said, timeout_s=2.0, **AGAIN) as sampler:
            batches = collect(sampler, 1)
            result = sampler.evaluate(0)
            batches += collect(sampler, 3)
    return result, batches, [found for line in said if (found := EVENT.fullmatch(line))]


@pytest.mark.parametrize("mode", WITH_WORKERS)
def test_death_in_an_evaluation_changes_neither_its_number_of_games_nor_other_envs(mode):
    healthy, expected, _ = evaluation(mode, "")
    result, batches, events = evaluation(mode, "exit")

    assert 1 == len(events)
    assert 7 == len(result.games) == len(healthy.games)
    assert [3, 2, 2] == [sum(game.env_id == i for game in result.games) for i in range(3)]
    assert [] == result.cut_scores
    for a, b in zip(expected, batches, strict=True):
        for i in set(range(B)) - set(ids_of(events[0][2])):
            assert column(a.samples, i) == column(b.samples, i)


@pytest.mark.parametrize("mode", ["cpu", "async-cpu"])
def test_evaluation_of_a_lost_worker_is_played_again_as_it_would_have_been(mode):
    assert evaluation(mode, "")[0] == evaluation(mode, "exit")[0]


@pytest.mark.parametrize("mode", ["gpu", "cpu"])
def test_kill_from_outside_in_an_evaluation_is_survived(mode, tmp_path):
    mark = tmp_path / "mark"
    killer = kill_when_marked(mark)
    env = FaultConfig("hang", at=5, victims=EVAL_ENV_1, mark=str(mark), once=str(tmp_path / "once"))
    with built(mode, env, **AGAIN) as sampler:
        result = sampler.evaluate(0)
    killer.join()

    assert 7 == len(result.games)


def test_kill_of_every_worker_again_and_again_while_sampling_is_survived():
    said = []
    with built("gpu", FaultConfig("sleep", at=0, sleep_s=0.001), said, max_restarts=50, **AGAIN) as sampler:
        for i in range(6):
            victim = sorted(multiprocessing.active_children(), key=lambda p: p.name)[i % 2]
            time.sleep(0.01 * i)
            os.kill(victim.pid, signal.SIGKILL)
            got = sampler.collect(0)
            assert int(got.samples.valid.sum()) == got.n_steps

    assert 6 == sum(bool(EVENT.fullmatch(line)) for line in said)
