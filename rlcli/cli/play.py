"""The verb ``play``: watch a saved agent, in a window or as a video."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rlcli.cli import verb
from rlcli.cli.verb import Flag, Words
from rlcli.core.errors import ConfigError, EnvError, RlcliError

if TYPE_CHECKING:
    import gymnasium

    from rlcli.cli.overlay import Picture
    from rlcli.cli.saved import LoadedAgent
    from rlcli.cli.thoughts import Thoughts

FLAGS = (
    Flag("episodes", "whole games to play; 1", int, "N", ge=1),
    Flag("seed", "seed of environment and actions; else the run's", int, "S", ge=0),
    Flag("itr", "take itr_<N>.pkl of the run", int, "N", ge=0),
    Flag("best", "take best.pkl of the run"),
    Flag("video", "write an .mp4 instead of opening a window", str, "FILE.mp4"),
    Flag("fps", "pictures per second; else the environment's", float, "F", ge=0.1),
    Flag("scale", "size of a pixel; else so that a small picture becomes about 480 high", int, "K", ge=1),
    Flag("no-overlay", "the picture alone, without the agent's values"),
    Flag("max-steps", "end an episode after this many steps", int, "N", ge=1),
)

_HELP = """usage: rlcli play RUN|FILE [flags]

Plays with a saved agent and shows it, with what the agent thinks beside the picture (action values, probabilities,
mean and deviation, values of its critics): in a window, or in a video, also on a machine without a display. The first
game is that of evaluation environment 0.
RUN is a run folder, the name of a run or 'last'; of a run params.pkl is taken, or its newest itr_<N>.pkl.

flags:
{flags}

examples:
  rlcli play last
  rlcli play runs/dqn-pong --episodes 3 --video pong.mp4
"""

_USUAL_HEIGHT, _MAX_SCALE = 480, 8


class Screen(Protocol):
    """Where pictures go."""

    def show(self, picture: Picture) -> bool:
        """Show one; False: the user has seen enough."""


@dataclass
class Played:
    """What was seen."""

    scores: list[float] = field(default_factory=list)
    """Raw score of each game, one that was not played to its end included."""
    n_steps: int = 0
    n_pictures: int = 0
    video: Path | None = None


def command(words: Sequence[str]) -> int:
    """``rlcli play`` with these words; returns the exit code."""
    return verb.run("play", lambda signals: _command(verb.parse(words, FLAGS)))


def play(
    target: str | os.PathLike[str],
    *,
    episodes: int = 1,
    seed: int | None = None,
    itr: int | None = None,
    best: bool = False,
    video: str | os.PathLike[str] | None = None,
    fps: float | None = None,
    scale: int | None = None,
    overlay: bool = True,
    max_steps: int | None = None,
) -> Played:
    """See rlcli.play."""
    from rlcli.cli import window
    from rlcli.record.video import VideoFile, check_video

    file = None if video is None else Path(video).expanduser().absolute()
    if file is None:
        window.check_window()
    else:
        check_video(file)
    from rlcli.cli.saved import load

    agent = load(target, itr=itr, best=best, seed=seed)
    played = Played(video=file)
    with window.headless_drawing(), closing(_env(agent.config.task)) as env:
        game = Game(agent, env, agent.config.seed if seed is None else seed, max_steps)
        first = game.start()
        view = View(agent, env, scale or _fitting_scale(first), overlay)
        pace = fps or float(env.metadata.get("render_fps") or 30)
        with window.Window(f"rlcli play {agent.path}", pace) if file is None else VideoFile(file, pace) as screen:
            _show(game, first, view, screen, episodes, played)
    return played


def _command(words: Words) -> int:
    if words.help:
        print(_HELP.format(flags=verb.flag_lines(FLAGS)).rstrip())
        return verb.DONE
    if words.overrides:
        raise ConfigError(f"{words.overrides[0]}: play takes no keys")
    given = {name.replace("-", "_"): value for name, value in words.values.items() if name != "no-overlay"}
    played = play(words.target, overlay="no-overlay" not in words.values, **given)
    scores = ", ".join(f"{score:,.6g}" for score in played.scores)
    print(f"{len(played.scores)} games, {played.n_steps:,} steps, scores {scores}")
    if played.video is not None:
        print(f"written: {played.video} ({played.n_pictures:,} pictures)")
    return verb.DONE


class Game:
    """An environment that an agent plays, one step at a time.

    Args:
        agent: Acts.
        env: That can render.
        seed: Run seed; the environment gets that of evaluation environment 0.
        max_steps: Of an episode; None: to its end.
    """

    def __init__(self, agent: LoadedAgent, env: gymnasium.Env[Any, Any], seed: int, max_steps: int | None) -> None:
        self._agent, self._env, self._max_steps = agent, env, max_steps
        self._seed: int | None = seed
        self.obs: Any = None
        self.action: Any = None
        """The next one, None where the episode is over."""
        self.state: Any = None
        """The agent's recurrent state before ``obs``, None if it has none."""
        self.score, self.step, self.episode = 0.0, 0, 0

    def start(self) -> Picture:
        """Begin an episode; gives its first picture."""
        from rlcli.core.rng import Purpose, integer_seed
        from rlcli.envs.gym import checked_reset

        seed = None if self._seed is None else integer_seed(self._seed, Purpose.EVAL_ENV, 0)
        self._agent.reset(self._seed)
        self._seed = None
        self.obs = checked_reset(self._env, seed)
        self.score, self.step, self.episode = 0.0, 0, self.episode + 1
        self.state = self._agent.state
        self.action = self._agent.act(self.obs)
        return picture_of(self._env)

    def go_on(self) -> Picture:
        """One step; gives the picture after it."""
        from rlcli.envs.gym import checked_step

        done = checked_step(self._env, self.action)
        self.obs = done.obs
        self.step += 1
        self.score += done.raw_reward
        over = done.terminated or done.truncated or self.step == self._max_steps
        self.state = self._agent.state
        self.action = None if over else self._agent.act(self.obs)
        return picture_of(self._env)


