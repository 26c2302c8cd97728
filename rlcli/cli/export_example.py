"""The text of the example that ``rlcli export`` writes beside a policy: a script that runs without rlcli."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from rlcli.core.spec import EnvSpec
from rlcli.core.tree import map_tree
from rlcli.envs.config import GymConfig
from rlcli.envs.gym import action_parts
from rlcli.envs.previous import ACTION, OBS, REWARD, PreviousConfig

if TYPE_CHECKING:
    from rlcli.cli.policy import GreedyPolicy

_HEAD = '''"""Acts with {file} beside this script. Needs {needs}, not rlcli. Made by rlcli export."""

from pathlib import Path

{imports}

FILE = Path(__file__).with_name("{file}")
# Of an observation: (dtype, shape, its smallest number)
SPEC = {spec}
# Of an action: one choice or several, their sizes and first numbers; or how many numbers
ACTION = {action}
{state}

def batch(obs, spec=SPEC):
    """One observation as a batch of one."""
    if isinstance(spec, dict):
        parts = obs if isinstance(obs, dict) else {{str(i): part for i, part in enumerate(obs)}}
        return {{key: batch(parts[key], inner) for key, inner in spec.items()}}
    return {leaf}


def own(action, part=ACTION):
    """The action of a batch of one as the environment takes it."""
    if isinstance(part, dict):
        return {{key: own(action[key], inner) for key, inner in part.items()}}
    if isinstance(part, list):
        return tuple(own(action[str(i)], inner) for i, inner in enumerate(part))
    return int(action[0]) if part[0] == "choice" else np.asarray(action[0])

'''

_VECTOR = '''
def vector(action, part=ACTION):
    """An action as it is observed in the next step: choices one-hot, everything one after another."""
    if isinstance(part, dict | list):
        pairs = [(action[key], part[key]) for key in (part if isinstance(part, dict) else range(len(part)))]
        return np.concatenate([vector(*pair) for pair in pairs])
    if part[0] == "numbers":
        return np.array(action, np.float32).reshape(-1)
    return np.concatenate([np.arange(a, a + n) == i for i, n, a in zip(np.ravel(action), *part[1:], strict=True)])

'''

_LOAD = {
    "pt2": """
policy = torch.export.load(FILE).module()""",
    "onnx": '''
def flat(tree, path):
    """Nested dicts as one, the names joined by dots."""
    if not isinstance(tree, dict):
        return {{path or "obs": tree}}
    parts = [flat(inner, f"{{path}}.{{key}}" if path else key) for key, inner in tree.items()]
    return {{key: inner for part in parts for key, inner in part.items()}}


def nested(got, name):
    """The output of that name, or a dict of those that begin with it."""
    below = [path.removeprefix(f"{{name}}.").split(".")[0] for path in got if path.startswith(f"{{name}}.")]
    return got[name] if name in got else {{key: nested(got, f"{{name}}.{{key}}") for key in below}}


def policy(obs{more}):
    """{gives}."""
    feed = {feed}
    names = [output.name for output in session.get_outputs()]
    got = dict(zip(names, session.run(names, feed), strict=True))
    return {returned}


session = onnxruntime.InferenceSession(str(FILE))''',
}

_GAME = """env = gymnasium.make({id!r}{arguments})
obs, _ = env.reset(seed=0)
score, n_steps, over = 0.0, 0, False
{begin}while not over and n_steps < 1000:
    {outputs} = policy(batch({seen}){state})
    taken = own(action)
    obs, reward, terminated, truncated, _ = env.step(taken)
{after}    score, n_steps, over = score + float(reward), n_steps + 1, terminated or truncated
print(f"score {{score}} after {{n_steps}} steps")"""

_BLANK = '''
def blank(spec=SPEC):
    """An observation of the smallest numbers; put your environment's own in its place."""
    if isinstance(spec, dict):
        return {{key: blank(inner) for key, inner in spec.items()}}
    return np.zeros(spec[1]) + spec[2]


