"""Ways into a record and back for what keeps its state outside attributes: arrays, random streams, simulators."""

from __future__ import annotations

import random
import sys
import zlib
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import numpy.typing as npt

from rlcli.core.errors import InexactError
from rlcli.envs import ale_state
from rlcli.envs.state_names import NOTHING, wording

if TYPE_CHECKING:
    from rlcli.envs.state import Loader, Saver
    from rlcli.envs.state_kinds import Kind

Record = dict[str, Any]
BIT_GENERATORS: dict[str, Any] = {
    cls.__name__: cls
    for cls in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}


class _Array:
    """numpy arrays. Views of one array stay views of one; each array that owns its memory is made anew.

    The memory of a simulator, of which an array may be a window, is its adapter's business; the array stays.
    """

    def holds(self, value: Any) -> bool:
        return type(value) is np.ndarray

    def save(self, value: npt.NDArray[Any], saver: Saver, path: str) -> Record:
        if value.dtype.hasobject:
            if value.dtype != object or value.base is not None:
                raise InexactError(f"{path} is an array of objects that shares its memory, which cannot be saved")
            return {"objects": saver.list_of(value.ravel(), path), "shape": list(value.shape)}
        if _is_window(value):
            return {"window": value.copy()}
        order = _order(value)
        layout = {"order": order, "read_only": not value.flags.writeable}
        if not isinstance(value.base, np.ndarray) or not value.size:
            return {"owned": value.transpose(order).copy(), **layout}
        return {
            "view_of": saver.value(value.base, f"{path}.base"),
            "dtype": np.empty(0, value.dtype),
            "shape": list(value.shape),
            "strides": list(value.strides),
            "offset": _address(value) - _address(value.base),
            **layout,
        }

    def load(self, record: Record, live: Any, loader: Loader, number: int, path: str) -> Any:
        if "window" in record:
            return self._keep(record["window"], live, path)
        if "objects" in record:
            made = np.empty(len(record["objects"]), object)
            loader.note(number, made := made.reshape(record["shape"]).copy())
            now = live.ravel() if isinstance(live, np.ndarray) and live.dtype == object else NOTHING
            made.ravel()[:] = loader.list_of(record["objects"], now, path)
            return made
        if "owned" in record:
            made = np.array(record["owned"], order="C").transpose(np.argsort(record["order"]))
            made = made.copy(order="K")  # owns its memory
        else:
            base = loader.value(record["view_of"], getattr(live, "base", NOTHING), f"{path}.base")
            dtype = record["dtype"].dtype
            memory = base.transpose(_order(base))
            made = np.ndarray(record["shape"], dtype, memory, record["offset"], record["strides"])
        made.flags.writeable = made.flags.writeable and not record["read_only"]
        return made

    def _keep(self, saved: npt.NDArray[Any], live: Any, path: str) -> npt.NDArray[Any]:
        if not isinstance(live, np.ndarray) or not _is_window(live) or live.shape != saved.shape:
            raise InexactError(f"{path} is a window on memory that numpy does not own, it cannot be made anew")
        if live.flags.writeable:
            live[...] = saved
        return live


def _is_window(value: npt.NDArray[Any]) -> bool:
    """Whether an array shows memory of something else than numpy; a copy that ale_py has made is no window."""
    base: Any = value
    while isinstance(base, np.ndarray):
        base = base.base
    is_copy = isinstance(base, memoryview) and type(base.obj).__name__ == "nb_ndarray"
    return base is not None and not isinstance(base, bytes) and not is_copy


def _order(value: npt.NDArray[Any]) -> list[int]:
    """The axes from the outermost in memory to the innermost."""
    return sorted(range(value.ndim), key=lambda axis: -value.strides[axis])


def _address(value: npt.NDArray[Any]) -> int:
    return int(value.__array_interface__["data"][0])


class _Scalar:
    """numpy's numbers."""

    def holds(self, value: Any) -> bool:
        return isinstance(value, np.generic) and not value.dtype.hasobject

    def save(self, value: Any, saver: Saver, path: str) -> Record:
        return {"value": np.array(value)}

    def load(self, record: Record, live: Any, loader: Loader, number: int, path: str) -> Any:
        return record["value"][()]


