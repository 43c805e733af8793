"""Does a row's result depend on the others of its call? Random calls with `num_splits` given.

    AMDATTN_DEVICE=virtual:gfx950 python -m tests.support.attention.independence 24

Prints the trials of so many in which some bits differ, and how the call was changed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import amdattn
from amdattn.arch.architectures import ARCHITECTURES

Array = npt.NDArray[Any]


@dataclass
class Trial:
    """A dense call of some sequences, drawn by its number."""

    seed: int

    def __post_init__(self) -> None:
        rng = self.rng = np.random.default_rng(self.seed)
        self.is_bf16 = bool(rng.random() < 0.6)
        dim = int(rng.choice([64, 128, 128, 256]))
        heads_q, heads_kv = ((1, 1), (2, 1))[int(rng.integers(2))]
        self.batch = int(rng.integers(2, 4))
        self.rows = int(rng.choice([5, 33, 64, 100, 130, 200]))
        self.keys = int(rng.choice([1, 17, 64, 100, 200, 300, 700]))
        self.spread = float(rng.choice([1, 1.4, 2, 3, 5]))  # references are renewed, or hardly
        self.q = self._normal(self.rows, heads_q, dim) * self.spread
        self.k = self._normal(self.keys, heads_kv, dim) * self.spread
        self.v = self._normal(self.keys, heads_kv, dim)
        if rng.random() < 0.15:  # sums that overflow, in a second attempt
            self.v[..., ::3] *= 1e38 if self.is_bf16 else 1e4
        self.options = self._options()

    def _normal(self, *shape: int) -> Array:
        return self.rng.standard_normal((self.batch, *shape))

    def _options(self) -> dict[str, Any]:
        rng = self.rng
        one_rounding = ARCHITECTURES[amdattn.device_props().arch].converts_bf16
        options: dict[str, Any] = {"num_splits": int(rng.integers(1, 4)), "return_lse": True}
        masks: tuple[dict[str, Any], ...] = (
            *({}, {"causal": True}),
            {"window_size": (int(rng.integers(0, 200)), int(rng.integers(0, 100)))},
        )
        options |= masks[int(rng.integers(3))]
        if rng.random() < 0.2:
            options["softcap"] = 30.0
        if rng.random() < 0.4:
            sinks = rng.standard_normal(self.q.shape[2]) * 5
            options["sinks"] = sinks.astype(np.float32)
        if self.is_bf16 and not one_rounding:
            options["round_mode"] = str(rng.choice(["rtne", "rtna", "rtz"]))
        return options

    def typed(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return x.astype(ml_dtypes.bfloat16 if self.is_bf16 else np.float16)

    def call(self, *arrays: Array) -> tuple[Array, Array]:
        """The result and its lse, of (batch, rows, heads, ...) both."""
        out, lse = amdattn.flash_attn_func(*map(self.typed, arrays), **self.options)
        return out, np.moveaxis(lse, 1, 2)

    def differences(self) -> Iterator[str]:
        """How the call was changed, if bits differ then."""
        of_all = self.call(self.q, self.k, self.v)
        nth = int(self.rng.integers(self.batch))
        own = slice(nth, nth + 1)
        alone = self.call(self.q[own], self.k[own], self.v[own])
        for name, (here, there) in {
            "a sequence alone": (alone, [x[own] for x in of_all]),
            "a sequence beside shorter ones": self._varlen(nth, of_all),
            "other rows": self._other_rows(of_all, self._normal(*self.q.shape[1:]) * 6),
            "other rows that are no numbers": self._other_rows(of_all, self._wild()),
        }.items():
            if any(_bits(x) != _bits(y) for x, y in zip(here, there, strict=True)):
                yield name

    def _wild(self) -> Array:
        """Rows of any size, of infinities and NaN: they ask for second attempts."""
        rng, by_row = self.rng, (*self.q.shape[:3], 1)
        x = self._normal(*self.q.shape[1:])
        x *= np.exp(rng.uniform(-5, 80 if self.is_bf16 else 8, by_row))
        x[rng.random(x.shape[:3]) < 0.1] = np.nan
        x[rng.random(x.shape[:3]) < 0.1] = np.inf
        return x

    def _other_rows(self, of_all: tuple[Array, Array], others: Array) -> tuple[Any, Any]:
        kept = self.rng.random(self.rows) < 0.3
        kept[self.rng.integers(self.rows)] = True
        changed = self.call(np.where(kept[:, None, None], self.q, others), self.k, self.v)
        return [x[:, kept] for x in changed], [x[:, kept] for x in of_all]

    def _varlen(self, nth: int, of_all: tuple[Array, Array]) -> tuple[Any, Any]:
        rows, keys = (self.rng.integers(1, n + 1, self.batch) for n in (self.rows, self.keys))
        rows[nth], keys[nth] = self.rows, self.keys
        q, k, v = (
            self.typed(np.concatenate([x[i, :n] for i, n in enumerate(lengths)]))
            for x, lengths in ((self.q, rows), (self.k, keys), (self.v, keys))
        )
        starts = [np.concatenate([[0], np.cumsum(n)]).astype(np.int32) for n in (rows, keys)]
        out, lse = amdattn.flash_attn_varlen_func(
            q, k, v, starts[0], starts[1], self.rows, self.keys, **self.options
        )
        own = slice(int(starts[0][nth]), int(starts[0][nth + 1]))
        return [out[own], np.moveaxis(lse, 0, 1)[own]], [x[nth] for x in of_all]


def _bits(x: Array) -> bytes:
    """Of all NaNs the same ones."""
    wide = np.asarray(x).astype(np.float32)
    return np.where(np.isnan(wide), np.float32(np.nan), wide).tobytes()


def main() -> None:
    """Command line."""
    for seed in range(int(sys.argv[1])):
        for name in Trial(seed).differences():
            print(f"{seed}: {name}")


if __name__ == "__main__":
    main()
