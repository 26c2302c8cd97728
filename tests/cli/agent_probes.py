"""A small trained run of every algorithm, made once for a session, and environments with actions of many parts."""

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from tests.cli.saved_probes import train
from tests.policy_probes import COMPOSITE


class CompositeEnv(gymnasium.Env):
    """Actions of every kind in one, an image and a category among what is observed; a point for each of 9 steps."""

    observation_space = spaces.Tuple(
        [
            spaces.Box(-np.inf, np.inf, (3,), np.float64),
            spaces.Dict({"kind": spaces.Discrete(4, start=2), "image": spaces.Box(0, 255, (1, 6, 5), np.uint8)}),
        ]
    )
    action_space = spaces.Tuple(
        [COMPOSITE, spaces.Box(-0.1, 0.1, (2,), np.float64), spaces.MultiDiscrete([2, 3], start=[1, -1])]
    )

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._obs(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.t += 1
        return self._obs(), 1.0, self.t == 9, False, {}

    def render(self):
        return np.full((40, 30, 3), 9 * self.t, np.uint8)

    def _obs(self):
        numbers = self.np_random.normal(0, 3, 3)
        image = self.np_random.integers(0, 256, (1, 6, 5), dtype=np.uint8)
        return numbers, {"kind": 2 + self.t % 4, "image": image}


gymnasium.register("Composite-v0", CompositeEnv)

_VALUES = ("replay.size=1_000", "algo.min_steps_learn=40", "algo.batch_size=8", "epsilon.eval=0")
_R2D1 = (
    *_VALUES[1:],
    "replay.size=2_000",
    "algo.head_hidden=[8]",
    "algo.replay_ratio=2",
    "algo.n_step_return=2",
    "replay.burn_in_T=3",
    "replay.train_T=4",
    "replay.state_interval=4",
)
_BOX = ("env=pendulum", "model.mlp_hidden=[16]", *_VALUES[:3], "algo.replay_ratio=2", "algo.random_steps=50")
_SMALL_IMAGE = ("model.conv_kernels=[3]", "model.conv_strides=[1]", "model.conv_channels=[4]", "model.conv_hidden=8")
_MEMORY = ("env=cartpole_masked", "model.mlp_hidden=[8]", "model.recurrent_hidden=8")
AGENTS = {
    "dqn": ("algo=dqn", "env=cartpole", *_VALUES, "model.normalize_obs=true"),
    "cat_dqn": ("algo=cat_dqn", "env=cartpole", *_VALUES),
    "iqn": ("algo=iqn", "env=cartpole", *_VALUES),
    "rainbow": ("algo=rainbow", "env=cartpole", *_VALUES),
    "r2d1": ("algo=r2d1", *_MEMORY, *_R2D1),
    "a2c": ("algo=a2c", "env=cartpole"),
    "ppo_gru": ("algo=ppo", *_MEMORY, "model.recurrent=gru"),
    "ppo_box": ("algo=ppo", "env=pendulum", "model.normalize_obs=true"),
    "ppo_parts": (
        "algo=ppo",
        "env=gym",
        f"env.id={__name__}:Composite-v0",
        *_SMALL_IMAGE,
        "model.recurrent=lstm",
        "model.recurrent_hidden=8",
        "model.normalize_obs=true",
    ),
    "ddpg": ("algo=ddpg", *_BOX),
    "td3": ("algo=td3", *_BOX),
    "sac": ("algo=sac", *_BOX, "model.normalize_obs=true"),
    "sac_v": ("algo=sac_v", *_BOX),
}
"""What trains each kind of agent there is, as small as it goes."""


class Shelf:
    """Runs of `AGENTS`, each made when it is first asked for.

    Args:
        folder: Where they are kept.
    """

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, name):
        made = self.folder / name
        if not made.exists():
            with torch.enable_grad():  # whatever the test that asks does without
                train(made, "n_steps=120", "log_interval_steps=120", "torch_threads=1", *AGENTS[name])
        return made
