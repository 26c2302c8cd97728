"""rlcli: a command-line launcher of deep reinforcement learning experiments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlcli.core.stop import Stopped
from rlcli.register import register

if TYPE_CHECKING:
    from rlcli.cli.evaluate import EvaluationResult
    from rlcli.cli.play import Played
    from rlcli.cli.saved import LoadedAgent

__version__ = "0.1.0"
__all__ = ["Stopped", "__version__", "evaluate", "export", "load", "play", "register", "resume", "train"]


def train(overrides: Sequence[str] = ()) -> Path:
    """Do one training run, as ``rlcli train`` with these overrides does.

    In the main thread it takes SIGINT and SIGTERM while it runs: after the first the run ends with a last row and a
    final snapshot, and then raises; a second raises at once. The handlers that were there before are put back.

    Args:
        overrides: ``key=value`` texts as on the command line; no flags.

    Returns:
        The run folder.

    Raises:
        ConfigError: The request cannot be met; nothing has been made on disk.
        KeyboardInterrupt: SIGINT came (Ctrl-C); ``run_dir`` of the exception is the run folder, None if there is none.
        Stopped: SIGTERM came; a SystemExit with exit code 3 and ``run_dir``.
        Exception: Whatever ended the run.
    """
    from rlcli.cli.train import train as run

    return run(overrides)


def resume(run: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Path:
    """Go on with a run from its newest checkpoint, as ``rlcli resume`` does; takes signals as `train` does.

    Args:
        run: A run folder, the name of a run, or ``last``.
        overrides: ``key=value`` texts: what is changed from here on.

    Returns:
        The run folder.

    Raises:
        ConfigError: There is no such run, nothing of it can be loaded, or a change is not possible.
        KeyboardInterrupt, Stopped: See `train`.
        Exception: Whatever ended the run.
    """
    from rlcli.cli.resume import resume as go_on

    return go_on(run, overrides)


def evaluate(
    run: str | os.PathLike[str],
    *,
    episodes: int | None = None,
    seed: int | None = None,
    itr: int | None = None,
    best: bool = False,
    overrides: Sequence[str] = (),
    out: str | os.PathLike[str] | None = None,
) -> EvaluationResult:
    """Play whole games with a saved agent, as ``rlcli eval`` does, and append a row to the run's evaluations.csv.

    Args:
        run: A run folder, the name of a run, ``last``, or a snapshot file.
        episodes: Whole games; None: `eval.n_episodes` of the run.
        seed: Of environments and actions; None: the run's.
        itr: Take the run's itr_<itr>.pkl; else params.pkl, or the newest of the others if there is none.
        best: Take the run's best.pkl.
        overrides: ``key=value`` texts: eval.*, epsilon.eval, sampler, sampler.*, and keys of env that leave its spaces
            as they are.
        out: Append the row to this file instead.

    Returns:
        Mean, standard deviation, all scores, cut games, and the row.

    Raises:
        ConfigError: The request cannot be met.
        KeyboardInterrupt, Stopped: See `train`.
    """
    from rlcli.cli.evaluate import evaluate as run_evaluation

    return run_evaluation(run, episodes=episodes, seed=seed, itr=itr, best=best, overrides=overrides, out=out)


def load(
    run: str | os.PathLike[str],
    *,
    itr: int | None = None,
    best: bool = False,
    seed: int | None = None,
    device: str = "auto",
) -> LoadedAgent:
    """A saved agent whose ``act(obs)`` a loop of your own can call.

    Args:
        run: A run folder, the name of a run, ``last``, or a snapshot file.
        itr: Take the run's itr_<itr>.pkl; else params.pkl, or the newest of the others if there is none.
        best: Take the run's best.pkl.
        seed: Of the agent's random stream, which it needs with an evaluation epsilon above 0; None: the run's.
        device: Where it acts: cpu, cuda, cuda:N; auto: cuda if there is one.

    Returns:
        The agent; ``act(obs)`` takes one observation as the environment gives it, ``reset()`` begins an episode.

    Raises:
        ConfigError: There is no such run or file, or it cannot be read safely, or does not fit what is installed.
    """
    from rlcli.cli.saved import load as load_agent

    return load_agent(run, itr=itr, best=best, seed=seed, device=device)


def play(
    run: str | os.PathLike[str],
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
    """Show a saved agent at play, in a window or as a video, as ``rlcli play`` does.

    Args:
        run: A run folder, the name of a run, ``last``, or a snapshot file.
        episodes: Whole games.
        seed: Of environment and actions; None: the run's.
        itr: Take the run's itr_<itr>.pkl; else params.pkl, or the newest of the others if there is none.
        best: Take the run's best.pkl.
        video: The .mp4 to write; None opens a window.
        fps: Pictures per second; None: the environment's.
        scale: Size of a pixel; None: so that a small picture becomes about 480 high.
        overlay: Whether to show beside the picture what the agent thinks: values, probabilities, critics.
        max_steps: End an episode after this many steps; None: at its end.

    Returns:
        The scores, and how much was seen.

    Raises:
        ConfigError: The request cannot be met; nothing was made.
    """
    from rlcli.cli.play import play as show

    return show(
        run,
        episodes=episodes,
        seed=seed,
        itr=itr,
        best=best,
        video=video,
        fps=fps,
        scale=scale,
        overlay=overlay,
        max_steps=max_steps,
    )


def export(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    kind: str | None = None,
    itr: int | None = None,
    best: bool = False,
) -> list[Path]:
    """Write a saved agent's greedy policy and an example that runs it without rlcli, as ``rlcli export`` does.

    Args:
        run: A run folder, the name of a run, ``last``, or a snapshot file.
        out: The file; None: policy.pt2 or policy.onnx in the current folder.
        kind: pt2 or onnx; None: as the file's name ends, else pt2.
        itr: Take the run's itr_<itr>.pkl; else params.pkl, or the newest of the others if there is none.
        best: Take the run's best.pkl.

    Returns:
        The policy and the example.

    Raises:
        ConfigError: The request cannot be met; nothing was written.
    """
    from rlcli.cli.export import export as write

    return write(run, out, kind=kind, itr=itr, best=best)
