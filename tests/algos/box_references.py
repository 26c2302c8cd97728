"""Targets and losses of DDPG, TD3 and SAC written out slowly in numpy, one transition at a time, in float64."""

import math

import numpy as np
import torch

from rlcli.algos.actor_critic import Transitions
from rlcli.models.trunk import VectorInput


def layer(state, name, x):
    return state[f"{name}.weight"] @ x + state[f"{name}.bias"]


def relu(x):
    return np.maximum(x, 0.0)


def features(state, x, prefix=""):
    return relu(layer(state, f"{prefix}trunk.mlp.0", x))


def critic(state, obs, action, prefix=""):
    return layer(state, f"{prefix}head.0", features(state, np.concatenate([obs, action]), prefix))[0]


def actor(state, obs):
    return np.tanh(layer(state, "mean", features(state, obs)))


def value(state, obs):
    return layer(state, "value", features(state, obs))[0]


def gaussian(state, obs):
    """Mean and log deviation."""
    x = features(state, obs)
    return layer(state, "mean", x), np.clip(layer(state, "log_std", x), -20.0, 2.0)


def draw(state, obs, z):
    """Action and its log density, which is the normal's divided by the slopes of tanh."""
    mean, log_std = gaussian(state, obs)
    std = np.exp(log_std)
    u = mean + std * z
    density = np.exp(-0.5 * ((u - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))
    return np.tanh(u), np.log(density * np.cosh(u) ** 2).sum()  # the slope of tanh is 1 / cosh^2


def numbers(module):
    """A network's weights as numpy arrays."""
    return {name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}


def rows(batch):
    """One tuple of numpy arrays for each transition: obs, action, return, discount, next_obs."""
    leaves = (batch.obs, batch.action, batch.return_, batch.discount_n, batch.next_obs)
    return list(zip(*(leaf.numpy() for leaf in leaves), strict=True))


def in_float64(algo, n=64, shake=0.3):
    """The rule with shaken weights, so that no two networks are equal, and a batch of its replay, in float64."""
    rule = algo.rule
    torch.manual_seed(1)
    for module in {**rule.networks, "actor": rule.actor}.values():
        module.double()
        for part in module.modules():
            if isinstance(part, VectorInput):
                part.forward = lambda x: x  # its own would round to float32
        with torch.no_grad():
            for p in module.parameters():
                p.add_(shake * torch.randn_like(p))
    batch = algo.prepare(algo.replay.sample(n))
    doubles = {name: getattr(batch, name).double() for name in Transitions.__slots__}
    batch = Transitions(**doubles)
    for critic_ in (rule.networks["critic"], rule.networks.get("critic_target")):
        if hasattr(critic_, "q2"):
            _level(critic_, batch)
    return rule, batch


@torch.no_grad()
def _level(twins, batch):
    """Let each of two critics be the smaller one in half of the transitions."""
    q1, q2 = twins(batch.obs, batch.action)
    twins.q2.head[0].bias += (q1 - q2).median()


def next_normals(rule, like):
    """The normals that the rule will draw next; drawn from a copy of its stream."""
    generator = torch.Generator()
    generator.set_state(rule._draws.state())
    return torch.randn(like.shape, generator=generator).double().numpy()
