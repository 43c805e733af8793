"""Options of attention calls: by what values calls are looked up, and how others become such."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from amdattn import scalars

# Values that are equal, with equal types, only to what is the same: an array is equal to itself,
# whatever it holds.
_IMMUTABLE = frozenset({int, float, bool, str, tuple, type(None)})
# How each option of attention is read, also over a cache.
READ: Mapping[str, Callable[[str, object], Any]] = {
    **dict.fromkeys(("softmax_scale", "k_descale", "v_descale"), scalars.optional_number),
    **dict.fromkeys(("causal", "top_left", "rotary_interleaved"), scalars.boolean),
    **dict.fromkeys(("softcap", "dropout_p"), scalars.number),
    **dict.fromkeys(("round_mode", "kv_layout"), scalars.word),
    **{"window_size": scalars.window, "num_splits": scalars.integer},
}


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
        return Options(*[READ[name](name, x) for name, x in self._asdict().items()])
