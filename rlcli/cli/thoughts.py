"""What an agent thinks of an observation, as rows of a panel: what `rlcli play` shows beside the picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rlcli.agents.deterministic import DeterministicAgent
from rlcli.agents.policy import PolicyAgent
from rlcli.agents.q import QAgent
from rlcli.agents.recurrent_q import RecurrentQAgent
from rlcli.agents.squashed_gaussian import SquashedGaussianAgent
from rlcli.cli.overlay import Bar, Chart, Mark, Row, scaled
from rlcli.core.errors import ConfigError
from rlcli.core.tree import Tree, map_tree, to
from rlcli.envs.gym import action_parts
from rlcli.models.critics import Critic, TwinCritic
from rlcli.models.heads import CategoricalQNetwork
from rlcli.models.normalizer import normalizer_of, without_normalizer
from rlcli.models.quantile import QuantileNetwork

if TYPE_CHECKING:
    from rlcli.cli.saved import LoadedAgent

_MOST_BARS = 20
"""Of one choice; of more the best are shown."""


class Thoughts(Protocol):
    """Looks into one kind of agent."""

    def __call__(self, obs: Tree, state: Tree, action: Any) -> list[Row]:
        """Rows for one observation.

        Args:
            obs: [1, ...] on the CPU.
            state: [1, H] before it; None if there is none.
            action: What the agent does, as the environment takes it; None where the episode is over.
        """


def thoughts_of(agent: LoadedAgent, names: Sequence[str]) -> Thoughts:
    """What looks into an agent.

    Args:
        agent: With its weights.
        names: Of the actions, where the environment has some.

    Raises:
        ConfigError: An agent of another kind than those of rlcli's algorithms.
    """
    inner: Any = agent.agent
    space: Any = agent.spec.action_space
    if isinstance(inner, QAgent | RecurrentQAgent):
        return ValueThoughts(inner, space, names)
    if isinstance(inner, PolicyAgent):
        return PolicyThoughts(inner, space, names)
    if isinstance(inner, DeterministicAgent | SquashedGaussianAgent):
        return ActorThoughts(inner, space, _critic(agent))
    raise ConfigError(f"nothing is known of what a {type(inner).__name__} thinks")


class ValueThoughts:
    """Action values; below them the distribution of the return after the chosen action, where the network has one.

    Args:
        agent: Its network's values decide.
        space: The environment's actions.
        names: Of the actions, if there are as many.
    """

    def __init__(self, agent: QAgent | RecurrentQAgent, space: spaces.Discrete, names: Sequence[str]) -> None:
        self._agent, self._space = agent, space
        self._names = _names(names, int(space.n))

    @torch.inference_mode()
    def __call__(self, obs: Tree, state: Tree, action: Any) -> list[Row]:
        """See `Thoughts`; where the episode is over the chart is that of the best action."""
        network = self._agent.model
        obs = to(obs, _device(network))
        chart: list[list[float]] = []
        if isinstance(self._agent, RecurrentQAgent):
            values = self._agent.model.unroll(map_tree(lambda leaf: leaf[None], obs), state)[0][0, 0]
        elif isinstance(network, CategoricalQNetwork):
            distributions = network.logits(obs)[0].softmax(dim=-1)
            values, chart = distributions @ network.atoms, distributions.tolist()
        elif isinstance(network, QuantileNetwork):
            quantiles = network.quantiles(obs, network.midpoints[None])[0].T
            values, chart = quantiles.mean(dim=1), quantiles.tolist()
        else:
            values = network(obs)[0]
        chosen = None if action is None else int(action) - int(self._space.start)
        rows = _bars("action values", self._names, values.tolist(), scaled(values.tolist()), chosen)
        if chart:
            shown = int(values.argmax()) if chosen is None else chosen
            rows += self._return(chart[shown], self._names[shown])
        return rows

    def _return(self, numbers: list[float], name: str) -> list[Row]:
        """The chart of one action: probabilities of returns, or returns at probabilities."""
        network = self._agent.model
        if isinstance(network, CategoricalQNetwork):
            highest = max(numbers)
            first, last = (f"{network.atoms[i].item():.3g}" for i in (0, -1))
            return [f"return after {name}:", Chart([p / highest for p in numbers], first, last)]
        low, high = min(numbers), max(numbers)
        return [
            f"quantiles after {name}:",
            Chart([0.1 + 0.9 * x for x in scaled(numbers)], f"{low:.4g}", f"{high:.4g}"),
        ]


class PolicyThoughts:
    """Probabilities of choices, mean and deviation of numbers, and the state's value.

    Args:
        agent: Its network has the parameters.
        space: The environment's actions.
        names: Of the actions, where the space is one choice of as many.
    """

    def __init__(self, agent: PolicyAgent, space: Any, names: Sequence[str]) -> None:
        self._agent, self._space, self._action_names = agent, space, names

    @torch.inference_mode()
    def __call__(self, obs: Tree, state: Tree, action: Any) -> list[Row]:
        """See `Thoughts`."""
        device = _device(self._agent.model)
        obs = map_tree(lambda leaf: leaf[None], to(obs, device))
        params, value, _ = self._agent.unroll(obs, state, torch.zeros(1, 1, dtype=torch.bool, device=device))
        distribution = self._agent.distribution
        outputs = iter(params[0, 0, : distribution.n_outputs].tolist())
        constants = iter(params[0, 0, distribution.n_outputs :].tolist())
        # deviations stand behind the means where they hang on the observation, else behind everything
        log_stds = constants if distribution.n_constants else outputs
        return [*self._part(self._space, "", action, outputs, log_stds), f"state value {value.item():.4g}"]

    def _part(
        self, space: Any, path: str, action: Any, outputs: Iterator[float], log_stds: Iterator[float]
    ) -> Iterator[Row]:
        """Rows of one part of the action; takes its parameters, which stand in the order of the parts."""
        if isinstance(space, spaces.Dict | spaces.Tuple):
            for i, (key, part) in enumerate(action_parts(space).items()):
                of_part = None if action is None else action[i if isinstance(space, spaces.Tuple) else key]
                yield from self._part(part, f"{path}.{key}" if path else key, of_part, outputs, log_stds)
        elif isinstance(space, spaces.Box):
            n = int(np.prod(space.shape, dtype=np.int64))
            means = [next(outputs) for _ in range(n)]
            deviations = np.exp([next(log_stds) for _ in range(n)])
            for i, (mean, deviation) in enumerate(zip(means, deviations, strict=True)):
                bounds = (float(space.low.flat[i]), float(space.high.flat[i]))
                called = f"{_called(path or 'action', i, n)} {mean:.3g} +- {deviation:.3g}"
                yield _mark(called, mean, (mean - deviation, mean + deviation), bounds)
        else:
            sizes, starts = _choices(space)
            taken = [None] * len(sizes) if action is None else (np.ravel(action) - starts).tolist()
            for i, (n, chosen) in enumerate(zip(sizes, taken, strict=True)):
                shares = _softmax([next(outputs) for _ in range(n)])
                called = _called(path, i, len(sizes))
                title = f"{called} probabilities" if called else "action probabilities"
                numbers = [str(starts[i] + k) for k in range(n)]
                names = _names(self._action_names, n) if space is self._space and len(sizes) == 1 else numbers
                yield from _bars(title, names, shares, shares, chosen)


class ActorThoughts:
    """The action between its bounds, SAC's deviation around it, and what the critics say of it.

    Args:
        agent: DDPG's, TD3's or SAC's.
        space: The environment's actions.
        critic: On the device of the agent; None if none was saved.
    """

    def __init__(
        self,
        agent: DeterministicAgent | SquashedGaussianAgent,
        space: spaces.Box,
        critic: Critic | TwinCritic | None,
    ) -> None:
        self._agent, self._space, self._critic = agent, space, critic

    @torch.inference_mode()
    def __call__(self, obs: Tree, state: Tree, action: Any) -> list[Row]:
        """See `Thoughts`; the marks are the best action's, whatever was done."""
        network, scale = self._agent.model, self._agent.scale
        obs = to(obs, _device(network))
        if isinstance(self._agent, SquashedGaussianAgent):
            mean, log_std = (output.cpu().double() for output in network(obs))
            units = [torch.tanh(x) for x in (mean, mean - log_std.exp(), mean + log_std.exp())]
        else:
            units = [network(obs).cpu().double()]
        numbers = [scale.to_env(unit).flatten().tolist() for unit in units]
        rows: list[Row] = []
        for i, best in enumerate(numbers[0]):
            bounds = (float(self._space.low.flat[i]), float(self._space.high.flat[i]))
            band = (numbers[1][i], numbers[2][i]) if len(numbers) > 1 else None
            around = f" ({band[0]:.3g} to {band[1]:.3g})" if band else ""
            rows.append(_mark(f"{_called('action', i, len(numbers[0]))} {best:.3g}{around}", best, band, bounds))
        return [*rows, *self._judgement(obs, units[0].float())]

    def _judgement(self, obs: Tree, unit: Tensor) -> list[Row]:
        if self._critic is None:
            return []
        normalizer = normalizer_of(self._agent.model)
        seen = obs if normalizer is None else normalizer(obs)
        values = self._critic(seen, unit.to(_device(self._critic)))
        if isinstance(values, Tensor):
            return [f"critic {values.item():.4g}"]
        return [f"critic {i} {value.item():.4g}" for i, value in enumerate(values, 1)]