class View:
    """Pictures as they are shown.

    Args:
        agent: Whose values are shown.
        env: For the names of the actions.
        scale: Size of a pixel.
        overlay: Whether to show the panel, where the agent has something to show.
    """

    def __init__(self, agent: LoadedAgent, env: gymnasium.Env[Any, Any], scale: int, overlay: bool) -> None:
        self._agent, self._scale = agent, scale
        self._thoughts = _thoughts(agent, env) if overlay else None

    def of(self, game: Game, picture: Picture) -> Picture:
        """The picture enlarged, with the panel beside."""
        from rlcli.cli.overlay import enlarged, even, with_panel

        picture = enlarged(picture, self._scale)
        if self._thoughts is None:
            return even(picture)
        head = [f"episode {game.episode}", f"step {game.step:,}", f"score {game.score:,.6g}"]
        thoughts = self._thoughts(self._agent.batch(game.obs), game.state, game.action)
        return even(with_panel(picture, [*head, *thoughts]))


def picture_of(env: gymnasium.Env[Any, Any]) -> Picture:
    """What the environment looks like now, uint8 [H, W, 3].

    Raises:
        ConfigError: It cannot be drawn, or a package for it is missing.
        EnvError: render() raised.
    """
    import gymnasium
    import numpy as np

    try:
        got: Any = env.render()
    except gymnasium.error.DependencyNotInstalled as error:
        raise ConfigError(f"drawing this environment needs a package: {error}; pip install 'rlcli[play]'") from error
    except RlcliError:
        raise
    except Exception as error:
        raise EnvError(f"render() raised {type(error).__name__}: {error}") from error
    if not isinstance(got, np.ndarray) or got.dtype != np.uint8 or got.ndim != 3 or got.shape[2] != 3:
        raise ConfigError(
            "env: cannot be shown: render() must give a picture, uint8 [height, width, 3], as with "
            f"render_mode='rgb_array'; it gave {getattr(got, 'shape', got)!r}"
        )
    return got


def _show(game: Game, first: Picture, view: View, screen: Screen, n_episodes: int, played: Played) -> None:
    """Show the game that has been started, and those after it."""
    for picture in _pictures(game, first, n_episodes, played):
        played.n_pictures += 1
        if not screen.show(view.of(game, picture)):
            return


def _pictures(game: Game, picture: Picture, n_episodes: int, played: Played) -> Iterator[Picture]:
    while True:
        played.scores.append(0.0)
        yield picture
        while game.action is not None:
            picture = game.go_on()
            played.n_steps += 1
            played.scores[-1] = game.score
            yield picture
        if game.episode == n_episodes:
            return
        picture = game.start()


def _env(config: Any) -> gymnasium.Env[Any, Any]:
    """An evaluation environment that can draw itself."""
    from rlcli.envs.config import GymConfig, evaluation_config
    from rlcli.envs.previous import PreviousActionReward, PreviousConfig

    config = evaluation_config(config)
    if isinstance(config, PreviousConfig):
        return PreviousActionReward(_env(config.env), config.sign)
    if not isinstance(config, GymConfig):
        env: gymnasium.Env[Any, Any] = config.build()
        return env
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message=".*render_mode"
            )  # that there is none is told below, or by render()
            return replace(config, kwargs={**config.kwargs, "render_mode": "rgb_array"}).build()
    except (ConfigError, TypeError) as error:
        if "render_mode" not in str(error) and "takes no arguments" not in str(error):
            raise
        raise ConfigError(f"env: {config.id} cannot be shown: it takes no render_mode") from error


def _thoughts(agent: LoadedAgent, env: gymnasium.Env[Any, Any]) -> Thoughts | None:
    """What there is to show of the agent, None if nothing."""
    from rlcli.cli.thoughts import thoughts_of

    meanings: Any = getattr(env.unwrapped, "get_action_meanings", None)
    try:
        return thoughts_of(agent, [] if meanings is None else [str(name) for name in meanings()])
    except ConfigError as error:
        verb.say("play", f"without the overlay: {error}")
        return None


def _fitting_scale(picture: Picture) -> int:
    return max(1, min(_MAX_SCALE, _USUAL_HEIGHT // len(picture)))
