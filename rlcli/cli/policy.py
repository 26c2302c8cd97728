"""The greedy policy of a saved agent as one module, from raw observations to the environment's own actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlcli.agents.deterministic import DeterministicAgent
from rlcli.agents.policy import PolicyAgent
from rlcli.agents.q import QAgent
from rlcli.agents.recurrent_q import RecurrentQAgent
from rlcli.agents.squashed_gaussian import SquashedGaussianAgent
from rlcli.core.errors import ConfigError
from rlcli.core.tree import Tree, leaves, map_tree
from rlcli.envs.gym import action_parts
from rlcli.models.action_distributions import Categorical

if TYPE_CHECKING:
    from rlcli.core.protocols import Agent
    from rlcli.core.spec import EnvSpec


class Choice(NamedTuple):
    """What an agent does on N observations."""

    action: Tree
    """[N, ...] as agents give it: indices from 0."""
    scores: Tensor | None
    """[N, n_actions], None where the actions cannot be counted."""
    state: Tree
    """[N, H] recurrent state after the step, None if there is none."""


class ByValues(nn.Module):
    """The action of the highest value, the first of equal ones; noisy networks on their mean weights.

    Args:
        network: Observation to action values, or with ``unroll`` a recurrent one.
        is_recurrent: Whether there is a state.
    """

    scores = "values"

    def __init__(self, network: nn.Module, is_recurrent: bool) -> None:
        super().__init__()
        self.network, self._is_recurrent = network, is_recurrent

    def forward(self, obs: Tree, state: Tree) -> Choice:
        """Of observations [N, ...]."""
        values: Tensor
        if self._is_recurrent:
            unrolled, state = self.network.unroll(_one_row(obs), state)  # type: ignore[operator]  # a module's method
            values = unrolled[0]
        else:
            values = self.network(obs)
        return Choice(values.argmax(dim=-1), values, state)


class ByDistribution(nn.Module):
    """The likeliest action of a policy.

    Args:
        agent: With its network and distribution.
    """

    def __init__(self, agent: PolicyAgent) -> None:
        super().__init__()
        self.network, self._is_recurrent = agent.model, agent.is_recurrent
        self._distribution = agent.distribution
        self.scores = "probabilities" if isinstance(agent.distribution, Categorical) else None

    def forward(self, obs: Tree, state: Tree) -> Choice:
        """Of observations [N, ...]."""
        params: Tensor
        if self._is_recurrent:
            unrolled, _, state = self.network.unroll(_one_row(obs), state)  # type: ignore[operator]  # as above
            params = unrolled[0]
        else:
            params = self.network(obs)[0]
        probabilities = params.softmax(dim=-1) if self.scores else None
        return Choice(self._distribution.mode(params), probabilities, state)


class ByActor(nn.Module):
    """The action of DDPG and TD3, or tanh of SAC's mean, in the environment's units.

    Args:
        agent: With its actor and the action's scale.
    """

    scores = None

    def __init__(self, agent: DeterministicAgent | SquashedGaussianAgent) -> None:
        super().__init__()
        self.network, self._scale = agent.model, agent.scale
        self._is_squashed = isinstance(agent, SquashedGaussianAgent)

    def forward(self, obs: Tree, state: Tree) -> Choice:
        """Of observations [N, ...]."""
        output = self.network(obs)
        # in the precision in which the agent acts
        unit = torch.tanh(output[0].double()) if self._is_squashed else output.double()
        return Choice(self._scale.to_env(unit), None, state)


class OwnAction(nn.Module):
    """Turns an agent's actions [N, ...] into the environment's: its numbering, bounds and dtypes.

    Args:
        space: The environment's actions.

    Raises:
        ConfigError: Torch knows no such dtype.
    """

    start: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, space: Any) -> None:
        super().__init__()
        self.parts = nn.ModuleDict()
        # a part may be called as a method of ModuleDict is: keys of its own
        self._names = list(action_parts(space)) if isinstance(space, spaces.Dict | spaces.Tuple) else []
        if self._names:
            self.parts.update({f"part {i}": OwnAction(part) for i, part in enumerate(action_parts(space).values())})
            return
        self._is_box = isinstance(space, spaces.Box)
        if self._is_box:
            self.register_buffer("low", _tensor(space.low), persistent=False)
            self.register_buffer("high", _tensor(space.high), persistent=False)
        else:
            start = np.asarray(getattr(space, "start", 0)).astype(space.dtype)
            self.register_buffer("start", _tensor(start), persistent=False)

    def forward(self, action: Tree) -> Tree:
        """A dict for Dict and Tuple spaces, the latter's keys are "0", "1" ..."""
        if self._names:
            return {name: self.parts[f"part {i}"](action[name]) for i, name in enumerate(self._names)}
        if self._is_box:
            return torch.minimum(torch.maximum(action.to(self.low.dtype), self.low), self.high)
        return action.to(self.start.dtype) + self.start


