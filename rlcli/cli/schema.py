"""The table of options: which config class stands behind which kind of which group."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from rlcli.core.errors import ConfigError
from rlcli.register import registered

BUILT_IN = {
    ("env", "atari"): "rlcli.envs.config:AtariConfig",
    ("env", "gym"): "rlcli.envs.config:GymConfig",
    ("env", "minatar"): "rlcli.envs.minatar_config:MinAtarConfig",
    ("model", "auto"): "rlcli.models.config:AutoModelConfig",
    ("model", "impala"): "rlcli.models.config:ImpalaConfig",
    ("algo", "dqn"): "rlcli.algos.dqn_config:DQNConfig",
    ("algo", "cat_dqn"): "rlcli.algos.cat_dqn_config:CatDQNConfig",
    ("algo", "rainbow"): "rlcli.algos.cat_dqn_config:RainbowConfig",
    ("algo", "iqn"): "rlcli.algos.iqn_config:IQNConfig",
    ("algo", "r2d1"): "rlcli.algos.r2d1_config:R2D1Config",
    ("algo", "a2c"): "rlcli.algos.a2c_config:A2CConfig",
    ("algo", "ppo"): "rlcli.algos.ppo_config:PPOConfig",
    ("algo", "ddpg"): "rlcli.algos.ddpg_config:DDPGConfig",
    ("algo", "td3"): "rlcli.algos.td3_config:TD3Config",
    ("algo", "sac"): "rlcli.algos.sac_config:SACConfig",
    ("algo", "sac_v"): "rlcli.algos.sac_v_config:SACVConfig",
    ("sampler", "serial"): "rlcli.samplers.config:SerialConfig",
    ("sampler", "cpu"): "rlcli.samplers.config:CpuConfig",
    ("sampler", "gpu"): "rlcli.samplers.config:GpuConfig",
    ("sampler", "alternating"): "rlcli.samplers.config:AlternatingConfig",
    ("sampler", "async"): "rlcli.samplers.config:AsyncConfig",
    ("epsilon", "constant"): "rlcli.agents.epsilon_config:ConstantEpsilon",
    ("epsilon", "linear"): "rlcli.agents.epsilon_config:LinearEpsilon",
    ("epsilon", "exponential"): "rlcli.agents.epsilon_config:ExponentialEpsilon",
    ("epsilon", "piecewise"): "rlcli.agents.epsilon_config:PiecewiseEpsilon",
    ("epsilon", "apex"): "rlcli.agents.epsilon_config:ApexEpsilon",
    ("replay", "uniform"): "rlcli.replay.config:UniformReplayConfig",
    ("replay", "prioritized"): "rlcli.replay.config:PrioritizedReplayConfig",
    ("replay", "sequence"): "rlcli.replay.config:SequenceReplayConfig",
    ("logger", "csv"): "rlcli.record.config:CsvLoggerConfig",
}
"""(group, kind) -> module:class. The modules load no torch and no gymnasium."""

MISSING = "???"
"""OmegaConf's mark of a value that the user must give."""


def config_class(group: str, kind: str) -> type | None:
    """The config class of a kind, rlcli's own or registered by a user; None if there is none."""
    if (group, kind) in BUILT_IN:
        module, _, name = BUILT_IN[group, kind].partition(":")
        found: type = getattr(importlib.import_module(module), name)
        return found
    return registered().get((group, kind))


def kinds(group: str) -> list[str]:
    """The kinds of a group, rlcli's own first."""
    return [k for g, k in [*BUILT_IN, *registered()] if g == group]


def kind_of(group: str, config: object) -> str:
    """The kind under which the class of ``config`` is known.

    Raises:
        LookupError: The class is in no table.
    """
    for kind in kinds(group):
        if config_class(group, kind) is type(config):
            return kind
    raise LookupError(f"{type(config).__qualname__} is no config class of group {group!r}")


def defaults_tree(cls: type) -> dict[str, Any]:
    """The defaults of a config dataclass as plain containers, ``???`` where there is none."""
    return {f.name: _default(f) for f in dataclasses.fields(cls) if f.init}


def store() -> None:
    """Put the defaults of every kind into Hydra's ConfigStore as ``schema/<group>/<kind>``.

    The nodes carry no types: types are checked by rlcli.cli.config, which reports all problems of a
    command line at once and takes 1e6 for an int.

    Raises:
        ConfigError: A user's class took the name of one of rlcli's own.
    """
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf

    from rlcli.cli.config import root_defaults

    if taken := BUILT_IN.keys() & registered().keys():
        raise ConfigError([f"register: {group} {kind!r} is rlcli's own, take another name" for group, kind in taken])
    config_store = ConfigStore.instance()
    config_store.store(group="schema", name="run", node=root_defaults(), provider="rlcli")
    for group, kind in [*BUILT_IN, *registered()]:
        cls = config_class(group, kind)
        assert cls is not None
        node = OmegaConf.create({"kind": kind} | defaults_tree(cls) | {"kind": kind})
        node._get_node("kind")._set_flag("readonly", True)  # type: ignore[union-attr]
        config_store.store(group=f"schema/{group}", name=kind, node=node, provider="rlcli")


def plain(value: Any) -> Any:
    """``value`` with dataclasses, dicts and tuples inside it turned into plain dicts and lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return plain(field.default)
    if field.default_factory is not dataclasses.MISSING:
        return plain(field.default_factory())
    return MISSING
