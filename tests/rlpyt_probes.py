"""rlpyt's Atari DQN network as it names its layers, written down once more, and the files that its runs leave."""

import copy
import math

import torch
from torch import nn


class Wrapped(nn.Module):
    """rlpyt puts each list of layers into a module with one attribute."""

    def __init__(self, name, *layers):
        super().__init__()
        setattr(self, name, nn.Sequential(*layers))


class DuelingHead(nn.Module):
    def __init__(self, n_inputs, hidden, n_actions):
        super().__init__()
        self.advantage_hidden = Wrapped("model", nn.Linear(n_inputs, hidden), nn.ReLU())
        self.advantage_out = nn.Linear(hidden, n_actions, bias=False)
        self.advantage_bias = nn.Parameter(torch.zeros(1))
        self.value = Wrapped("model", nn.Linear(n_inputs, hidden), nn.ReLU(), nn.Linear(hidden, 1))


class RlpytNetwork(nn.Module):
    """Uint8 [N, C, H, W] to action values [N, A], as rlpyt 0.1.2 does it."""

    def __init__(self, shape, n_actions, *, channels=(32, 64, 64), hidden=16, dueling=False, kernels=(8, 4, 3)):
        super().__init__()
        sizes = zip((shape[0], *channels), channels, kernels, (4, 2, 1), (0, 1, 1), strict=False)
        layers = [layer for size in sizes for layer in (nn.Conv2d(*size), nn.ReLU())]
        self.conv = Wrapped("conv", *layers)
        n_inputs = self.conv.conv(torch.zeros(1, *shape)).numel()
        if dueling:
            self.head = DuelingHead(n_inputs, hidden, n_actions)
        else:
            self.head = Wrapped("model", nn.Linear(n_inputs, hidden), nn.ReLU(), nn.Linear(hidden, n_actions))
        self.dueling = dueling

    def forward(self, image):
        features = self.conv.conv(image.float() / 255).flatten(1)
        if not self.dueling:
            return self.head.model(features)
        half = math.sqrt(0.5)
        features = features * half + features.detach() * (1 - half)  # rlpyt's scale_grad, another way
        advantage = self.head.advantage_out(self.head.advantage_hidden.model(features)) + self.head.advantage_bias
        return self.head.value.model(features) + advantage - advantage.mean(-1, keepdim=True)


def loss(q):
    """Any loss in which every action counts another weight."""
    return (q * torch.arange(1.0, q.shape[1] + 1)).pow(2).mean()


class RlpytRun:
    """A network, another as its target, and an Adam that has taken some steps."""

    def __init__(self, shape=(4, 104, 80), n_actions=6, *, n_updates=2, **sizes):
        torch.manual_seed(3)
        self.target = RlpytNetwork(shape, n_actions, **sizes)
        self.model = copy.deepcopy(self.target)
        self.adam = torch.optim.Adam(self.model.parameters(), lr=1e-3, eps=1e-4)
        self.obs = torch.randint(0, 256, (2, *shape), dtype=torch.uint8)
        for _ in range(n_updates):
            self.step()

    def step(self):
        self.adam.zero_grad()
        loss(self.model(self.obs)).backward()
        self.adam.step()

    def content(self):
        return {
            "itr": 7,
            "cum_steps": 40,
            "agent_state_dict": {"model": self.model.state_dict(), "target": self.target.state_dict()},
            "optimizer_state_dict": self.adam.state_dict(),
        }

    def save(self, path, **how):
        torch.save(self.content(), path, **how)
        return path