class _SeedSequence:
    """numpy's SeedSequence: what a generator spawns others from."""

    def holds(self, value: Any) -> bool:
        return type(value) is np.random.SeedSequence

    def save(self, value: Any, saver: Saver, path: str) -> Record:
        return {"state": {name: _plain(part) for name, part in value.state.items()}}

    def load(self, record: Record, live: Any, loader: Loader, number: int, path: str) -> Any:
        state = record["state"]
        return np.random.SeedSequence(**{**state, "spawn_key": tuple(state["spawn_key"])})


class _BitGenerator:
    """What the numbers of a numpy Generator come from."""

    def holds(self, value: Any) -> bool:
        return type(value) in BIT_GENERATORS.values()

    def save(self, value: Any, saver: Saver, path: str) -> Record:
        seeds = value.seed_seq
        return {
            "name": type(value).__name__,
            "state": _plain(value.state),
            "seeds": saver.value(seeds, f"{path}.seed_seq") if self._can_spawn(seeds) else None,
        }

    def load(self, record: Record, live: Any, loader: Loader, number: int, path: str) -> Any:
        seeds = loader.value(record["seeds"], NOTHING, path)
        made = BIT_GENERATORS[record["name"]](seeds)
        made.state = record["state"]
        return made

    def _can_spawn(self, seeds: Any) -> bool:
        return type(seeds) is np.random.SeedSequence


class _Generator:
    """numpy's Generator."""

    def holds(self, value: Any) -> bool:
        return type(value) is np.random.Generator

    def save(self, value: Any, saver: Saver, path: str) -> Record:
        return {"bits": saver.value(value.bit_generator, f"{path}.bit_generator")}

    def load(self, record: Record, live: Any, loader: Loader, number: int, path: str) -> Any:
        return np.random.Generator(loader.value(record["bits"], NOTHING, path))


class _RandomState:
    """numpy's old RandomState; not the global one, which is everybody's."""

    def holds(self, value: Any) -> bool:
        return isinstance(value, np.random.RandomState) and value is not np.random.mtrand._rand

    def save(self, value: Any, saver: Saver, path: str) -> Record:
        bits = value._bit_generator
        gauss = {key: part for key, part in value.get_state(legacy=False).items() if "gauss" in key}
        return {"bits": saver.value(bits, path), **gauss}

    def load(self, record: Record, live: Any, loader: Loader, number: int, path: str) -> Any:
        bits = loader.value(record["bits"], NOTHING, path)
        made = np.random.RandomState(bits)
        made.set_state({**bits.state, "has_gauss": record["has_gauss"], "gauss": record["gauss"]})
        return made


class _PythonRandom:
    """random.Random; not the module's own, which is everybody's."""

    def holds(self, value: Any) -> bool:
        return type(value) is random.Random and value is not getattr(random, "_inst", None)

    def save(self, value: Any, saver: Saver, path: str) -> Record:
        version, words, gauss = value.getstate()
        return {"version": version, "words": np.array(words, np.uint64), "gauss": gauss}

    def load(self, record: Record, live: Any, loader: Loader, number: int, path: str) -> Any:
        made = random.Random()
        loader.note(number, made)
        made.setstate((record["version"], tuple(record["words"].tolist()), record["gauss"]))
        return made


class _Space:
    """gymnasium's spaces: the random stream of each and of its parts; all else is constant."""

    def holds(self, value: Any) -> bool:
        return isinstance(value, gymnasium.Space)

    def save(self, value: Any, saver: Saver, path: str) -> Record:
        streams = {name: saver.value(space._np_random, f"{path}.{name}") for name, space in _parts(value)}
        return {"space": repr(value), "streams": streams}

    def load(self, record: Record, live: Any, loader: Loader, number: int, path: str) -> Any:
        parts = dict(_parts(live)) if isinstance(live, gymnasium.Space) else {}
        if not parts or repr(live) != record["space"] or parts.keys() != record["streams"].keys():
            raise InexactError(f"{path} was the space {record['space']}, now it is {live!r}")
        for name, saved in record["streams"].items():
            parts[name]._np_random = loader.value(saved, NOTHING, path)
        return live


