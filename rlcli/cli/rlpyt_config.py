"""What a file of rlpyt decides about a run's configuration: sizes of the network and of the screens."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlcli.core.errors import ConfigError

if TYPE_CHECKING:
    from rlcli.cli.config import RunConfig
    from rlcli.record.rlpyt_parts import Architecture, RlpytFile, VectorArchitecture


def as_in_file(
    config: RunConfig, file: RlpytFile, given: Collection[str], *, partial: bool
) -> tuple[RunConfig, list[str]]:
    """The configuration with the sizes of a file of rlpyt, and lines that say what was taken.

    Args:
        config: The checked configuration; its ``resume`` names the file in messages.
        file: What it holds.
        given: The keys that the user set on the command line.
        partial: Whether only some parameters will be taken; the user's own keys then win over the file.

    Raises:
        ConfigError: The file contradicts a key that the user set, or no image size fits.
    """
    from rlcli.record.rlpyt_parts import Architecture

    problems = [] if partial else _other_algo(config, file.agent)
    found = file.architecture
    problems += _unfit(config, file, given, partial=partial)
    if problems:
        raise ConfigError([f"resume: {config.resume} is of rlpyt's {file.agent} agent: {line}" for line in problems])
    notes: list[str] = []
    if isinstance(found, Architecture):
        wanted = _wanted_sizes(config, file.agent, found, given)
        size, notes = _image_size(config, found, given, wanted, partial=partial)
        wanted |= size
    else:
        wanted = _wanted_widths(config, file.agent, found)
    values = {key: getattr(getattr(config, key.split(".")[0]), key.split(".")[1]) for key in wanted}
    changed = {key: value for key, value in wanted.items() if value != values[key]}
    contradicted = [key for key in changed if key in given]
    if contradicted and not partial:
        raise ConfigError(
            [f"{key}: {values[key]!r} was given, but {config.resume} has {wanted[key]!r}" for key in contradicted]
        )
    changed = {key: value for key, value in changed.items() if key not in given}
    for group in ("model", "algo", "env"):
        own = {key.partition(".")[2]: value for key, value in changed.items() if key.startswith(f"{group}.")}
        if own:
            config = dataclasses.replace(config, **{group: dataclasses.replace(getattr(config, group), **own)})
    if changed:
        notes = [f"taken from {config.resume}: {', '.join(f'{k}={_shown(v)}' for k, v in changed.items())}", *notes]
    return config, notes


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _other_algo(config: RunConfig, agent: str) -> list[str]:
    """Why the chosen algorithm cannot go on from an agent of rlpyt."""
    from rlcli.algos.a2c_config import A2CConfig
    from rlcli.algos.cat_dqn_config import CatDQNConfig
    from rlcli.algos.ddpg_config import DDPGConfig
    from rlcli.algos.dqn_config import DQNConfig
    from rlcli.algos.ppo_config import PPOConfig
    from rlcli.algos.r2d1_config import R2D1Config
    from rlcli.algos.sac_config import SACConfig
    from rlcli.algos.sac_v_config import SACVConfig
    from rlcli.algos.td3_config import TD3Config

    policies: tuple[type, ...] = (A2CConfig, PPOConfig)
    names, kinds = {
        "DQN": ("dqn", (DQNConfig,)),
        "CatDQN": ("cat_dqn", (CatDQNConfig,)),
        "R2D1": ("r2d1", (R2D1Config,)),
        "A2C/PPO": ("a2c or algo=ppo", policies),
        "recurrent A2C/PPO": ("a2c or algo=ppo", policies),
        "MuJoCo A2C/PPO": ("a2c or algo=ppo", policies),
        "recurrent MuJoCo A2C/PPO": ("a2c or algo=ppo", policies),
        "DDPG": ("ddpg", (DDPGConfig,)),
        "TD3": ("td3", (TD3Config,)),
        "SAC": ("sac", (SACConfig,)),
        "SAC (with V)": ("sac_v", (SACVConfig,)),
    }[agent]
    if not isinstance(config.algo, kinds):
        return [f"it needs algo={names}, not algo={config.choices.get('algo')}"]
    if getattr(config.algo, "noisy", False):
        return ["its layers are not noisy; it needs algo.noisy=false"]
    return []


def _unfit(config: RunConfig, file: RlpytFile, given: Collection[str], *, partial: bool) -> list[str]:
    """Why the parts that were chosen cannot hold such a network."""
    from rlcli.record.rlpyt_parts import Architecture

    if not _has(config.model, "conv_paddings"):
        return [f"it needs model=auto, not model={config.choices.get('model')}"]
    found = file.architecture
    if isinstance(found, Architecture):
        return _unfit_images(config, file.agent, found, given, partial=partial)
    return [] if partial else _unfit_vectors(found)


def _unfit_images(
    config: RunConfig, agent: str, found: Architecture, given: Collection[str], *, partial: bool
) -> list[str]:
    from rlcli.record.rlpyt_images import known_convolutions

    problems = []
    kernels, _, _ = known_convolutions(agent)
    known = {"model.conv_strides", "model.conv_paddings"} <= set(given)
    if found.conv_kernels != kernels and not known:
        problems.append(
            f"strides and paddings are known for kernels {list(kernels)} only, it has {list(found.conv_kernels)}; give "
            "model.conv_strides and model.conv_paddings, with model.conv_channels and model.conv_kernels as in the file"
        )
    n_atoms = getattr(config.algo, "n_atoms", None)
    if agent == "CatDQN" and n_atoms and not partial and not found.dueling and found.n_outputs % n_atoms:
        problems.append(
            f"it has {found.n_outputs} outputs, actions times atoms; algo.n_atoms={n_atoms} does not divide them"
        )
    return problems


def _unfit_vectors(found: VectorArchitecture) -> list[str]:
    values = found.critic_hidden if found.value_hidden is None else found.value_hidden
    if found.actor_hidden == found.critic_hidden == values:
        return []
    told = f"what judges has layers of {list(found.critic_hidden)}"
    if found.value_hidden is not None:
        told += f" and {list(values)}"
    return [
        f"its actor has layers of {list(found.actor_hidden)}, {told}; here all have those of model.mlp_hidden; "
        "resume_keys=[*] takes the actor alone"
    ]


def _wanted_widths(config: RunConfig, agent: str, found: VectorArchitecture) -> dict[str, Any]:
    """Dotted key -> value that a file of vectors asks for, of the keys that this configuration has."""
    wanted: dict[str, Any] = {
        "model.mlp_hidden": list(found.actor_hidden),
        "model.activation": found.activation,
        "model.normalize_obs": found.normalizes,
    }
    if "A2C/PPO" in agent:
        recurrent = found.recurrent_hidden > 0
        wanted |= {"model.shared_trunk": recurrent, "algo.state_dependent_std": recurrent}
        wanted["algo.tanh_mean"] = found.tanh_mean
        wanted |= _recurrent(found.recurrent_hidden)
    return _known(config, wanted)


def _recurrent(hidden: int) -> dict[str, Any]:
    """What an LSTM of this width, or none, asks of the model."""
    if not hidden:
        return {"model.recurrent": "none"}
    return {"model.recurrent": "lstm", "model.recurrent_hidden": hidden, "model.observe_previous": True}


def _wanted_sizes(config: RunConfig, agent: str, found: Architecture, given: Collection[str]) -> dict[str, Any]:
    """Dotted key -> value that the file asks for, of the keys that this configuration has; without the image size."""
    from rlcli.record.rlpyt_images import known_convolutions

    wanted: dict[str, Any] = {
        "model.conv_channels": list(found.conv_channels),
        "model.conv_kernels": list(found.conv_kernels),
        "model.conv_hidden": found.hidden,
        "model.activation": "relu",
        "algo.dueling": found.dueling,
        "env.frame_stack": found.in_channels,
        "env.grayscale": True,
    }
    if found.n_atoms is not None:
        wanted["algo.n_atoms"] = found.n_atoms
    if agent in ("A2C/PPO", "recurrent A2C/PPO", "R2D1"):
        wanted |= {"model.shared_trunk": True} | _recurrent(found.recurrent_hidden)
    if found.head_hidden:
        wanted["algo.head_hidden"] = [found.head_hidden]
    _, strides, paddings = known_convolutions(agent)
    for key, value in (("model.conv_strides", strides), ("model.conv_paddings", paddings)):
        if key not in given:  # the file's shapes do not tell: then the user may
            wanted[key] = list(value)
    return _known(config, wanted)


def _image_size(
    config: RunConfig, found: Architecture, given: Collection[str], wanted: Mapping[str, Any], *, partial: bool
) -> tuple[dict[str, Any], list[str]]:
    """Keys of the image size, where the environment has them, and lines about the choice."""
    from rlcli.record.rlpyt_images import IMAGE, image_sizes

    env = config.env
    if not _has(env, "image_size"):
        return {}, []
    both = _has(env, "image_width")
    own = (env.image_size, (env.image_width if both else None) or env.image_size)
    strides = wanted.get("model.conv_strides", config.model.conv_strides)
    paddings = wanted.get("model.conv_paddings", config.model.paddings)
    if len({len(strides), len(paddings), len(found.conv_kernels)}) > 1:
        raise ConfigError(f"model.conv_strides: {config.resume} has {len(found.conv_kernels)} convolutions")
    fitting = list(image_sizes(found, strides, paddings))
    sizes = [
        (height, width)
        for height, width in fitting
        if (both or height == width)
        and ("env.image_size" not in given or height == env.image_size)
        and ("env.image_width" not in given or width == own[1])
    ]
    squares = [size for size in sizes if size[0] == size[1]]
    if not sizes and partial:
        return {}, []
    if IMAGE in sizes or own in sizes:
        size = IMAGE if IMAGE in sizes else own
        notes = []
    elif squares or len(sizes) == 1:
        size = (squares or sizes)[0]
        others = [f"{h}x{w}" for h, w in squares[1:]]
        also = f"; {', '.join(others)} would fit too: env.image_size decides" if others else ""
        notes = [f"the file does not say its image size: {size[0]}x{size[1]} is the smallest square that fits{also}"]
    else:
        raise ConfigError(_no_size(config, found, sizes or fitting, given))
    keys = {"env.image_size": size[0]}
    if both:
        keys["env.image_width"] = size[1] if size[0] != size[1] or env.image_width == size[1] else None
    return keys, notes


def _no_size(config: RunConfig, found: Architecture, sizes: Sequence[tuple[int, int]], given: Collection[str]) -> str:
    """One line with some sizes: rlpyt's own if it fits, then those nearest to a square."""
    from rlcli.record.rlpyt_images import IMAGE

    keys = [key for key in ("env.image_size", "env.image_width") if key in given]
    squarest = sorted(sizes, key=lambda size: (size != IMAGE, abs(size[0] - size[1]), size))
    shown = ", ".join(f"{height}x{width}" for height, width in squarest[:6]) or "none is known"
    needs = f"a height and width that give {found.n_cells} cells after the convolutions, such as {shown}"
    if keys:
        values = " and ".join(f"{key.partition('.')[2]}={getattr(config.env, key.partition('.')[2])}" for key in keys)
        return f"{keys[0]}: {values} was given, but {config.resume} needs {needs}"
    return f"env.image_size: {config.resume} does not say it and needs {needs}; give env.image_size and env.image_width"


def _known(config: RunConfig, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the keys that the configuration's parts have."""
    return {key: v for key, v in wanted.items() if _has(getattr(config, key.split(".")[0]), key.split(".")[1])}


def _has(part: Any, name: str) -> bool:
    return dataclasses.is_dataclass(part) and name in {field.name for field in dataclasses.fields(part)}
