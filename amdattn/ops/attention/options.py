"""Options of attention calls: by what values calls are looked up, and how others become such."""

from __future__ import annotations

from typing import NamedTuple

from amdattn import scalars

# Values that are equal, with equal types, only to what is the same: an array is equal to itself,
# whatever it holds.
_IMMUTABLE = frozenset({int, float, bool, str, tuple, type(None)})


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
        return Options(
            scalars.optional_number("softmax_scale", self.softmax_scale),
            scalars.boolean("causal", self.causal),
            scalars.window("window_size", self.window_size),
            scalars.number("softcap", self.softcap),
            scalars.number("dropout_p", self.dropout_p),
            scalars.word("round_mode", self.round_mode),
            scalars.integer("num_splits", self.num_splits),
            scalars.boolean("top_left", self.top_left),
        )