def _parts(space: gymnasium.Space[Any], path: str = "np_random") -> list[tuple[str, gymnasium.Space[Any]]]:
    """A space and all the spaces in it, with a name for each."""
    found = [(path, space)]
    for name, value in vars(space).items():
        inner = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
        )
        for key, part in ((name, value), *((f"{name}.{key}", part) for key, part in inner)):
            if isinstance(part, gymnasium.Space):
                found += _parts(part, f"{path}.{key}")
    return found


class _Ale:
    """ale_py's emulator, its random stream included; the game is loaded already."""

    def holds(self, value: Any) -> bool:
        return _is_of("ale_py", "ALEInterface", value)

    def save(self, value: Any, saver: Saver, path: str) -> Record:
        return ale_state.save(value)

    def load(self, record: Record, live: Any, loader: Loader, number: int, path: str) -> Any:
        if not self.holds(live):
            raise InexactError(f"{path} was an emulator, now it is {wording(live)}")
        ale_state.load(live, record)
        return live


class _MjModel:
    """MuJoCo's model: constant as a rule, but an env may change masses or colours in each episode."""

    def holds(self, value: Any) -> bool:
        return _is_of("mujoco", "MjModel", value)

    def save(self, value: Any, saver: Saver, path: str) -> Record:
        return {"bytes": zlib.compress(value.__getstate__(), 1)}

    def load(self, record: Record, live: Any, loader: Loader, number: int, path: str) -> Any:
        if not self.holds(live):
            raise InexactError(f"{path} was a MuJoCo model, now it is {wording(live)}")
        wanted = zlib.decompress(record["bytes"])
        if live.__getstate__() != wanted:
            self._copy(_parsed(type(live), wanted), live)
            if live.__getstate__() != wanted:
                raise InexactError(f"{path} was another MuJoCo model")
        return live

    def _copy(self, source: Any, target: Any) -> None:
        """Arrays and options; sizes and names are constants."""
        for part in ("", "opt", "stat"):
            giver, taker = (getattr(owner, part) if part else owner for owner in (source, target))
            for name in (name for name in dir(giver) if not name.startswith("_")):
                value = getattr(giver, name)
                if isinstance(value, np.ndarray) and value.shape == getattr(taker, name).shape:
                    getattr(taker, name)[...] = value
                elif part and isinstance(value, int | float):
                    setattr(taker, name, value)


class _MjData:
    """MuJoCo's data: every field, contacts included; what mj_getState gives is too little for Ant and Humanoid."""

    def holds(self, value: Any) -> bool:
        return _is_of("mujoco", "MjData", value)

    def save(self, value: Any, saver: Saver, path: str) -> Record:
        return {"model": saver.value(value.model, f"{path}.model"), "bytes": zlib.compress(value.__getstate__(), 1)}

    def load(self, record: Record, live: Any, loader: Loader, number: int, path: str) -> Any:
        if not self.holds(live):
            raise InexactError(f"{path} was MuJoCo data, now it is {wording(live)}")
        model = loader.value(record["model"], live.model, f"{path}.model")
        sys.modules["mujoco"].mj_copyData(live, model, _parsed(type(live), zlib.decompress(record["bytes"])))
        return live


def _parsed(cls: Any, state: bytes) -> Any:
    """A MuJoCo object from its own binary format."""
    made = cls.__new__(cls)
    made.__setstate__(state)
    return made


def _is_of(package: str, name: str, value: Any) -> bool:
    """Whether ``value`` is of a class of a package that is loaded if it is."""
    cls = getattr(sys.modules.get(package), name, None)
    return cls is not None and type(value) is cls


def _plain(value: Any) -> Any:
    """The state of a numpy stream, with plain numbers and copied arrays."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value.copy() if isinstance(value, np.ndarray) else value


ADAPTERS: dict[str, Kind] = {
    "array": _Array(),
    "number": _Scalar(),
    "seed_sequence": _SeedSequence(),
    "bit_generator": _BitGenerator(),
    "generator": _Generator(),
    "random_state": _RandomState(),
    "python_random": _PythonRandom(),
    "space": _Space(),
    "ale": _Ale(),
    "mujoco_model": _MjModel(),
    "mujoco_data": _MjData(),
}
