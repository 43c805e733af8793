"""Options of attention calls: by what values calls are looked up, and how others become such."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple, get_type_hints

from amdattn import scalars
from amdattn.errors import UnsupportedProblem

# Values that are equal, with equal types, only to what is the same: an array is equal to itself,
# whatever it holds.
_IMMUTABLE = frozenset({int, float, bool, str, tuple, type(None)})
# Of fields of such types: how values are read, and the types of those that are right already.
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
    """Types that the fields of a record of options may have together."""
    kinds = get_type_hints(record).values()
    return frozenset(itertools.product(*(_BY_TYPE[kind][1] for kind in kinds)))


def read(options: Any) -> dict[str, Any]:
    """A record of options as values of Python, by name; TypeError for what is none."""
    record: type = type(options)
    readers = _readers(record)
    return {name: readers[name](name, value) for name, value in options._asdict().items()}


def refuse(argument: str, value: object) -> None:
    """Raise if an argument is given for which there is nothing."""
    if value is not None:
        raise UnsupportedProblem(f"{argument} is not built (have None)")


def is_window(window: object) -> bool:
    """Whether it is a pair of Python's ints; a look-up does not tell (1, 0) from (True, False)."""
    return type(window) is tuple and len(window) == 2 and type(window[0]) is type(window[1]) is int


class Options(NamedTuple):
    """What a caller asks for besides the arrays, with the defaults that every function has."""

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
        """Whether a call may be looked up by these values."""
        return _IMMUTABLE.issuperset(map(type, self)) and is_window(self.window_size)

    def read(self) -> Options:
        """The same as values of Python; TypeError for what is none."""
        return Options(**read(self))


options_of = attrgetter(*Options._fields)  # those among the arguments of a call


class Arguments(NamedTuple):
    """What a caller gives besides q, k and v, as `flash_attn_func` takes it."""

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
        """What decides what is computed."""
        return Options(*options_of(self))

    @property
    def with_lse(self) -> bool:
        """Whether it is asked for, in any way."""
        return self.return_lse or self.return_attn_probs or self.lse is not None

    def read_flags(self) -> Arguments:
        """With flags of Python, if nothing is asked for that there is not."""
        refuse("alibi_slopes", self.alibi_slopes)
        names = ("deterministic", "return_lse", "return_attn_probs")
        flags: dict[str, Any] = {name: scalars.boolean(name, getattr(self, name)) for name in names}
        return self._replace(**flags)
