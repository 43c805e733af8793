"""Tables of cos and sin for a rotary embedding, with the laws that models scale positions by."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from amdattn import scalars
from amdattn.dtypes import as_dtype

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PERIOD = 2 * math.pi


def rotary_tables(
    rows: int,
    rotary_dim: int,
    base: float = 10000.0,
    rope_scaling: Mapping[str, Any] | None = None,
    *,
    max_position_embeddings: int | None = None,
    dtype: Any = "float32",
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Compute the cos and sin of every position, for `apply_rotary_emb`.

    The angle of pair i at position p is ``p * base^(-2 i / rotary_dim)``, computed in float64.

    Parameters
    ----------
    rows : int
        Number of positions, from 0 on.
    rotary_dim : int
        Number of columns that are rotated; even.
    base : float
        ``rope_theta`` of a model's configuration.
    rope_scaling : dict, optional
        As in a configuration of Hugging Face's Transformers. Its "rope_type" (or "type") is
        "default", "linear" (factor), "dynamic" (factor), "yarn" (factor and optionally
        original_max_position_embeddings, beta_fast, beta_slow, mscale, mscale_all_dim,
        attention_factor, truncate) or "llama3" (factor, low_freq_factor, high_freq_factor,
        original_max_position_embeddings). "dynamic" scales for `rows` positions if they exceed
        max_position_embeddings; "yarn" multiplies cos and sin by its attention factor. Other keys,
        such as "rope_theta", are not read.
    max_position_embeddings : int, optional
        From the configuration. "dynamic" needs it, and so does "yarn" without
        original_max_position_embeddings.
    dtype : optional
        Type of the tables: float32, bfloat16 or float16, rounded once.

    Returns
    -------
    cos, sin : numpy.ndarray, (rows, rotary_dim / 2)

    Raises
    ------
    ValueError, TypeError
        A value is malformed, or a law is unknown or lacks a number that it needs.
    """
    import numpy as np

    rows = scalars.integer("rows", rows)
    dim = scalars.integer("rotary_dim", rotary_dim)
    if rows < 1:
        raise ValueError(f"rows={rows} must be at least 1")
    if dim < 2 or dim % 2:
        raise ValueError(f"rotary_dim={dim} must be even and at least 2")
    base = scalars.number("base", base)
    if not 1 < base < math.inf:
        raise ValueError(f"base={base} must be above 1")
    element = as_dtype(dtype)
    if element.name not in ("float32", "bfloat16", "float16"):
        raise ValueError(f"dtype={element.name} must be float32, bfloat16 or float16")
    law = _Law(dict(rope_scaling or {}), max_position_embeddings, rows, dim, base)
    inverse, factor = law.found()
    angles = np.arange(rows, dtype=np.float64)[:, None] * inverse
    wanted = element.numpy()
    return (factor * np.cos(angles)).astype(wanted), (factor * np.sin(angles)).astype(wanted)


class _Law:
    """The frequencies of pairs, and a factor of the tables."""

    def __init__(
        self, given: dict[str, Any], most: int | None, rows: int, dim: int, base: float
    ) -> None:
        self._given, self._rows, self._dim, self._base = given, rows, dim, base
        self._most = None if most is None else scalars.integer("max_position_embeddings", most)

    def found(self) -> tuple[NDArray[np.float64], float]:
        laws: dict[str, Callable[[], tuple[NDArray[np.float64], float]]] = {
            "default": lambda: (self._inverse(self._base), 1.0),
            "linear": lambda: (self._inverse(self._base) / self._factor(), 1.0),
            "dynamic": self._dynamic,
            "yarn": self._yarn,
            "llama3": self._llama3,
        }
        name = self._given.get("rope_type", self._given.get("type", "default"))
        if name not in laws:
            raise ValueError(f"rope_scaling has rope_type {name!r}; it must be {', '.join(laws)}")
        return laws[name]()

    def _number(self, name: str, default: float | None = None) -> float:
        value = self._given.get(name)
        if value is None:
            if default is None:
                raise ValueError(f"rope_scaling={self._given} has no {name!r}")
            return default
        return scalars.number(f"rope_scaling[{name!r}]", value)

    def _factor(self) -> float:
        factor = self._number("factor")
        if not 1 <= factor < math.inf:
            raise ValueError(f"rope_scaling['factor']={factor} must be at least 1")
        return factor

    def _original(self) -> float:
        """The number of positions that the model was trained for."""
        return self._number("original_max_position_embeddings", self._most)

    def _inverse(self, base: float) -> NDArray[np.float64]:
        import numpy as np

        found: NDArray[np.float64] = base ** -(np.arange(0, self._dim, 2) / self._dim)
        return found

    def _dynamic(self) -> tuple[NDArray[np.float64], float]:
        if self._most is None:
            raise ValueError("max_position_embeddings must be given with rope_type 'dynamic'")
        if self._dim == 2:
            return self._inverse(self._base), 1.0
        factor, rows = self._factor(), max(self._rows, self._most)
        stretched = factor * rows / self._most - (factor - 1)
        return self._inverse(self._base * stretched ** (self._dim / (self._dim - 2))), 1.0

    def _yarn(self) -> tuple[NDArray[np.float64], float]:
        import numpy as np

        factor, original, dim = self._factor(), self._original(), self._dim

        def scale(by: float) -> float:
            return 0.1 * by * math.log(factor) + 1 if factor > 1 else 1.0

        share, of_all = self._number("mscale", 0.0), self._number("mscale_all_dim", 0.0)
        usual = scale(share) / scale(of_all) if share and of_all else scale(1.0)
        multiplied = self._number("attention_factor", usual)

        def pair_of(turns: float) -> float:
            """The pair that makes a number of turns over the original positions."""
            return dim * math.log(original / (turns * _PERIOD)) / (2 * math.log(self._base))

        low, high = pair_of(self._number("beta_fast", 32)), pair_of(self._number("beta_slow", 1))
        if self._given.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dim - 1)
        high += 0.001 * (low == high)
        ramp = np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
        inverse = self._inverse(self._base)
        return inverse / factor * ramp + inverse * (1 - ramp), multiplied

    def _llama3(self) -> tuple[NDArray[np.float64], float]:
        import numpy as np

        factor, original = self._factor(), self._original()
        low, high = self._number("low_freq_factor"), self._number("high_freq_factor")
        if not 0 < low < high:
            raise ValueError(
                f"rope_scaling['low_freq_factor']={low} must be above 0 and below "
                f"high_freq_factor={high}"
            )
        inverse = self._inverse(self._base)
        turns = original * inverse / _PERIOD  # over the original positions
        smooth = np.clip((turns - low) / (high - low), 0, 1)
        return inverse * (smooth + (1 - smooth) / factor), 1.0
