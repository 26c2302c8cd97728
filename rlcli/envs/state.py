"""The whole state of an environment as a plain tree, and back: exactly, or not at all.

`capture` walks the objects that an environment reaches through its attributes, its wrappers' included; `restore` puts
them into another instance that was built in the same way. No pickle: Atari, MuJoCo and every other environment with
gymnasium's EzPickle come out of one as new ones, and unpickling runs what the file says.

What is not reached is not seen: module globals, class attributes, the global random streams of numpy and `random`,
other processes. `rlcli.envs.state_trial.trial` therefore tries a config's environments before anybody relies on it.
"""

from __future__ import annotations

from typing import Any

import gymnasium

from rlcli.core.errors import InexactError
from rlcli.envs.state_kinds import KINDS
from rlcli.envs.state_names import NOTHING, label, wording

FORMAT = 1
ATOMS = frozenset({type(None), bool, int, float, str, bytes})
"""Types whose values stand for themselves; a subclass, such as an IntEnum or numpy's float64, does not."""


def capture(env: gymnasium.Env[Any, Any]) -> dict[str, Any]:
    """All that ``env``, its wrappers included, needs to go on as it would; a copy.

    One thing changes in ``env``: its sets are filled anew, so that their order is one that can be put back.

    Returns:
        A plain tree: ``objects``, one record each, and ``root``, the number of the record of ``env``. In a record a
        list of one number, [n], means the object of record n, so what is shared stays shared.

    Raises:
        InexactError: Something cannot be saved; names its place and type.
    """
    saver = Saver()
    try:
        root = saver.value(env, type(env).__name__)
    except RecursionError:
        raise InexactError(f"{type(env).__name__}: its objects are nested too deeply") from None
    return {"format": FORMAT, "root": root, "objects": saver.records}


def restore(env: gymnasium.Env[Any, Any], tree: dict[str, Any]) -> None:
    """Make ``env`` go on as the captured one would have.

    Environments, emulators, simulators and spaces are filled in place; all else is made anew, of classes that ``env``
    uses already or that its own packages have loaded, without calling their constructors. Nothing is imported.

    Args:
        env: Built as the captured one was, and reset once.
        tree: What `capture` gave.

    Raises:
        InexactError: It cannot be made the same; it is then of no further use.
    """
    if tree.get("format") != FORMAT:
        raise InexactError(f"the env's state has format {tree.get('format')}, this rlcli reads {FORMAT}")
    loader = Loader(tree["objects"], own_packages(env))
    (number,) = tree["root"]
    saved = loader.records[number].get("class")
    if saved != label(env):
        raise InexactError(f"the state is one of {saved}, not of {label(env)}")
    name = type(env).__name__
    try:
        loader.value(tree["root"], env, name)
    except RecursionError:
        raise InexactError(f"{name}: its objects are nested too deeply") from None


def own_packages(env: gymnasium.Env[Any, Any]) -> frozenset[str]:
    """Top-level packages of the classes of ``env`` and of what it wraps, their base classes' included."""
    found, layer = set(), env
    while True:
        found |= {cls.__module__.partition(".")[0] for cls in type(layer).__mro__}
        if not isinstance(layer, gymnasium.Wrapper):
            return frozenset(found - {"builtins", "typing", "abc"})
        layer = layer.env


class Saver:
    """Gives each object that it meets a number and a record."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}
        self._met: list[Any] = []  # keeps all alive, for as long as their ids count

    def value(self, value: Any, path: str) -> Any:
        """A value as it stands in a record: itself, or [number] of a record of its own.

        Args:
            value: Anything.
            path: Where it was found, for the error.

        Raises:
            InexactError: It cannot be saved.
        """
        if type(value) in ATOMS:
            return value
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self.records)
            self._met.append(value)
            self.records.append({})  # so that a cycle finds its number
            name, kind = next(((name, kind) for name, kind in KINDS.items() if kind.holds(value)), ("", None))
            if kind is None:
                raise InexactError(f"{path} is {wording(value)}, which cannot be saved")
            here = type(value).__name__ if isinstance(value, gymnasium.Env) else path
            self.records[number] = {"kind": name, **kind.save(value, self, here)}
        return [number]

    def dict_of(self, values: dict[str, Any], path: str) -> dict[str, Any]:
        """Values by name."""
        return {name: self.value(value, f"{path}.{name}") for name, value in values.items()}

    def list_of(self, values: Any, path: str) -> list[Any]:
        """Values in order."""
        return [self.value(value, f"{path}[{i}]") for i, value in enumerate(values)]


class Loader:
    """Makes the objects of the records, each once.

    Args:
        records: ``objects`` of `capture`.
        packages: Top-level packages whose classes and functions may be looked up.
    """

    def __init__(self, records: list[dict[str, Any]], packages: frozenset[str]) -> None:
        self.records, self.packages = records, packages
        self._made: dict[int, Any] = {}
        self._busy: set[int] = set()

    def value(self, saved: Any, live: Any, path: str) -> Any:
        """The value that ``saved`` stands for.

        Args:
            saved: What `Saver.value` gave.
            live: What is at this place now, NOTHING if nothing is.
            path: This place, for the error.

        Raises:
            InexactError: It cannot be made.
        """
        if not isinstance(saved, list):
            return saved
        (number,) = saved
        if number in self._made:
            return self._made[number]
        if number in self._busy:
            raise InexactError(f"{path} holds itself, which cannot be put back")
        self._busy.add(number)
        record = self.records[number]
        made = KINDS[record["kind"]].load(record, live, self, number, path)
        self._made[number] = made
        self._busy.discard(number)
        return made

    def is_made(self, number: int) -> bool:
        """Whether the object of a record is there, perhaps not filled yet."""
        return number in self._made

    def note(self, number: int, made: Any) -> None:
        """Tell the object of a record before it is filled, so that what it holds may refer to it."""
        self._made[number] = made

    def list_of(self, saved: list[Any], live: Any, path: str) -> list[Any]:
        """Values in order, with those of ``live`` at the same places."""
        now = list(live) if live is not NOTHING else []
        return [self.value(value, now[i] if i < len(now) else NOTHING, f"{path}[{i}]") for i, value in enumerate(saved)]
