"""rlcli eval, play and export with the agent of each algorithm."""

import contextlib
import functools
import runpy
from dataclasses import replace

import numpy as np
import pytest
import torch

import rlcli
from rlcli.cli import build, window
from rlcli.cli.main import main
from rlcli.cli.overlay import Bar, Chart, Mark
from rlcli.cli.play import Game, _env
from rlcli.cli.saved import load_saved
from rlcli.cli.thoughts import thoughts_of
from rlcli.core.rng import Purpose, integer_seed
from rlcli.core.tree import as_numpy, as_torch, index, map_tree
from rlcli.envs.gym import write_obs
from tests.cli.agent_probes import AGENTS, Shelf

ALIKE = ("cat_dqn", "ddpg", "sac_v")
"""Agents of the class of others: rainbow's, td3's and sac's."""
EACH = [pytest.param(name, marks=pytest.mark.slow) if name in ALIKE else name for name in AGENTS]
ONNX = ("ppo_parts", "sac")
"""That the fast tests write as such, for it takes seconds: an LSTM with everything, and float64."""
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")


@pytest.fixture(scope="session")
def shelf(tmp_path_factory):
    return Shelf(tmp_path_factory.mktemp("agents"))


@pytest.fixture(scope="module")
def exported(shelf, tmp_path_factory):
    """Makes a file of an agent, once."""
    folder = tmp_path_factory.mktemp("exported")

    def make(name, kind):
        file = folder / f"{name}_{kind}.{kind}"
        if not file.exists():
            assert 0 == main(["export", str(shelf(name)), "--out", str(file)])
        return file

    return make


class Episodes:
    """What an agent saw and did in whole games, from the first of evaluation environment 0 on.

    `obs` are leaves [N, ...], `actions` the environment's own, `begins` says where games begin, `states` are those
    of a recurrent agent before each step.
    """

    def __init__(self, run, n):
        agent = rlcli.load(run, device="cpu")
        env = agent.config.task.build()
        seed = integer_seed(agent.config.seed, Purpose.EVAL_ENV, 0)
        self.actions, self.begins, self.scores, self.states, seen = [], [], [], [], []
        over = True
        while len(seen) < n or not over:
            if over:
                obs, _ = env.reset(seed=None if seen else seed)
                agent.reset()
                self.scores.append(0.0)
            self.begins.append(over)
            row = map_tree(lambda leaf: np.zeros((1, *leaf.shape), leaf.dtype), agent.spec.example_obs)
            write_obs(row, 0, obs)
            seen.append(row)
            self.states.append(map_tree(torch.clone, agent.state))
            self.actions.append(agent.act(obs))
            obs, reward, terminated, truncated, _ = env.step(self.actions[-1])
            self.scores[-1] += float(reward)
            over = terminated or truncated
        env.close()
        self.obs = map_tree(lambda *rows: np.concatenate(rows), *seen)
        self.initial_state = agent.agent.initial_state(1)


@pytest.fixture(scope="module")
def played(shelf):
    return functools.cache(lambda name: Episodes(shelf(name), 100))


def flat(action):
    """The numbers of an environment's action in one row; a dict has the keys of a Tuple's parts in their order."""
    if isinstance(action, dict | tuple | list):
        parts = action.values() if isinstance(action, dict) else action
        return np.concatenate([flat(part) for part in parts])
    return np.ravel(action).astype(np.float64)


def compare(episodes, policy):
    """Row by row with the state going on and beginning anew, then all rows as one batch; policy takes numpy leaves."""
    state = None
    for i, (begins, action) in enumerate(zip(episodes.begins, episodes.actions, strict=True)):
        row = index(episodes.obs, slice(i, i + 1))
        if episodes.initial_state is None:
            got = policy(row)
        else:
            state = map_tree(np.zeros_like, as_numpy(episodes.initial_state)) if begins else state
            map_tree(
                lambda ours, theirs: np.testing.assert_allclose(ours, theirs, atol=1e-5), state, episodes.states[i]
            )
            got, state = policy(row, state)
        assert np.allclose(flat(action), flat(index(got, 0)), rtol=0, atol=1e-5), i
    everything = [episodes.obs]
    if episodes.initial_state is not None:
        everything.append(map_tree(lambda *rows: np.concatenate(rows), *episodes.states))
    got = policy(*everything)
    got = got[0] if len(everything) == 2 else got
    rows = [flat(index(got, i)) for i in range(len(episodes.actions))]
    assert np.allclose([flat(action) for action in episodes.actions], rows, rtol=0, atol=1e-5)


def of_pt2(file):
    program = torch.export.load(file).module()

    def policy(*inputs):
        outputs = program(*map(as_torch, inputs))
        if not isinstance(outputs, tuple):
            return as_numpy(outputs)
        action, state = as_numpy(outputs[0]), as_numpy(outputs[-1])
        return (action, state) if len(inputs) == 2 else action

    return policy