def _critic(agent: LoadedAgent) -> Critic | TwinCritic | None:
    """The critic that was saved beside the actor, without what normalises its observations; None if there is none."""
    inner, state = agent.agent, agent.learner_state.get("critic")
    assert isinstance(inner, DeterministicAgent | SquashedGaussianAgent)
    if not isinstance(state, dict):
        return None
    kind = TwinCritic if any(name.startswith("q1.") for name in state) else Critic
    with torch.random.fork_rng(devices=[]):
        critic = kind(without_normalizer(agent.config.model), agent.spec.observation_space, inner.scale.n_dims)
    critic.load_state_dict(state)
    return critic.to(_device(inner.model))


def _bars(
    title: str, names: Sequence[str], numbers: Sequence[float], lengths: Sequence[float], chosen: int | None
) -> list[Row]:
    """A title and a bar for each of the numbers, or for the highest of them."""
    best = sorted(sorted(range(len(numbers)), key=lambda i: -numbers[i])[:_MOST_BARS])
    left_out = [f"{len(numbers) - len(best)} lower ones"] if len(best) < len(numbers) else []
    return [title, *(Bar(names[i], f"{numbers[i]:.3g}", lengths[i], i == chosen) for i in best), *left_out]


def _mark(text: str, mean: float, band: tuple[float, float] | None, bounds: tuple[float, float]) -> Mark:
    """A number between its bounds; without bounds, between three deviations to each side of 0, at least 1."""
    reach = max(1.0, 3 * abs(band[1] - mean)) if band else 1.0
    low, high = bounds if np.isfinite(bounds).all() else (-reach, reach)
    width = high - low or 1.0
    places = None if band is None else ((band[0] - low) / width, (band[1] - low) / width)
    return Mark(text, (mean - low) / width, places)


def _called(path: str, i: int, n: int) -> str:
    return path if n == 1 else f"{path or 'action'}[{i}]"


def _choices(space: Any) -> tuple[list[int], Any]:
    """Sizes of the choices of a Discrete, MultiDiscrete or MultiBinary space, and the numbers of their first."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)], np.array([space.start])
    if isinstance(space, spaces.MultiDiscrete):
        return space.nvec.ravel().tolist(), space.start.ravel()
    n = int(np.prod(space.shape, dtype=np.int64))
    return [2] * n, np.zeros(n, np.int64)


def _names(names: Sequence[str], n: int) -> list[str]:
    return list(names) if len(names) == n else [f"action {i}" for i in range(n)]


def _softmax(logits: Sequence[float]) -> list[float]:
    shares: list[float] = torch.tensor(logits).softmax(dim=0).tolist()
    return shares


def _device(module: torch.nn.Module) -> torch.device:
    return next(module.parameters()).device
