"""Attention over caches for the adversary: decode, chunks of queries, cascades; also of 8 bits.

Numbers are those of the classes of `classes.py` and a few more; a launch's heads of K and V become
sequences times heads of a cache, contiguous or in pages. Of a cache of 8-bit floats what it holds
times its scale is what attention is held against: nothing else of K and V may be rounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import amdattn
from amdattn.dtypes import as_dtype
from tests.support.adversary.classes import CLASSES, Fill
from tests.support.adversary.launches import Kernel, Launch
from tests.support.adversary.plain import Array
from tests.support.adversary.sweep import Tried
from tests.support.shipped import props

KINDS = ("decode", "prefill", "cascade")
MOST_ROWS_OF_DECODE = 16
PAGE = 16


@dataclass
class CacheLaunch(Launch):
    """A call over a cache. `heads` are of all sequences."""

    kind: str = "decode"
    batch: int = 1
    prefix: int = 0  # of the keys, which all sequences share
    is_paged: bool = False
    is_quantized: bool = False
    appended: int = 0
    is_on_grid: bool = False
    descales: dict[str, Array] = field(default_factory=dict)

    def resize(self, rows: int = 0, keys: int = 0, **options: Any) -> None:
        """Other sizes and options, as far as the kind of call takes them; all numbers anew."""
        options.pop("top_left", None)
        super().resize(rows, keys, **options)
        self.settle()

    def on_grid(self) -> None:
        """Sums of products with 8-bit floats are exact then, too."""
        super().on_grid()
        self.is_on_grid = True

    def settle(self) -> None:
        """Sizes and options that the call takes."""
        before = self.rows, self.keys
        if self.kind == "decode":
            self.rows = min(self.rows, MOST_ROWS_OF_DECODE)
        elif self.kind == "prefill":
            self.rows = max(self.rows, MOST_ROWS_OF_DECODE + 1)
        if self.kind == "cascade":
            self.options.pop("window_size", None)
            own = self.rows if self.options.get("causal") else 1
            self.keys = max(self.keys, own + 1)
            self.prefix = 1 + (self.prefix - 1) % (self.keys - own)
        self.appended = min(self.appended, self.keys - self.prefix)
        if before != (self.rows, self.keys):
            self.__post_init__()

    @property
    def text(self) -> str:
        """Sizes and options."""
        cache = f"{'8' if self.is_quantized else '16'} bits" + ", in pages" * self.is_paged
        return (
            f"{self.kind} {self.kernel.dtype}, {cache}: {self.batch} x {self.rows} over "
            f"{self.keys} (prefix {self.prefix}, appended {self.appended}), heads {self.heads}, "
            f"columns {self.dims}, {self.options}"
        )

    def share(self) -> None:
        """What all sequences have in common: sinks, and the keys of a prefix."""
        if self.sinks is not None:
            self.sinks = np.tile(self.sinks[: self.heads[0] // self.batch], self.batch)
        for x in (self.k, self.v):
            first = x[: self.heads[1] // self.batch, : self.prefix]
            x[:, : self.prefix] = np.tile(first, (self.batch, 1, 1))

    def results(self) -> tuple[Array, Array, tuple[Array, ...]]:
        """Call it: out, lse, and q, k, v and sinks as the kernels had them, head by head."""
        self.share()
        q = self._of_sequences(self._typed(self.q)[0])
        stored = {name: self._stored(name, getattr(self, name)) for name in "kv"}
        given: dict[str, Any] = {
            **{name: self.options[name] for name in self.options if name != "top_left"},
            "sinks": None if self.sinks is None else self._sinks(),
            "return_softmax_lse": True,
        }
        if self.is_quantized:
            given |= {f"{name}_descale": self.descales[name] for name in "kv"}
        call = self._cascade if self.kind == "cascade" else self._whole
        out, lse = call(q, stored, given)
        flat = (self.heads[0], self.rows)
        out = out.astype(np.float32).swapaxes(1, 2).reshape(*flat, -1)
        used = [self._used(name, stored[name]) for name in "kv"]
        heads = q.astype(np.float32).swapaxes(1, 2).reshape(*flat, -1)
        sinks = None if self.sinks is None else self.sinks.astype(np.float32)
        return out, lse.reshape(flat), (heads, *used, sinks)

    # ---- Arrays as calls take them.
    def _sinks(self) -> Array:
        return self.sinks[: self.heads[0] // self.batch].astype(np.float32)

    def _of_sequences(self, x: Array) -> Array:
        """(rows, heads of all, columns) as (batch, rows, heads, columns)."""
        rows, heads, columns = x.shape
        return np.ascontiguousarray(
            x.reshape(rows, self.batch, heads // self.batch, columns).swapaxes(0, 1)
        )

    def _stored(self, name: str, x: Array) -> Array:
        """(batch, keys, heads, columns) as a cache holds them."""
        if not self.is_quantized:
            return self._of_sequences(self._typed(x)[0])
        element = as_dtype(props().architecture.fp8).numpy()
        most = float(ml_dtypes.finfo(element).max)
        rows = x.swapaxes(0, 1)  # (keys, heads of all, columns)
        sizes = np.where(np.isfinite(rows), np.abs(rows), 0).max((0, 2), initial=0)
        of_head = sizes.reshape(self.batch, -1).max(0)
        scales = np.where(of_head == 0, 1, of_head / most).astype(np.float32)
        scales = np.maximum(scales, np.float32(1e-37))
        if self.is_on_grid:
            scales = np.exp2(np.ceil(np.log2(scales)))
        if self.rng.random() < 0.5:  # a number for all heads
            scales = np.full_like(scales, scales.max())
        self.descales[name] = scales
        of_all = np.tile(scales.astype(np.float64), self.batch)[:, None]
        with np.errstate(all="ignore"):
            turned = np.where(np.isnan(rows), rows, np.clip(rows / of_all, -most, most))
            return self._of_sequences(turned.astype(np.float32).astype(element))

    def _used(self, name: str, stored: Array) -> Array:
        """(heads of q, keys, columns) that attention is held against."""
        rows = stored.astype(np.float32).astype(np.float64)
        if self.is_quantized:
            rows = rows * self.descales[name].astype(np.float64)[:, None]
        heads = rows.swapaxes(1, 2).reshape(self.heads[1], self.keys, -1)
        return np.repeat(heads, self.heads[0] // self.heads[1], 0)

    def _paged(self, x: Array, table: Array) -> Array:
        """(batch, keys, ...) in the pages of `table` (batch, pages of a sequence)."""
        cache = np.zeros((int(table.max()) + 1, PAGE, *x.shape[2:]), x.dtype)
        for b in range(len(x)):
            for n in range(x.shape[1]):
                cache[table[b, n // PAGE], n % PAGE] = x[b, n]
        return cache

    def _table(self, keys: int) -> Array:
        each = max(1, -(-keys // PAGE))
        return self.rng.permutation(self.batch * each).reshape(self.batch, each).astype(np.int32)

    def _cached(self, stored: dict[str, Array], given: dict[str, Any]) -> list[Any]:
        """k_cache, v_cache of keys; lengths, pages and appended rows go to `given`."""
        keys = stored["k"].shape[1]
        before = keys - self.appended
        caches = {name: x.copy() for name, x in stored.items()}
        if self.appended:
            given |= {name: np.ascontiguousarray(x[:, before:]) for name, x in stored.items()}
            for x in caches.values():
                x[:, before:] = 0
        if self.is_paged:
            given["block_table"] = self._table(keys)
            caches = {name: self._paged(x, given["block_table"]) for name, x in caches.items()}
        given["cache_seqlens"] = np.full(self.batch, before, np.int32)
        return [caches["k"], caches["v"]]

    def _called(self, function: Any, q: Array, *rest: Any, **given: Any) -> tuple[Array, Array]:
        def on_device(x: Any) -> Any:
            return amdattn.asarray(x) if isinstance(x, np.ndarray) and self.appended else x

        found = function(*map(on_device, (q, *rest)), **{k: on_device(x) for k, x in given.items()})
        out, lse = (x.numpy() if isinstance(x, amdattn.DeviceArray) else x for x in found)
        return out, lse

    def _whole(
        self, q: Array, stored: dict[str, Array], given: dict[str, Any]
    ) -> tuple[Array, Array]:
        caches = self._cached(stored, given)
        return self._called(amdattn.flash_attn_with_kvcache, q, *caches, **given)

    def _cascade(
        self, q: Array, stored: dict[str, Array], given: dict[str, Any]
    ) -> tuple[Array, Array]:
        of_prefix = {name: x[:1, : self.prefix] for name, x in stored.items()}
        own = {name: np.ascontiguousarray(x[:, self.prefix :]) for name, x in stored.items()}
        if not self.is_quantized and not self.is_paged:
            prefix = [np.ascontiguousarray(of_prefix[name][0]) for name in "kv"]
            caches = self._cached(own, given)
            return self._called(amdattn.cascade_attention, q, *prefix, *caches, **given)
        self.is_paged = True
        k, v = self._cached(own, given)
        pages = -(-self.prefix // PAGE)
        table = (np.arange(pages) + len(k)).astype(np.int32)
        whole = []
        for name, cache in (("k", k), ("v", v)):
            room = np.zeros((pages * PAGE, *cache.shape[2:]), cache.dtype)
            room[: self.prefix] = of_prefix[name][0]
            whole.append(np.concatenate([cache, room.reshape(pages, PAGE, *cache.shape[2:])]))
        given |= {"prefix_table": table, "prefix_len": self.prefix}
        return self._called(amdattn.cascade_attention, q, None, None, *whole, **given)


# ---- More classes: what calls over caches are known to go wrong with.
CACHE_CLASSES: dict[str, Fill] = dict(CLASSES)


def _cache_class(fill: Fill) -> Fill:
    CACHE_CLASSES[fill.__name__.replace("_", " ")] = fill
    return fill


@_cache_class
def a_common_offset_of_2_20(launch: Launch) -> None:
    """2^18 to 2^20 nats in all scores, also with sinks of about as much.

    Of integers, of which float32 sums are exact in any order there: below 2^24 before their scale.
    """
    launch.resize(num_splits=int(launch.rng.choice([1, 2, 3, 5])))
    most = min(2.0 ** launch.rng.uniform(18, 20), 2.0**23 * abs(launch.scale))
    nats = most * launch.rng.choice([-1, 1])
    launch.on_grid()
    launch.q, launch.k = (np.rint(x) for x in (launch.q, launch.k))
    launch.offset(np.broadcast_to(np.array(nats), (launch.heads[1], launch.keys)))
    if launch.rng.random() < 0.4:
        launch.sinks = np.float32(nats) + np.rint(4 * launch.rng.standard_normal(launch.heads[0]))


@_cache_class
def sinks_over_large_v(launch: Launch) -> None:
    """V of up to the greatest number, sinks 0 to 100 nats above: what is left is finite."""
    above = launch.rng.uniform(0, 100, launch.heads[0])
    launch.q *= launch.rng.choice([0.0, 0.3])
    launch.sinks = above
    launch.v *= launch.rules.greatest / 8 * 10.0 ** -launch.rng.uniform(0, 3)


@_cache_class
def sums_of_equal_v(launch: Launch) -> None:
    """Of one sign, in some columns near the greatest: their sums overflow, not their mean."""
    size = launch.rules.greatest * launch.rng.uniform(0.3, 0.95)
    column = launch.rng.random((launch.heads[1], 1, launch.dims[1])) < launch.rng.choice([0.1, 1.0])
    launch.v = np.where(column, size * launch.rng.uniform(0.9, 1, launch.v.shape), launch.v)
    launch.options["num_splits"] = int(launch.rng.choice([1, 2, 3, 0]))


@_cache_class
def sinks_that_are_none(launch: Launch) -> None:
    """NaN and infinities among the sinks."""
    some = np.array([np.nan, np.inf, -np.inf, 0.0, 5.0, -5.0])
    launch.sinks = launch.rng.choice(some, launch.heads[0])


@_cache_class
def runs_far_below(launch: Launch) -> None:
    """All keys of some waves or parts, of which V is infinite or as large as they are far below."""
    launch.resize(keys=int(launch.rng.choice([200, 400, 700])))
    run = int(launch.rng.choice([16, 32, 64, 128, launch.keys // 2]))
    far = np.arange(launch.keys) // run % int(launch.rng.choice([2, 4])) == 0
    if launch.rng.random() < 0.5:
        far = ~far
    nats = launch.rng.uniform(60, 92) if launch.is_bf16 else launch.rng.uniform(6, 12)
    launch.q *= 0.1
    launch.offset(np.where(far, -nats, 0)[None])
    if launch.rng.random() < 0.5:
        infinite = far[:, None] & (launch.rng.random(launch.v.shape) < 0.02)
        launch.v = np.where(infinite, launch.rng.choice([np.inf, -np.inf]), launch.v)
    else:
        size = min(np.exp(nats), 2.0**100, launch.rules.greatest / 8)
        launch.v *= np.where(far, size, 1e-8)[:, None]


@_cache_class
def few_keys_of_small_scores(launch: Launch) -> None:
    """Their log-sum-exp is near 1, and so are its digits."""
    launch.resize(keys=int(launch.rng.integers(1, 6)))
    launch.q *= launch.rng.choice([0.0, 0.01, 0.1, 0.3])


# ---- Launches by number.
SIZES = (1, 7, 16, 17, 31, 33, 63, 64, 65, 100, 128, 129, 150)


def draw(rng: np.random.Generator, kind: str) -> CacheLaunch:
    """A call of a kind, with normal numbers."""
    dtype = ("bfloat16", "float16")[int(rng.random() < 0.3)]
    dim = int(rng.choice([64, 128, 128, 192, 256, 72]))
    dims = dim, dim if rng.random() < 0.7 else int(rng.choice([64, 128, 40]))
    rows = {
        "decode": int(rng.choice([1, 1, 2, 5, 16])),
        "prefill": int(rng.choice([17, 20, 33, 64, 70])),
        "cascade": int(rng.choice([1, 1, 3, 16, 17, 40])),
    }[kind]
    keys = int(rng.choice(SIZES)) if rng.random() < 0.8 else int(rng.integers(1, 700))
    batch = int(rng.choice([1, 1, 2, 4]))
    heads = ((4, 4), (8, 2), (8, 1), (3, 1), (4, 2))[int(rng.integers(5))]
    options: dict[str, Any] = {"num_splits": int(rng.choice([0, 0, 1, 2, 3]))}
    which = rng.random()
    if which < 0.25:
        options["causal"] = True
    elif which < 0.5 and kind != "cascade":
        options["window_size"] = int(rng.integers(-1, 140)), int(rng.integers(-1, 20))
    if rng.random() < 0.1:
        options["softcap"] = float(rng.choice([1.0, 30.0, 50.0, 1000.0]))
    if rng.random() < 0.25:
        options["softmax_scale"] = float(rng.choice([1.0, -0.25, 0.05, 0.1234]))
    kernel = Kernel(kind, dtype, "rtne", *dims, False, True, True)
    launch = CacheLaunch(
        *(rng, kernel, rows, keys, (heads[0] * batch, heads[1] * batch), dims, options),
        kind=kind,
        batch=batch,
        prefix=int(rng.integers(1, 300)),
        is_paged=bool(rng.random() < 0.5),
        is_quantized=bool(rng.random() < 0.35),
    )
    if kind != "cascade":
        launch.prefix = 0
    if not launch.is_quantized and kind != "cascade" and rng.random() < 0.2:
        launch.appended = int(rng.integers(1, 4))
    if rng.random() < 0.25:
        launch.sinks = rng.standard_normal(heads[0] * batch) * rng.choice([1, 5])
    launch.settle()
    return launch


def made(kind: str, name: str, number: int, seed: int = 0) -> CacheLaunch:
    """The launch of a kind and a class with this number: always the same one."""
    rng = np.random.default_rng([seed, number, *f"{kind}/{name}".encode()])
    launch = draw(rng, kind)
    CACHE_CLASSES[name](launch)
    launch.settle()
    return launch


def sweep(
    cases: int, seed: int = 0, names: Iterable[str] = (), kinds: Iterable[str] = KINDS
) -> Iterator[Tried]:
    """Launches of each kind and class in turn until there are so many cases."""
    classes, kinds = list(names) or list(CACHE_CLASSES), list(kinds)
    done = number = 0
    while done < cases:
        for name in classes:
            for kind in kinds:
                launch = made(kind, name, number, seed)
                verdicts, control = launch.run()
                done += len(verdicts)
                yield Tried(name, launch, verdicts, control, f"{kind}/{name}/{number}/{seed}")
        number += 1