def of_onnx(file):
    """Through the example beside the file, which puts nested outputs together."""
    policy = runpy.run_path(str(file.with_name(f"{file.stem}_example.py")))["policy"]

    def short(*inputs):
        outputs = policy(*inputs)
        if not isinstance(outputs, tuple):
            return outputs
        return (outputs[0], outputs[-1]) if len(inputs) == 2 else outputs[0]

    return short


@pytest.mark.parametrize("name", EACH)
def test_a_pt2_policy_does_what_the_agent_does_on_real_observations(name, played, exported):
    compare(played(name), of_pt2(exported(name, "pt2")))


@pytest.mark.parametrize("name", [*(pytest.param(n, marks=pytest.mark.slow) for n in AGENTS if n not in ONNX), *ONNX])
def test_an_onnx_policy_does_what_the_agent_does_on_real_observations(name, played, exported):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    compare(played(name), of_onnx(exported(name, "onnx")))


def test_the_inputs_and_outputs_of_a_recurrent_onnx_policy_have_the_documented_names(exported):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    session = onnxruntime.InferenceSession(str(exported("ppo_parts", "onnx")))

    observed = ["obs.0", "obs.1.image", "obs.1.kind", "previous_action", "previous_reward"]
    assert [*observed, "state.h", "state.c"] == [i.name for i in session.get_inputs()]
    parts = ["0.lights", "0.pair.0", "0.pair.1", "0.turn", "1", "2"]
    assert [*(f"action.{part}" for part in parts), "next_state.h", "next_state.c"] == [
        o.name for o in session.get_outputs()
    ]


@pytest.mark.parametrize("name", EACH)
def test_an_evaluations_first_game_is_the_agents(name, played, shelf):
    result = rlcli.evaluate(shelf(name), episodes=1, overrides=["eval.n_envs=1"])

    assert played(name).scores[:1] == pytest.approx(result.scores)


@pytest.mark.parametrize("name", ["ppo_parts", "ppo_box"])
def test_the_example_steps_the_environment(name, exported, capsys):
    runpy.run_path(str(exported(name, "pt2").with_name(f"{name}_pt2_example.py")))

    assert capsys.readouterr().out.splitlines()[-1].startswith("score ")


def test_the_example_observes_its_own_previous_action_as_the_environment_would_show_it(exported, played):
    vector = runpy.run_path(str(exported("ppo_parts", "pt2").with_name("ppo_parts_pt2_example.py")))["vector"]
    episodes = played("ppo_parts")

    seen = episodes.obs["previous_action"]
    followed = [i for i in range(1, len(episodes.actions)) if not episodes.begins[i]]
    assert len(followed) > 50
    for i in followed:
        assert np.array_equal(seen[i], vector(episodes.actions[i - 1])), i


@pytest.mark.parametrize("name", EACH)
def test_a_window_and_a_video_show_every_agent(name, shelf, tmp_path, monkeypatch, capsys):
    pytest.importorskip("pygame")
    pytest.importorskip("imageio_ffmpeg")
    for display in DISPLAYS:
        monkeypatch.delenv(display, raising=False)

    assert 0 == main(["play", str(shelf(name)), "--max-steps", "2", "--video", str(tmp_path / "a.mp4")])
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert 0 == main(["play", str(shelf(name)), "--max-steps", "2", "--fps", "1000"])

    out, err = capsys.readouterr()
    assert (2, "") == (out.count("1 games, 2 steps"), err)
    assert (tmp_path / "a.mp4").stat().st_size > 1000


def shown(run, n):
    """The rows of the panel, and observation, state before it and action, at each of n steps."""
    agent = rlcli.load(run, device="cpu")
    with window.headless_drawing(), contextlib.closing(_env(agent.config.task)) as env:
        thoughts = thoughts_of(agent, [])
        game = Game(agent, env, 0, None)
        game.start()
        for _ in range(n):
            obs = map_tree(torch.clone, agent.batch(game.obs))
            yield agent, thoughts(obs, game.state, game.action), obs, game.state, game.action
            game.go_on()


def bars(rows):
    return [row for row in rows if isinstance(row, Bar)]


def charts(rows):
    return [row for row in rows if isinstance(row, Chart)]


@pytest.mark.parametrize("name", ["dqn", "rainbow", "iqn"])
@torch.no_grad()
def test_action_values_are_shown_and_the_chosen_one_stands_out(name, shelf):
    for agent, rows, obs, _, action in shown(shelf(name), 5):
        values = agent.agent.model(obs)[0]
        assert [f"{value:.3g}" for value in values.tolist()] == [bar.text for bar in bars(rows)]
        assert [i == action for i in range(2)] == [bar.chosen for bar in bars(rows)]
        assert {0.0, 1.0} == {bar.length for bar in bars(rows)}


