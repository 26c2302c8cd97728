"""One gradient step, and the learning rate as a function of environment steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rlcli.core.schedules import Constant, Linear, Schedule


class OptimizerConfig(Protocol):
    """The fields of an algorithm's config that concern its optimizer."""

    learning_rate: float
    learning_rate_schedule: str
    adam_eps: float
    clip_grad_norm: float | None


class Optimizer:
    """Adam with gradient clipping by global norm and a schedule for the learning rate.

    Args:
        module: Whose parameters it steps.
        config: Learning rate, schedule (constant, or linear to 0 at the end of the run), epsilon, clipping.
        n_steps: Budget of the run, env steps.
    """

    def __init__(self, module: nn.Module, config: OptimizerConfig, n_steps: int) -> None:
        self._parameters = list(module.parameters())
        self._max_norm = config.clip_grad_norm
        self.adam = torch.optim.Adam(self._parameters, lr=config.learning_rate, eps=config.adam_eps, fused=True)
        self._schedule: Schedule = Constant(config.learning_rate)
        if config.learning_rate_schedule == "linear":
            self._schedule = Linear(config.learning_rate, 0.0, 0, n_steps)

    def learning_rate(self, step: int) -> float:
        """The learning rate at an environment step."""
        return self._schedule(step)

    def step(self, loss: Tensor, step: int) -> float:
        """One gradient step on ``loss`` with the learning rate of environment step ``step``.

        Returns:
            The gradient's global norm before clipping.
        """
        self.adam.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
        norm = nn.utils.get_total_norm([p.grad for p in self._parameters if p.grad is not None])
        if self._max_norm is not None and not float(norm) <= self._max_norm:
            # Only then: clip_grad_norm_ would multiply every gradient by 1 in all other steps.
            nn.utils.clip_grads_with_norm_(self._parameters, self._max_norm, norm)
        for group in self.adam.param_groups:
            group["lr"] = self._schedule(step)
        self.adam.step()
        return float(norm)

    def state_dict(self) -> dict[str, Any]:
        """Adam's state."""
        return self.adam.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Adam's moments from a file; the settings (learning rate, epsilon, fused) stay those of this run.

        Args:
            state: As `state_dict` gives it, from any torch and any Adam: of its groups only ``params`` is read, a
                ``step`` may be a number, and what only another Adam has (amsgrad's maximum) is left out.

        Raises:
            ValueError: It belongs to other parameters.
        """
        settings = [{k: v for k, v in group.items() if k != "params"} for group in self.adam.param_groups]
        groups = [
            {**own, "params": list(given["params"])} for own, given in zip(settings, state["param_groups"], strict=True)
        ]
        ids = [i for group in groups for i in group["params"]]
        pairs = zip(ids, self._parameters, strict=True)
        moments = {i: _moments(state["state"][i], parameter) for i, parameter in pairs if i in state["state"]}
        # torch decides by the groups it loads, not by its own, whether `step` goes to the parameters' device
        self.adam.load_state_dict({"state": moments, "param_groups": groups})


class Optimizers:
    """Several optimizers, each of networks that are stepped by themselves, saved together.

    Args:
        named: By the name under which it is saved; the learning rate that is told is the first one's.
    """

    def __init__(self, **named: Optimizer) -> None:
        self._named = named

    def __getitem__(self, name: str) -> Optimizer:
        return self._named[name]

    def learning_rate(self, step: int) -> float:
        """The first one's at an environment step."""
        return next(iter(self._named.values())).learning_rate(step)

    def state_dict(self) -> dict[str, Any]:
        """Adam's state of each."""
        return {name: optimizer.state_dict() for name, optimizer in self._named.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over Adam's moments of each, see `Optimizer.load_state_dict`."""
        for name, optimizer in self._named.items():
            optimizer.load_state_dict(state[name])


def _moments(given: Mapping[str, Any], parameter: Tensor) -> dict[str, Tensor]:
    """A parameter's state, laid out in memory as the parameter is.

    A file holds it in the order of its indices; the fused Adam goes through parameter, gradient and moments in the
    order of their memory, and would mix up the moments of a convolution with its channels last.
    """
    # a copy, for Adam counts in place: the file's tensor may be read again
    moments = {"step": torch.as_tensor(given["step"], dtype=torch.float32).clone()}
    for name in ("exp_avg", "exp_avg_sq"):
        if given[name].shape != parameter.shape:
            raise ValueError(f"{name} has shape {tuple(given[name].shape)}, its parameter {tuple(parameter.shape)}")
        moments[name] = torch.empty_like(parameter.detach()).copy_(given[name])
    return moments
