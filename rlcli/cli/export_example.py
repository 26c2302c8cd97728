"""The text of the example that ``rlcli export`` writes beside a policy: a script that runs without rlcli."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlcli.core.spec import EnvSpec
from rlcli.core.tree import map_tree
from rlcli.envs.config import GymConfig

_SCRIPT = '''"""Acts with {file} beside this script. Needs {needs}, not rlcli. Made by rlcli export."""

from pathlib import Path

{imports}

FILE = Path(__file__).with_name("{file}")
SPEC = {spec}  # of an observation: (dtype, shape)


def batch(obs, spec=SPEC):
    """One observation as a batch of one."""
    if isinstance(spec, dict):
        parts = obs if isinstance(obs, dict) else {{str(i): part for i, part in enumerate(obs)}}
        return {{key: batch(parts[key], inner) for key, inner in spec.items()}}
    return {leaf}


{load}
{loop}
'''

_LOAD = {
    "pt2": "policy = torch.export.load(FILE).module()",
    "onnx": '''def policy(obs):
    """Actions and {scores}; a nested observation goes in flat, as "outer.inner"."""
    feed, todo = {{}}, [("", obs)]
    while todo:
        path, part = todo.pop()
        if isinstance(part, dict):
            todo += [(f"{{path}}.{{key}}" if path else key, inner) for key, inner in part.items()]
        else:
            feed[path or "obs"] = part
    return session.run(["action", "{scores}"], feed)


session = onnxruntime.InferenceSession(str(FILE))''',
}

_GYM = """env = gymnasium.make({id!r}{arguments})
obs, _ = env.reset(seed=0)
score, n_steps, over = 0.0, 0, False
while not over and n_steps < 1000:
    action, {scores} = policy(batch(obs))
    obs, reward, terminated, truncated, _ = env.step(int(action[0]))
    score, n_steps, over = score + float(reward), n_steps + 1, terminated or truncated
print(f"score {{score}} after {{n_steps}} steps")"""

_RANDOM = """

def noise(spec=SPEC):
    \"\"\"Random numbers in the shape of an observation; put your environment's own in their place.\"\"\"
    if isinstance(spec, dict):
        return {{key: noise(inner) for key, inner in spec.items()}}
    return np.random.default_rng(0).integers(0, 2, spec[1])


action, {scores} = policy(batch(noise()))
print(f"action {{int(action[0])}}, {scores} {{{scores}[0].tolist()}}")"""


def example_script(policy: Path, kind: str, score_name: str, env: Any, spec: EnvSpec) -> str:
    """A Python script that loads the policy and steps an environment of gymnasium's, or feeds it noise.

    Args:
        policy: The policy's file.
        kind: pt2 or onnx.
        score_name: What its second output is called.
        env: The environment's config.
        spec: Its spaces.
    """
    is_gym = isinstance(env, GymConfig)
    runtime = {"pt2": "torch", "onnx": "onnxruntime"}[kind]
    packages = ["gymnasium"] * is_gym + ["numpy as np", runtime]
    array = "np.asarray(obs, spec[0]).reshape(1, *spec[1])"
    return _SCRIPT.format(
        file=policy.name,
        needs=", ".join([runtime, "numpy", *["gymnasium"] * is_gym]),
        imports="\n".join(f"import {name}" for name in packages),
        spec=map_tree(lambda leaf: (str(leaf.dtype), leaf.shape), spec.example_obs),
        leaf=f"torch.from_numpy({array})" if kind == "pt2" else array,
        load=_LOAD[kind].format(scores=score_name),
        loop=_gym(env, score_name) if is_gym else _RANDOM.format(scores=score_name),
    )


def _gym(env: GymConfig, score_name: str) -> str:
    limit = {} if env.max_episode_steps is None else {"max_episode_steps": env.max_episode_steps}
    arguments = f", **{ ({**limit, **env.kwargs})!r}" if limit or env.kwargs else ""
    return _GYM.format(id=env.id, arguments=arguments, scores=score_name)