{begin}{outputs} = policy(batch(blank()){state})
print(f"action {{own(action)}}")'''


def example_script(file: Path, kind: str, policy: GreedyPolicy, env: Any, spec: EnvSpec) -> str:
    """A Python script that loads the policy and steps an environment of gymnasium's, or feeds it one observation.

    Args:
        file: The policy's.
        kind: pt2 or onnx.
        policy: What was exported.
        env: Config of the environments as the model sees them.
        spec: Its spaces.
    """
    game: Any = env.env if isinstance(env, PreviousConfig) else env
    is_gym = isinstance(game, GymConfig) and not game.id.startswith("rlcli.")
    runtime = {"pt2": "torch", "onnx": "onnxruntime"}[kind]
    packages = ["gymnasium"] * is_gym + ["numpy as np", runtime]
    array = "np.asarray(obs, spec[0]).reshape(1, *spec[1])"
    head = _HEAD.format(
        file=file.name,
        needs=", ".join([runtime, "numpy", *["gymnasium"] * is_gym]),
        imports="\n".join(f"import {name}" for name in packages),
        spec=_observed(spec),
        action=_acted(spec.action_space),
        state=_state(policy, kind),
        leaf=f"torch.from_numpy({array})" if kind == "pt2" else array,
    )
    has_previous = isinstance(env, PreviousConfig)
    loop = _game(game, policy, env) if is_gym else _blank(policy)
    vector = _VECTOR if has_previous and is_gym else ""
    return f"{head}{vector}{_LOAD[kind].format(**_of_onnx(policy))}\n{'' if is_gym else chr(10)}{loop}\n"


def _observed(spec: EnvSpec) -> Any:
    """(dtype, shape, smallest number) of each leaf of an observation."""
    return map_tree(
        lambda leaf, start: (str(leaf.dtype), leaf.shape, start), spec.example_obs, _starts(spec.observation_space)
    )


def _starts(space: Any) -> Any:
    """The first category of each part, 0 for numbers."""
    if isinstance(space, spaces.Dict):
        return {key: _starts(part) for key, part in space.spaces.items()}
    start = getattr(space, "start", 0)
    return start.tolist() if isinstance(start, np.ndarray) else int(start)


def _acted(space: Any) -> Any:
    """The actions as the script knows them: dicts, lists for tuples, and a plain tuple for each part."""
    if isinstance(space, spaces.Dict):
        return {key: _acted(part) for key, part in action_parts(space).items()}
    if isinstance(space, spaces.Tuple):
        return [_acted(part) for part in action_parts(space).values()]
    if isinstance(space, spaces.Discrete):
        return "choice", [int(space.n)], [int(space.start)]
    if isinstance(space, spaces.MultiDiscrete):
        return "choices", space.nvec.ravel().tolist(), space.start.ravel().tolist()
    return "numbers", int(np.prod(space.shape, dtype=np.int64))


def _state(policy: GreedyPolicy, kind: str) -> str:
    if policy.initial_state is None:
        return ""
    zeros = "torch.zeros(1, {})" if kind == "pt2" else "np.zeros((1, {}), np.float32)"
    parts = ", ".join(f'"{key}": {zeros.format(leaf.shape[1])}' for key, leaf in policy.initial_state.items())
    return f"# The recurrent state at an episode's start\nSTATE = {{{parts}}}\n"


def _of_onnx(policy: GreedyPolicy) -> dict[str, str]:
    names = ["next_state" if name == "state" else name for name in policy.output_names]
    got = [f'nested(got, "{name}")' for name in names]
    is_recurrent = policy.initial_state is not None
    return {
        "more": ", state" if is_recurrent else "",
        "gives": ", ".join(names),
        "feed": 'flat(obs, "") | flat(state, "state")' if is_recurrent else 'flat(obs, "")',
        "returned": ", ".join(got),
    }


def _game(game: GymConfig, policy: GreedyPolicy, env: Any) -> str:
    limit = {} if game.max_episode_steps is None else {"max_episode_steps": game.max_episode_steps}
    arguments = f", **{ ({**limit, **game.kwargs})!r}" if limit or game.kwargs else ""
    begin, seen, after = "", "obs", ""
    if isinstance(env, PreviousConfig):
        begin = f'previous, reward = np.zeros(SPEC["{ACTION}"][1]), 0.0\n'
        seen = f'{{"{OBS}": obs, "{ACTION}": previous, "{REWARD}": {"np.sign(reward)" if env.sign else "reward"}}}'
        after = "    previous = vector(taken)\n"
    state = policy.initial_state is not None
    return _GAME.format(
        id=game.id,
        arguments=arguments,
        begin=begin + ("state = STATE\n" if state else ""),
        outputs=", ".join(policy.output_names),
        seen=seen,
        state=", state" if state else "",
        after=after,
    )


def _blank(policy: GreedyPolicy) -> str:
    state = policy.initial_state is not None
    return _BLANK.format(
        begin="state = STATE\n" if state else "",
        outputs=", ".join(policy.output_names),
        state=", state" if state else "",
    )
