"""What one launch of the adversary computes: a kernel, sizes, rules, and the numbers by class."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from amdattn.ops.attention import select
from tests.support.adversary.bar import Verdict, judge, truth
from tests.support.adversary.plain import Array, Rules, plain
from tests.support.attention.family import Call, Member
from tests.support.shipped import shipped

MOST_KEYS_NARROW = 129


@dataclass(frozen=True)
class Kernel:
    """A forward kernel of the manifest."""

    name: str
    dtype: str
    mode: str
    head_dim: int  # columns that it computes with, at most
    head_dim_v: int
    is_narrow: bool
    is_capped: bool
    takes_any: bool  # masks, sinks, parts

    @property
    def family(self) -> str:
        """By which results are reported."""
        return "narrow" if self.is_narrow else "wide"


@functools.cache
def kernels() -> tuple[Kernel, ...]:
    """Every one that is shipped."""
    return tuple(
        Kernel(
            row.name,
            row.dtype,
            row.accepts["round_mode"][0],
            row.params["head_dim"],
            row.accepts["head_dims_v"][1],
            row.accepts["max_tile_heads"] > 1,
            row.accepts["softcaps"][1] > 0,
            True in row.accepts["causal"],
        )
        for row in shipped(select.ATTENTION)
    )


@dataclass
class Launch:
    """Numbers to be filled in by a class: float64 arrays of (heads, rows or keys, columns)."""

    rng: np.random.Generator
    kernel: Kernel
    rows: int
    keys: int
    heads: tuple[int, int]  # of q, of k and v
    dims: tuple[int, int]
    options: dict[str, Any] = field(default_factory=dict)
    sinks: Array | None = None
    free_dims: int = 0  # columns of q and k that offset() has taken

    def __post_init__(self) -> None:
        normal = self.rng.standard_normal
        self.q = normal((self.heads[0], self.rows, self.dims[0]))
        self.k = normal((self.heads[1], self.keys, self.dims[0]))
        self.v = normal((self.heads[1], self.keys, self.dims[1]))

    def resize(self, rows: int = 0, keys: int = 0, **options: Any) -> None:
        """Other sizes and options, as far as the kernel takes them; all numbers anew."""
        self.rows, self.keys = rows or self.rows, keys or self.keys
        if self.kernel.takes_any:
            if "window_size" in options:
                self.options.pop("causal", None)
            self.options |= options
        elif "softmax_scale" in options:
            self.options["softmax_scale"] = options["softmax_scale"]
        if self.kernel.is_narrow:
            self.options["num_splits"] = 1
            if "window_size" not in self.options and self.rows + self.keys > MOST_KEYS_NARROW + 1:
                self.options |= narrow_window(self.rng, self.rows, self.keys)
        self.__post_init__()

    @property
    def scale(self) -> float:
        given = self.options.get("softmax_scale")
        return 1 / math.sqrt(self.dims[0]) if given is None else float(given)

    @property
    def rules(self) -> Rules:
        """As the judge takes them."""
        return Rules(
            self.kernel.dtype,
            self.kernel.mode,
            self.scale,
            self.options.get("causal", False),
            self.options.get("window_size", (-1, -1)),
            self.options.get("top_left", False),
            self.options.get("softcap", 0.0),
        )

    @property
    def is_bf16(self) -> bool:
        return self.kernel.dtype == "bfloat16"

    def offset(self, nats: Array) -> None:
        """Add (heads or 1, keys) or (heads or 1, rows, keys) to the scores, in units of exp.

        Takes a column of q and k, or one for each group of rows. It is rounded as they are.
        """
        nats = np.asarray(nats, np.float64)
        if self.scale == 0:
            return
        if np.abs(nats).max(initial=0) > 512:
            self.on_grid()
        groups = [slice(None)] if nats.ndim == 2 else _runs(self.rows)
        for group in groups:
            by_key = nats if nats.ndim == 2 else nats[:, group][:, 0]
            column = self.free_dims % self.dims[0]
            self.free_dims += 1
            largest = np.abs(by_key).max(initial=1e-30) / abs(self.scale)
            a = 2.0 ** round(math.log2(max(largest, 1e-30)) / 2)
            self.q[:, :, column] = 0
            self.q[:, group, column] = a
            self.k[:, :, column] = by_key / (a * self.scale)

    def on_grid(self) -> None:
        """q and k of which float32 sums are exact in any order: else luck decides large scores."""
        self.q, self.k = (np.clip(np.rint(2 * x), -6, 6) / 2 for x in (self.q, self.k))

    def keys_where(self, share: float) -> Array:
        """(kv heads, keys): a random choice, or a run of them."""
        if self.rng.random() < 0.5:
            return self.rng.random((self.heads[1], self.keys)) < share
        chosen = np.zeros((self.heads[1], self.keys), bool)
        for row in chosen:
            count = max(1, round(share * self.keys))
            first = int(self.rng.integers(0, max(1, self.keys - count + 1)))
            row[first : first + count] = True
        return chosen

    def hide(self, which: Array) -> None:
        """Scores of -inf, by k = -inf, for (kv heads, keys)."""
        column = self.free_dims % self.dims[0]
        self.free_dims += 1
        self.q[:, :, column] = np.copysign(1.0, self.scale)
        self.k[:, :, column] = np.where(which, -np.inf, 0)

    def _typed(self, x: Array) -> Array:
        """As the kernel takes it, (1, seqlen, heads, dim); what is too large is the greatest."""
        most = self.rules.greatest
        cut = np.where(np.isfinite(x), np.clip(np.nan_to_num(x), -most, most), x)
        with np.errstate(all="ignore"):
            cut = cut.astype(np.float32).astype(Member(self.kernel.dtype, 8, 8, "").element)
        return np.ascontiguousarray(cut.swapaxes(0, 1))[None]

    def call(self) -> tuple[Call, list[Array]]:
        """What is to be run, and its q, k and v."""
        kernel = self.kernel
        member = Member(kernel.dtype, *self.dims, kernel.mode, kernel.name)
        arrays = [self._typed(x) for x in (self.q, self.k, self.v)]
        takes_sinks = kernel.takes_any and self.sinks is not None
        sinks = self.sinks.astype(np.float32) if takes_sinks else None
        return Call(member, dict(self.options), sinks=sinks), arrays

    def results(self) -> tuple[Array, Array, tuple[Array, ...]]:
        """Launch it: out, lse, and q, k, v and sinks as the kernel had them, head by head."""
        call, arrays = self.call()
        out, lse = call.run(*arrays)
        sinks: Any = call.sinks
        q, k, v = (x[0].astype(np.float32).swapaxes(0, 1) for x in arrays)
        group = self.heads[0] // self.heads[1]
        k, v = np.repeat(k, group, 0), np.repeat(v, group, 0)
        return out[0].astype(np.float32).swapaxes(0, 1), lse[0], (q, k, v, sinks)

    def run(self) -> tuple[list[Verdict], list[Verdict]]:
        """Verdicts on every head, and on the plain pipeline with its sums in another order."""
        out, lse, (q, k, v, sinks) = self.results()
        by = truth(q, k, v, sinks, self.rules)
        turned = (np.ascontiguousarray(x[..., ::-1]) for x in (q, k))
        other = plain(*turned, v, sinks, self.rules)
        return judge(out, lse, by), judge(other.out, other.lse, by)


def _runs(rows: int) -> Sequence[slice]:
    """Up to four groups of rows."""
    size = -(-rows // 4)
    return [slice(n, n + size) for n in range(0, rows, size)]


SIZES = (1, 7, 16, 17, 18, 31, 33, 35, 50, 64, 65, 70, 96, 100, 130)


def draw(rng: np.random.Generator, family: str = "", kernel: str = "") -> Launch:
    """A kernel and sizes that it takes, with normal numbers."""
    able = [k for k in kernels() if k.family == (family or k.family) and kernel in ("", k.name)]
    if not family and not kernel and rng.random() < 0.3:  # there are few of them
        able = [k for k in able if k.is_narrow]
    kernel_ = able[int(rng.integers(len(able)))]
    rows = int(rng.choice(SIZES))
    keys = int(rng.choice(SIZES)) if rng.random() < 0.7 else int(rng.integers(1, 200))
    if rng.random() < 0.03:  # several tiles, many blocks
        rows, keys = int(rng.choice([257, 400, 520])), int(rng.integers(100, 600))
    dims = kernel_.head_dim, min(kernel_.head_dim, kernel_.head_dim_v)
    if kernel_.head_dim == 192:
        dims = 192, 128
    if kernel_.takes_any and rng.random() < 0.2:  # fewer columns, more groups of them
        dims = dims[0] - 8 * int(rng.integers(0, 4)), 8 * int(rng.integers(1, dims[1] // 8 + 1))
    heads = ((8, 8), (8, 4), (8, 2), (4, 4), (6, 3), (8, 1))[int(rng.integers(6))]
    options: dict[str, Any] = {"num_splits": 1}
    if kernel_.takes_any:
        options |= _masking(rng, kernel_, rows, keys)
        if kernel_.is_capped:
            options["softcap"] = float(rng.choice([1.0, 30.0, 50.0, 1000.0]))
        if not kernel_.is_narrow:
            options["num_splits"] = int(rng.choice([1, 1, 1, 2, 3, 5]))
    if rng.random() < 0.25:
        options["softmax_scale"] = float(rng.choice([1.0, -0.25, 0.05, 0.1234]))
    launch = Launch(rng, kernel_, rows, keys, heads, dims, options)
    if kernel_.takes_any and rng.random() < 0.25:
        launch.sinks = rng.standard_normal(heads[0]) * rng.choice([1, 5])
    return launch


def narrow_window(rng: np.random.Generator, rows: int, keys: int) -> dict[str, Any]:
    """A window that the narrow kernels take."""
    left = int(rng.choice([0, 3, 10, 20, 60, 127, 128]))
    right = int(rng.integers(0, MOST_KEYS_NARROW - left))
    return {"window_size": (left, right), "top_left": bool(rng.random() < 0.3)}


def _masking(rng: np.random.Generator, kernel: Kernel, rows: int, keys: int) -> dict[str, Any]:
    if kernel.is_narrow:
        if rows + keys <= MOST_KEYS_NARROW + 1 and rng.random() < 0.6:
            return {}
        return narrow_window(rng, rows, keys)
    which = rng.random()
    if which < 0.5:
        return {}
    if which < 0.7:
        return {"causal": True, "top_left": bool(rng.random() < 0.3)}
    return narrow_window(rng, rows, keys)
