"""What a call of attention over a cache asks for: options, and the problem of its arrays."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

from amdattn import scalars
from amdattn.arrays.buffers import View
from amdattn.arrays.interchange import as_view
from amdattn.device import runtime
from amdattn.op.indices import private
from amdattn.op.operands import check_placement
from amdattn.op.spec import Specs
from amdattn.ops.cache_attention.decode_problem import DecodeProblem, check_layout_of_rows
from amdattn.ops.cache_attention.indices import check_pages
from amdattn.ops.cache_attention.kernels import MOST_QUERIES
from amdattn.ops.cache_attention.layouts import layouts_named
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem
from amdattn.ops.cache_attention.quantized import BYTES

_AXES = {
    "q": "(batch, seqlen_q, num_heads_q, head_dim)",
    "k": "(batch, seqlen_new, num_heads_kv, head_dim)",
    "rotary_cos": "(positions, rotary_dim / 2)",
    "block_table": "(batch, pages of a sequence)",
}
# Types of options in their order: plans are looked up by values, of which True is equal to 1.
_NUMBER, _OR_NONE = (int, float), (int, float, type(None))
_PLAIN = frozenset(
    itertools.product(
        *(_OR_NONE, (bool,), (tuple,), _NUMBER, (bool,), (int,), (str,), _OR_NONE, _OR_NONE)
    )
)


class CacheOptions(NamedTuple):
    """What a caller asks for besides the arrays."""

    softmax_scale: float | None
    causal: bool
    window_size: tuple[int, int]
    softcap: float
    rotary_interleaved: bool
    num_splits: int
    kv_layout: str
    k_descale: float | None  # None: there is none, or an array
    v_descale: float | None

    @property
    def are_plain(self) -> bool:
        """Whether a call may be looked up by these values."""
        window = self.window_size
        return (*map(type, self),) in _PLAIN and (
            len(window) == 2 and type(window[0]) is type(window[1]) is int
        )

    def read(self) -> CacheOptions:
        """The same as values of Python; TypeError for what is none."""
        return CacheOptions(
            scalars.optional_number("softmax_scale", self.softmax_scale),
            scalars.boolean("causal", self.causal),
            scalars.window("window_size", self.window_size),
            scalars.number("softcap", self.softcap),
            scalars.boolean("rotary_interleaved", self.rotary_interleaved),
            scalars.integer("num_splits", self.num_splits),
            self.kv_layout,
            scalars.optional_number("k_descale", self.k_descale),
            scalars.optional_number("v_descale", self.v_descale),
        )


class CacheKey(NamedTuple):
    """What of a call its plan depends on."""

    shapes: tuple[tuple[int, ...], ...]
    table: tuple[int, ...]
    dtypes: tuple[str, str, str]  # of q, of the cache, of angles or ""
    given: tuple[bool, ...]
    return_lse: bool
    is_paged: bool
    options: CacheOptions
    longest: int


class CacheCall:
    """Arrays and options of a call.

    Attributes
    ----------
    views : dict of str to View
        Of q, the caches, what is appended and angles; after `complete` of all operands.
    """

    def __init__(
        self,
        arrays: Mapping[str, Any],
        options: tuple[Any, ...],
        return_lse: bool,
        max_seqlen_k: int | None,
        stream: int,
    ) -> None:
        """Read what callers give by name; `options` are those of `CacheOptions`."""
        check_pairs(arrays)
        *others, k_descale, v_descale = options
        scales = {"k_descale": k_descale, "v_descale": v_descale}
        self._arrays = {
            **arrays,
            **{name: x if hasattr(x, "shape") else None for name, x in scales.items()},
        }
        asked = CacheOptions(
            *others, *(None if hasattr(x, "shape") else x for x in scales.values())
        )
        if not asked.are_plain:
            asked = asked.read()
        self._stream = stream
        self.views: dict[str, View] = {
            name: as_view(arrays[name], name, stream)
            for name in _TENSORS
            if arrays[name] is not None or name in _NEEDED
        }
        q, table = self.views["q"], arrays["block_table"]
        self.ordinal = runtime.get(q.ordinal).ordinal
        self.key = CacheKey(
            tuple([self.views[name].shape if name in self.views else () for name in SHAPED]),
            () if table is None else shape_of_table(table),
            (
                *(q.dtype.name, self.views["k_cache"].dtype.name),
                self.views["rotary_cos"].dtype.name if "rotary_cos" in self.views else "",
            ),
            tuple([self._arrays[name] is not None for name in GIVEN]),
            return_lse,
            table is not None,
            asked,
            declared("max_seqlen_k", max_seqlen_k),
        )

    def complete(self, specs: Specs, problem: DecodeProblem) -> None:
        """See the other operands, as a plan asks for them."""
        check_placement(self.views)  # those that follow, which go where q is, are not to blame
        ordinal = self.views["q"].ordinal
        for name in _PAGES if problem.page_size else ():  # read once: two checks are of them
            self._arrays[name] = private(self._arrays[name], name)
        for name in _READ:
            array, read = self._arrays[name], specs[name].host_check
            if array is not None and read is not None:
                self.views[name] = read(array, specs[name].title, ordinal, self._stream)
        check_pages(self._arrays, problem)


_TENSORS = ("q", "k_cache", "v_cache", "k", "v", "rotary_cos", "rotary_sin")
_NEEDED = ("q", "k_cache", "v_cache")
_TOGETHER = (("k", "v"), ("rotary_cos", "rotary_sin"))
SHAPED = ("q", "k_cache", "v_cache", "k", "rotary_cos")
GIVEN = (
    *("cache_seqlens", "cache_batch_idx", "cache_leftpad", "sinks"),
    *("k_descale", "v_descale"),
)
_PAGES = ("block_table", "cache_seqlens")
_READ = (
    *("cache_seqlens", "cache_batch_idx", "cache_leftpad", "block_table"),
    *("k_descale", "v_descale", "k_cache", "v_cache", "sinks"),
)


def problem_of(key: CacheKey, fp8: str = BYTES, copies: str = "") -> DecodeProblem:
    """Of more queries than decoding kernels take a `PrefillProblem`.

    `fp8` is what bytes of a cache stand for.
    """
    problem = _problem_of(key, fp8)
    if problem.seqlen_q <= MOST_QUERIES:
        return problem
    return PrefillProblem.of(problem, key.longest, copies)


def _problem_of(key: CacheKey, fp8: str) -> DecodeProblem:
    """What arrays of these shapes ask for; what else they must be follows from it."""
    shapes, table, dtypes, given, return_lse, is_paged, options, _ = key
    layouts = layouts_named(options.kv_layout)
    if not is_paged:
        check_layout_of_rows(options.kv_layout)
    axes = _AXES | {name: f"({layout.text(is_paged)})" for name, layout in layouts.items()}
    names = ("q", "k_cache", "v_cache", "k", "rotary_cos", "block_table")
    for name, shape in zip(names, (*shapes, table), strict=True):
        if shape and len(shape) != len(axes[name].split(",")):
            raise ValueError(f"{name} has shape {shape}; it must be {axes[name]}")
    q, k_shape, v_shape, k, angles = shapes
    k_cache, v_cache = layouts["k_cache"].sizes(k_shape), layouts["v_cache"].sizes(v_shape)
    if k and k[1] == 0:
        raise ValueError(f"k has shape {k}; it must have at least one row a sequence, or be None")
    seqlens, batch_idx, leftpad, sinks, k_descales, v_descales = given
    return DecodeProblem(
        batch=q[0],
        seqlen_q=q[1],
        seqlen_kv=k_cache["seq"] * (table[1] if is_paged else 1),
        num_heads_q=q[2],
        num_heads_kv=k_cache["head"],
        head_dim=q[3],
        head_dim_v=v_cache["column"],
        dtype=dtypes[0],
        kv_dtype=fp8 if dtypes[1] == BYTES else dtypes[1],
        softmax_scale=options.softmax_scale,
        causal=options.causal,
        window_size=options.window_size,
        softcap=options.softcap,
        sinks=sinks,
        return_lse=return_lse,
        seqlen_new=k[1] if k else 0,
        page_size=k_cache["seq"] if is_paged else 0,
        num_pages=k_cache["page"],
        rotary_dim=2 * angles[1] if angles else 0,
        rotary_positions=angles[0] if angles else 0,
        rotary_interleaved=options.rotary_interleaved,
        rotary_dtype=dtypes[2],
        cache_seqlens=seqlens,
        cache_batch_idx=batch_idx,
        cache_leftpad=leftpad,
        num_splits=options.num_splits,
        kv_layout=options.kv_layout,
        k_descale=1.0 if options.k_descale is None else options.k_descale,
        v_descale=1.0 if options.v_descale is None else options.v_descale,
        k_descales=k_descales,
        v_descales=v_descales,
    )


def check_pairs(arrays: Mapping[str, Any]) -> None:
    """That what comes in pairs does."""
    for one, other in _TOGETHER:
        for name, missing in ((one, other), (other, one)):
            if arrays[name] is not None and arrays[missing] is None:
                raise ValueError(f"{name} was given, but {missing}=None; both must be, or neither")


def declared(name: str, most: int | None) -> int:
    """What a caller says that there is at most; 0: nothing."""
    if most is None:
        return 0
    found = scalars.integer(name, most)
    if found < 1:
        raise ValueError(f"{name}={found} must be at least 1, or None")
    return found


def shape_of_table(table: Any) -> tuple[int, ...]:
    """Of an array or of rows in a list."""
    shape = getattr(table, "shape", None)
    if shape is None:
        rows = table if isinstance(table, (list, tuple)) else ()
        if not rows or not isinstance(rows[0], (list, tuple, range)):
            raise TypeError(f"block_table={table!r} must be an array or a list of rows")
        return len(rows), len(rows[0])
    found = tuple(shape)
    if len(found) != 2:
        raise ValueError(f"block_table has shape {found}; it must be {_AXES['block_table']}")
    return found