@torch.no_grad()
def test_the_distribution_of_the_chosen_action_is_shown_of_c51_and_its_quantiles_of_iqn(shelf):
    for agent, rows, obs, _, action in shown(shelf("rainbow"), 3):
        (chart,) = charts(rows)
        p = agent.agent.model.logits(obs)[0, action].softmax(-1)
        assert np.allclose(chart.heights, p / p.max())
        assert ("-10", "10") == (chart.left, chart.right)
    for agent, rows, obs, _, action in shown(shelf("iqn"), 3):
        (chart,) = charts(rows)
        network = agent.agent.model
        z = network.quantiles(obs, network.midpoints[None])[0, :, action].numpy()
        assert np.allclose(chart.heights, 0.1 + 0.9 * (z - z.min()) / np.ptp(z), atol=1e-5)
        assert (f"{z.min():.4g}", f"{z.max():.4g}") == (chart.left, chart.right)


@torch.no_grad()
def test_a_recurrent_agents_numbers_are_those_of_the_state_before_the_step(shelf):
    for agent, rows, obs, state, _ in shown(shelf("r2d1"), 6):
        values = agent.agent.model.unroll(map_tree(lambda leaf: leaf[None], obs), state)[0][0, 0]
        assert [f"{value:.3g}" for value in values.tolist()] == [bar.text for bar in bars(rows)]
    state = None
    for agent, rows, obs, _, _ in shown(shelf("ppo_gru"), 6):
        model = agent.agent.model
        before = model.initial_state(1) if state is None else state
        params, value, state = model.unroll(map_tree(lambda leaf: leaf[None], obs), before)
        assert [f"{p:.3g}" for p in params[0, 0].softmax(-1).tolist()] == [bar.text for bar in bars(rows)]
        assert f"state value {value.item():.4g}" == rows[-1]


@torch.no_grad()
def test_every_part_of_an_action_is_shown_with_its_own_numbers(shelf):
    for agent, rows, obs, state, action in shown(shelf("ppo_parts"), 3):
        distribution = agent.agent.distribution
        params = agent.agent.model.unroll(map_tree(lambda leaf: leaf[None], obs), state)[0][0]
        mode, above = distribution.mode(params), torch.full((1, distribution.n_uniforms), 0.8413447460685429)
        upper = distribution.sample(params, above.double())  # the quantile one deviation above the mean
        numbers = [(mode["0"]["turn"], upper["0"]["turn"]), (mode["1"], upper["1"])]
        expected = [
            f"{m:.3g} +- {u - m:.3g}"
            for means, uppers in numbers
            for m, u in zip(means[0].tolist(), uppers[0].tolist(), strict=True)
        ]
        assert expected == [row.text.split(" ", 1)[1] for row in rows if isinstance(row, Mark)]
        first, _, several = action
        taken = [*first["lights"], *first["pair"][0], first["pair"][1], *several]
        assert [str(number) for number in taken] == [bar.name for bar in bars(rows) if bar.chosen]
        assert len(taken) == pytest.approx(sum(bar.length for bar in bars(rows)))


@torch.no_grad()
def test_what_a_deterministic_actor_does_is_shown_between_its_bounds(shelf):
    for _, rows, _, _, action in shown(shelf("td3"), 3):
        mark = rows[0]
        assert (f"action {action[0]:.3g}", None) == (mark.text, mark.band)
        assert mark.place == pytest.approx((action[0] + 2) / 4)


@torch.no_grad()
def test_sacs_deviation_and_its_critics_on_normalised_observations_are_shown(shelf):
    saved = load_saved(shelf("sac"))
    for agent, rows, obs, _, action in shown(shelf("sac"), 3):
        context = build.run_context(replace(saved.config, device="cpu"), agent.spec)
        learner = saved.config.algo.build(context, agent.agent)
        learner.load_state_dict(saved.snapshot["algo_state_dict"])
        mean, log_std = (x.item() for x in agent.agent.model(obs))
        low, high = (2 * np.tanh(mean + sign * np.exp(log_std)) for sign in (-1, 1))
        assert f"action {action[0]:.3g} ({low:.3g} to {high:.3g})" == rows[0].text
        assert np.allclose(rows[0].band, [(low + 2) / 4, (high + 2) / 4])
        values = learner.rule.critic(obs, torch.tensor([[np.tanh(mean)]], dtype=torch.float32))
        assert [f"critic {i} {q.item():.4g}" for i, q in enumerate(values, 1)] == rows[1:]
        learner.close()