class GreedyPolicy(nn.Module):
    """The agent's best action, without any random ones; shares the agent's weights.

    Args:
        chooser: Gives a `Choice`; ``scores`` says what its scores are, None where it has none.
        own: To the environment's actions.
        state: [1, H] the recurrent state at an episode's start, None if there is none.
    """

    def __init__(self, chooser: ByValues | ByDistribution | ByActor, own: OwnAction, state: Tree) -> None:
        super().__init__()
        self._chooser, self._own = chooser, own
        self.initial_state = state

    @property
    def output_names(self) -> tuple[str, ...]:
        """What `forward` gives: action; values or probabilities if any; state if there is one."""
        scores = self._chooser.scores
        return ("action", *([scores] if scores else []), *(["state"] if self.initial_state is not None else []))

    def forward(self, obs: Tree, state: Tree = None) -> Any:
        """A tuple of the outputs that `output_names` names; the action itself where there is nothing else.

        Args:
            obs: Raw observations [N, ...].
            state: [N, H] of a recurrent agent.

        Returns:
            Actions [N, ...] as the environment takes them, scores [N, n_actions], state [N, H] after the step.
        """
        for path, leaf in leaves(state):  # said once, lest torch.export guards the sizes of each by itself, against 1
            is_same = leaf.shape[0] == next(leaves(obs))[1].shape[0]
            torch._check(is_same, lambda path=path: f"state.{path}: as many as observations")  # type: ignore[no-untyped-call]
        choice: Choice = self._chooser(obs, state)
        everything = (self._own(choice.action), choice.scores, choice.state)
        outputs = tuple(output for output in everything if output is not None)
        return outputs[0] if len(outputs) == 1 else outputs


def greedy_policy(agent: Agent, spec: EnvSpec) -> GreedyPolicy:
    """The policy of an agent, as it acts in evaluation with epsilon 0.

    Raises:
        ConfigError: An agent of another kind than those of rlcli's algorithms.
    """
    chooser: ByValues | ByDistribution | ByActor
    if isinstance(agent, QAgent | RecurrentQAgent):
        chooser = ByValues(agent.model, isinstance(agent, RecurrentQAgent))
    elif isinstance(agent, PolicyAgent):
        chooser = ByDistribution(agent)
    elif isinstance(agent, DeterministicAgent | SquashedGaussianAgent):
        chooser = ByActor(agent)
    else:
        raise ConfigError(f"algo: nothing is known of how a {type(agent).__name__} chooses its best action")
    return GreedyPolicy(chooser, OwnAction(spec.action_space), agent.initial_state(1))


def _one_row(obs: Tree) -> Tree:
    return map_tree(lambda leaf: leaf[None], obs)


def _tensor(array: Any) -> Tensor:
    try:
        return torch.from_numpy(np.array(array))
    except TypeError as error:
        raise ConfigError(f"env: torch has no numbers of the actions' dtype {array.dtype}") from error
