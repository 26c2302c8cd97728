"""Every sampler mode by name, and what tests do with a sampler: take batches and compare them byte for byte."""

import contextlib
from dataclasses import dataclass, fields, replace

import torch

from rlcli.core.samples import Collected, Evaluation, Samples
from rlcli.core.tree import leaves, map_tree
from rlcli.samplers.config import AlternatingConfig, AsyncConfig, CpuConfig, GpuConfig, SerialConfig

_MODES = {
    "serial": (SerialConfig, {}),
    "cpu of 1": (CpuConfig, {"n_workers": 1}),
    "cpu of 2": (CpuConfig, {"n_workers": 2}),
    "cpu of 3": (CpuConfig, {"n_workers": 3}),
    "gpu of 1": (GpuConfig, {"n_workers": 1}),
    "gpu of 2": (GpuConfig, {"n_workers": 2}),
    "gpu of 3": (GpuConfig, {"n_workers": 3}),
    "alternating of 1": (AlternatingConfig, {"n_workers": 1}),
    "alternating of 2": (AlternatingConfig, {"n_workers": 2}),
    "alternating of 2, no overlap": (AlternatingConfig, {"n_workers": 2, "overlap": False}),
    "async serial": (AsyncConfig, {"inner": "serial"}),
    "async cpu of 2": (AsyncConfig, {"inner": "cpu", "n_workers": 2}),
    "async gpu of 2": (AsyncConfig, {"inner": "gpu", "n_workers": 2}),
    "async alternating of 2": (AsyncConfig, {"inner": "alternating", "n_workers": 2}),
}

ALL = tuple(_MODES)
OTHERS = ALL[1:]
"""All but serial, which is what the others are compared with."""
ONE_OF_EACH = (
    "serial",
    "cpu of 2",
    "gpu of 2",
    "alternating of 2",
    "async serial",
    "async cpu of 2",
    "async gpu of 2",
    "async alternating of 2",
)
ASYNC = ONE_OF_EACH[4:]


def config(mode, batch_T, batch_B, *, start_method="fork", **options):
    """A sampler's config.

    A fork starts in hundredths of a second, other workers in one or more seconds. Workers that are not pinned need not
    wait for a CPU on which something else runs.
    """
    cls, own = _MODES[mode]
    if cls.has_workers:
        own = {**own, "start_method": start_method, "pin_workers": False}
    return cls(batch_T, batch_B, **own | options)


def copy_of(samples):
    """Samples that the sampler's next batch leaves alone."""
    return Samples(**{f.name: map_tree(torch.clone, getattr(samples, f.name)) for f in fields(samples)})


@dataclass
class Run:
    """What a sampler gave."""

    batches: list[Collected]
    evaluations: list[Evaluation]
    """Before the first and after the last batch, if asked for."""


def run(config, setup, n, evaluate=False):
    """Copies of ``n`` batches and all that was said of them."""
    step, batches, evaluations = 0, [], []
    with contextlib.closing(config.build(setup)) as sampler:
        if evaluate:
            evaluations.append(sampler.evaluate(step))
        for _ in range(n):
            got = sampler.collect(step)
            step += got.n_steps
            batches.append(replace(got, samples=copy_of(got.samples)))
        if evaluate:
            evaluations.append(sampler.evaluate(step))
    return Run(batches, evaluations)


def batches(config, setup, n):
    """See `run`."""
    return run(config, setup, n).batches


def assert_same_bytes(expected, actual):
    """Every leaf of two Samples, its dtype and its bits."""
    for field in fields(Samples):
        pairs = zip(leaves(getattr(expected, field.name)), leaves(getattr(actual, field.name)), strict=True)
        for (path, a), (_, b) in pairs:
            assert a.dtype == b.dtype, f"{field.name}.{path}"
            assert a.numpy().tobytes() == b.numpy().tobytes(), f"{field.name}.{path}"


def assert_same_run(expected, actual):
    """Samples, statistics and evaluations."""
    for a, b in zip(expected.batches, actual.batches, strict=True):
        assert_same_bytes(a.samples, b.samples)
        assert a.episodes == b.episodes
        assert a.games == b.games
        assert (a.n_steps, a.longest_running) == (b.n_steps, b.longest_running)
    assert expected.evaluations == actual.evaluations
