"""The verb ``export``: a saved agent's greedy policy as a file that runs without rlcli."""

from __future__ import annotations

import importlib.util
import io
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
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

Writes the agent's greedy policy: a batch of raw observations in, the environment's own actions out, and with them
action values or probabilities where the actions can be counted. A recurrent agent's state goes in and comes out. Beside
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

    policy = greedy_policy(loaded.agent, loaded.spec).eval().requires_grad_(False)
    for tensor in loaded.agent.weights().values():
        tensor.data = tensor.data.contiguous()  # torch.export.save takes no other strides than these to be whole
    script = example_script(file, kind, policy, loaded.config.task, loaded.spec)
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

    inputs, shapes = _batch(policy, example)
    with torch.no_grad(), _exporter_silenced(), _one_line():
        program = torch.export.export(policy, tuple(inputs.values()), dynamic_shapes=tuple(shapes.values()))
    with place.open("wb") as file, _exporter_silenced():
        torch.export.save(program, file)


def _write_onnx(policy: GreedyPolicy, example: Tree, place: Path) -> None:
    import torch

    inputs, shapes = _batch(policy, example)
    input_names, output_names = _onnx_names(policy, inputs)
    with torch.no_grad(), _exporter_silenced(), _one_line():
        torch.onnx.export(
            policy,
            (),
            place,
            kwargs=inputs,  # a dict among the positional ones would itself be taken for keywords
            dynamo=True,
            verbose=False,
            external_data=False,
            input_names=input_names,
            output_names=output_names,
            dynamic_shapes=shapes,
        )


def _onnx_names(policy: GreedyPolicy, inputs: dict[str, Tree]) -> tuple[list[str], list[str]]:
    """Names of the flat inputs and outputs, in their order.

    Raises:
        ConfigError: A part of the observation is called as a part of the state is.
    """
    from rlcli.core.tree import leaves

    observed = [path or "obs" for path, _ in leaves(inputs["obs"])]
    state = [path for path, _ in leaves(inputs.get("state"), "state")]
    if taken := set(observed) & set(state):
        raise ConfigError(f"--format onnx: {min(taken)} is the name of the recurrent state; take --format pt2")
    outputs = policy(**inputs)
    named = dict(zip(policy.output_names, outputs if isinstance(outputs, tuple) else (outputs,), strict=True))
    returned = {"next_state" if name == "state" else name: tree for name, tree in named.items()}
    return [*observed, *state], [path for path, _ in leaves(returned)]


@contextmanager
def _one_line() -> Iterator[None]:
    """A network that torch cannot trace, such as one of a user's own, is the user's to change.

    Raises:
        ConfigError: Instead of whatever the exporter raised; its own words are the cause.
    """
    import torch

    try:
        yield
    except OSError:
        raise
    except Exception as error:
        first: BaseException = error
        while first.__cause__ is not None:  # the ONNX exporter says no more than which step failed
            first = first.__cause__
        if not type(first).__module__.startswith(torch.__name__) and not isinstance(first, RuntimeError | ValueError):
            raise
        line = next((line for line in str(first).splitlines() if line.strip()), type(first).__name__)
        raise ConfigError(f"model: torch cannot export this network: {line.strip()}") from error


@contextmanager
def _exporter_silenced() -> Iterator[None]:
    """Torch's exporter warns and logs about itself (torchvision is not there, an LSTM's list of its own weights ...).

    Nothing of it could a user change. Where it fails it writes graphs to stderr, besides the exception.
    """
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _batch(policy: GreedyPolicy, example: Tree) -> tuple[dict[str, Tree], dict[str, Tree]]:
    """Two observations, and states, to trace with (one would become a constant), and which dimensions may vary."""
    import numpy as np
    import torch

    from rlcli.core.tree import map_tree

    inputs = {"obs": map_tree(lambda leaf: torch.from_numpy(np.stack([leaf, leaf])), example)}
    if policy.initial_state is not None:
        inputs["state"] = map_tree(lambda leaf: torch.cat([leaf, leaf]), policy.initial_state)
    n = torch.export.Dim("n", min=1)
    return inputs, map_tree(lambda leaf: {0: n}, inputs)


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
