"""Options of attention calls: by what values calls are looked up, and how others become such."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amdattn import scalars

# In the order in which calls pass them.
NAMES = (
    *("softmax_scale", "causal", "window_size", "softcap", "dropout_p", "round_mode"),
    *("num_splits", "top_left"),
)
_READERS: tuple[Callable[[str, Any], Any], ...] = (
    *(scalars.optional_number, scalars.boolean, scalars.pair, scalars.number, scalars.number),
    *(scalars.word, scalars.integer, scalars.boolean),
)
WINDOW = NAMES.index("window_size")
# Values that are equal, with equal types, only to what is the same: an array is equal to itself,
# whatever it holds.
_IMMUTABLE = frozenset({int, float, bool, str, tuple, type(None)})


def is_window(window: object) -> bool:
    """Whether it is a pair of Python's ints; a look-up does not tell (1, 0) from (True, False)."""
    return type(window) is tuple and len(window) == 2 and type(window[0]) is type(window[1]) is int


def are_plain(options: tuple[Any, ...]) -> bool:
    """Whether a call may be looked up by these values."""
    return _IMMUTABLE.issuperset(map(type, options)) and all(
        is_window(value) for value in options if type(value) is tuple
    )


def read(options: tuple[Any, ...]) -> tuple[Any, ...]:
    """The options of a call as values of Python; TypeError for what is none."""
    return tuple(
        reader(name, value) for name, reader, value in zip(NAMES, _READERS, options, strict=True)
    )
