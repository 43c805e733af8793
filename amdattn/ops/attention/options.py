"""Options of attention calls: the values by which plans are looked up, and how to read others."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple, get_type_hints

from amdattn import scalars
from amdattn.errors import UnsupportedProblem

# Values of these types are equal only if they mean the same. Not so arrays: an array is equal to
# itself, whatever its contents.
_IMMUTABLE = frozenset({int, float, bool, str, tuple, type(None)})
# By type of a field: how to read its values, and the types of values that need no reading.
_BY_TYPE: Mapping[object, tuple[Callable[[str, object], Any], tuple[type, ...]]] = {
    bool: (scalars.boolean, (bool,)),
    int: (scalars.integer, (int,)),
    float: (scalars.number, (int, float)),
    float | None: (scalars.optional_number, (int, float, type(None))),
    str: (scalars.word, (str,)),
    tuple[int, int]: (scalars.window, (tuple,)),
}


@functools.cache
def _readers(record: type) -> Mapping[str, Callable[[str, object], Any]]:
    return {name: _BY_TYPE[kind][0] for name, kind in get_type_hints(record).items()}


def plain_types(record: type) -> frozenset[tuple[type, ...]]:
    """The combinations of types of a record of options that need no reading."""
    kinds = get_type_hints(record).values()
    return frozenset(itertools.product(*(_BY_TYPE[kind][1] for kind in kinds)))


def read(options: Any) -> dict[str, Any]:
    """The options of a record as Python values by name; raises TypeError for anything else."""
    record: type = type(options)
    readers = _readers(record)
    return {name: readers[name](name, value) for name, value in options._asdict().items()}


def refuse(argument: str, value: object) -> None:
    """Raise UnsupportedProblem if an unsupported argument is given."""
    if value is not None:
        raise UnsupportedProblem(f"{argument} is not built (have None)")


def is_window(window: object) -> bool:
    """Whether it is a pair of Python ints; look-ups cannot tell (1, 0) from (True, False)."""
    return type(window) is tuple and len(window) == 2 and type(window[0]) is type(window[1]) is int


class Options(NamedTuple):
    """Options of a call that are not arrays, with the defaults of every function."""

    softmax_scale: float | None = None
    causal: bool = False
    window_size: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    dropout_p: float = 0.0
    round_mode: str = "rtne"
    num_splits: int = 0
    top_left: bool = False

    @property
    def are_plain(self) -> bool:
        """Whether plans may be looked up by these values."""
        return _IMMUTABLE.issuperset(map(type, self)) and is_window(self.window_size)

    def read(self) -> Options:
        """The options as Python values; raises TypeError for anything else."""
        return Options(**read(self))


options_of = attrgetter(*Options._fields)  # those among the arguments of a call


class Arguments(NamedTuple):
    """Arguments of `flash_attn_func` other than q, k and v."""

    dropout_p: float = 0.0
    softmax_scale: float | None = None
    causal: bool = False
    window_size: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    alibi_slopes: None = None
    deterministic: bool = False
    return_attn_probs: bool = False
    return_lse: bool = False
    sinks: Any = None
    top_left: bool = False
    round_mode: str = "rtne"
    num_splits: int = 0
    out: Any = None
    lse: Any = None
    stream: Any = None

    @property
    def options(self) -> Options:
        """The options that decide what is computed."""
        return Options(*options_of(self))

    @property
    def with_lse(self) -> bool:
        """Whether lse is requested, in any way."""
        return self.return_lse or self.return_attn_probs or self.lse is not None

    def read_flags(self) -> Arguments:
        """The arguments with flags as Python bools; raises for unsupported arguments."""
        refuse("alibi_slopes", self.alibi_slopes)
        names = ("deterministic", "return_lse", "return_attn_probs")
        flags: dict[str, Any] = {name: scalars.boolean(name, getattr(self, name)) for name in names}
        return self._replace(**flags)
