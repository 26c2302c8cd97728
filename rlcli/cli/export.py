"""The verb ``export``: a saved agent's greedy policy as a file that runs without rlcli."""

from __future__ import annotations

import importlib.util
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcli.cli import verb
from rlcli.cli.verb import Flag, Words
from rlcli.core.errors import ConfigError, RlcliError

if TYPE_CHECKING:
    from rlcli.cli.policy import GreedyPolicy
    from rlcli.core.tree import Tree

FORMATS = ("pt2", "onnx")

FLAGS = (
    Flag("out", "the file to write; else policy.pt2 or policy.onnx in the current folder", str, "FILE"),
    Flag("format", "pt2: torch.export, for torch.export.load; onnx: for onnxruntime and others", str, "pt2|onnx"),
    Flag("itr", "take itr_<N>.pkl of the run", int, "N", ge=0),
    Flag("best", "take best.pkl of the run"),
)

_HELP = """usage: rlcli export RUN|FILE [flags]

Writes the agent's greedy policy: a batch of observations in, actions and action values (or probabilities) out. Beside
it comes a script of a page, <name>_example.py, that loads and runs it. Neither needs rlcli.
RUN is a run folder, the name of a run or 'last'; of a run params.pkl is taken, or its newest itr_<N>.pkl.

flags:
{flags}

examples:
  rlcli export last
  rlcli export runs/dqn-pong --itr 200 --out pong.onnx --format onnx
"""


def command(words: Sequence[str]) -> int:
    """``rlcli export`` with these words; returns the exit code."""
    return verb.run("export", lambda signals: _command(verb.parse(words, FLAGS)))


def export(
    target: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    kind: str | None = None,
    itr: int | None = None,
    best: bool = False,
) -> list[Path]:
    """See rlcli.export."""
    file, kind = _destination(out, kind)
    if kind == "onnx":
        _refuse_missing_onnx()
    from rlcli.cli.saved import load

    loaded = load(target, itr=itr, best=best, device="cpu")
    from rlcli.cli.export_example import example_script
    from rlcli.cli.policy import greedy_policy

    policy = greedy_policy(loaded.agent, loaded.spec).eval()
    for tensor in loaded.agent.weights().values():
        tensor.data = tensor.data.contiguous()  # torch.export.save takes no other strides than these to be whole
    script = example_script(file, kind, policy.score_name, loaded.config.env, loaded.spec)
    example = _example_of(file)
    write = {"pt2": _write_pt2, "onnx": _write_onnx}[kind]
    _whole(file, lambda place: write(policy, loaded.spec.example_obs, place))
    _whole(example, lambda place: place.write_text(script, encoding="utf-8"))
    return [file, example]


def _command(words: Words) -> int:
    if words.help:
        print(_HELP.format(flags=verb.flag_lines(FLAGS)).rstrip())
        return verb.DONE
    if words.overrides:
        raise ConfigError(f"{words.overrides[0]}: export takes no keys")
    values = words.values
    made = export(
        words.target,
        values.get("out"),
        kind=values.get("format"),
        itr=values.get("itr"),
        best="best" in values,
    )
    for path in made:
        print(f"written: {path}")
    return verb.DONE


def _destination(out: str | os.PathLike[str] | None, kind: str | None) -> tuple[Path, str]:
    """The file and its format.

    Raises:
        ConfigError: The format is unknown, the folder is not there, or a file is.
    """
    if kind is not None and kind not in FORMATS:
        raise ConfigError(f"--format: {kind!r} is not allowed, must be one of {', '.join(FORMATS)}")
    ending = "" if out is None else Path(out).suffix.removeprefix(".")
    kind = kind or (ending if ending in FORMATS else "pt2")
    file = Path(f"policy.{kind}" if out is None else out).expanduser().absolute()
    if not file.parent.is_dir():
        raise ConfigError(f"--out: there is no folder {file.parent}")
    taken = [path for path in (file, _example_of(file)) if path.exists()]
    if taken:
        raise ConfigError(f"--out: {taken[0]} is there already; take another name or remove it")
    return file, kind


def _example_of(file: Path) -> Path:
    return file.with_name(f"{file.stem}_example.py")


def _refuse_missing_onnx() -> None:
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"--format onnx: needs {' and '.join(missing)}: pip install 'rlcli[onnx]'")


def _write_pt2(policy: GreedyPolicy, example: Tree, place: Path) -> None:
    import torch

    obs, shapes = _batch(example)
    with torch.no_grad():
        program = torch.export.export(policy, (obs,), dynamic_shapes=(shapes,))
    with place.open("wb") as file:
        torch.export.save(program, file)


def _write_onnx(policy: GreedyPolicy, example: Tree, place: Path) -> None:
    import torch

    from rlcli.core.tree import leaves

    obs, shapes = _batch(example)
    with torch.no_grad(), _exporter_silenced():
        torch.onnx.export(
            policy,
            (),
            place,
            kwargs={"obs": obs},  # a dict among the positional ones would itself be taken for keywords
            dynamo=True,
            verbose=False,
            external_data=False,
            input_names=[path or "obs" for path, _ in leaves(obs)],
            output_names=["action", policy.score_name],
            dynamic_shapes={"obs": shapes},
        )


@contextmanager
def _exporter_silenced() -> Iterator[None]:
    """Torch's exporter warns and logs about itself (torchvision is not there ...): nothing that a user could change."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _batch(example: Tree) -> tuple[Tree, Tree]:
    """Two observations to trace with (one would become a constant), and which of their dimensions may vary."""
    import numpy as np
    import torch

    from rlcli.core.tree import map_tree

    n = torch.export.Dim("n", min=1)
    return (
        map_tree(lambda leaf: torch.from_numpy(np.stack([leaf, leaf])), example),
        map_tree(lambda leaf: {0: n}, example),
    )


def _whole(file: Path, write: Callable[[Path], Any]) -> None:
    """Write to a temporary name first, so that the file is there whole or not at all."""
    temporary = file.with_name(f".{file.stem}.{os.getpid()}.tmp{file.suffix}")
    try:
        write(temporary)
        temporary.replace(file)
    except OSError as error:
        raise RlcliError(f"{file}: not written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
