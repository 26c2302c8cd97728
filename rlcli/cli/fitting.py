"""Whether the parts that were chosen go together: what no part can say by itself."""

from __future__ import annotations

import contextlib
from typing import Any

from rlcli.cli.config import RunConfig
from rlcli.cli.schema import config_class, kinds
from rlcli.core.errors import ConfigError
from rlcli.core.pickling import pickled
from rlcli.core.spec import EnvSpec


def sampler_problems(config: RunConfig) -> list[str]:
    """Why the sampler does not go with the rest."""
    sampler, chosen = config.sampler, config.choices
    problems = []
    if sampler.off_policy_only and config.algo.on_policy:
        problems.append(
            f"sampler: {chosen['sampler']} gives batches of older weights, algo={chosen['algo']} learns on-policy and "
            "needs the newest; take serial, cpu, gpu or alternating"
        )
    if sampler.has_workers:
        try:
            pickled("env", config.env)
        except ConfigError as error:
            problems += error.problems
    return problems


def algo_problems(config: RunConfig, spec: EnvSpec) -> list[str]:
    """Why the algorithm does not go with the environment, and which ones would."""
    problems: list[str] = config.algo.spec_problems(spec)
    if not problems:
        return []
    fitting = []
    for kind in kinds("algo"):
        with contextlib.suppress(TypeError):  # a user's config may have values without a default
            candidate: Any = config_class("algo", kind)
            if not candidate().spec_problems(spec):
                fitting.append(kind)
    return [f"{line}; {', '.join(fitting) or 'no algorithm'} would do" for line in problems]
