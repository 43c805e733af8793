"""Calls of attention over a cache: their arguments and options, and the problem of their arrays."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from amdattn import scalars
from amdattn.arrays.interchange import as_view
from amdattn.arrays.views import View
from amdattn.device import runtime
from amdattn.op.indices import private
from amdattn.op.operands import check_placement
from amdattn.op.spec import Specs
from amdattn.ops.attention.options import is_window, plain_types, read, refuse
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from amdattn.ops.cache_attention.indices import COUNTED, check_pages
from amdattn.ops.cache_attention.kernels import MOST_QUERIES
from amdattn.ops.cache_attention.layouts import LAYOUTS, layouts_named
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem
from amdattn.ops.cache_attention.quantized import BYTES

_AXES = {
    "q": "(batch, seqlen_q, num_heads_q, head_dim)",
    "k": "(batch, seqlen_new, num_heads_kv, head_dim)",
    "rotary_cos": "(positions, rotary_dim / 2)",
    "block_table": "(batch, pages of a sequence)",
}


class CacheOptions(NamedTuple):
    """Options of a call that are not arrays."""

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
        """Whether plans may be looked up by these values."""
        return (*map(type, self),) in _PLAIN and is_window(self.window_size)

    def read(self) -> CacheOptions:
        """The options as Python values; raises TypeError for anything else."""
        return CacheOptions(**read(self))


# Plans are looked up by values, of which True is equal to 1.
_PLAIN = plain_types(CacheOptions)


class CacheArguments(NamedTuple):
    """Arguments of `flash_attn_with_kvcache`, and at the end those of chunks of several lengths."""

    q: Any
    k_cache: Any
    v_cache: Any
    k: Any = None
    v: Any = None
    rotary_cos: Any = None
    rotary_sin: Any = None
    cache_seqlens: Any = None
    cache_batch_idx: Any = None
    cache_leftpad: Any = None
    block_table: Any = None
    softmax_scale: float | None = None
    causal: bool = False
    window_size: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    rotary_interleaved: bool = True
    alibi_slopes: None = None
    num_splits: int = 0
    return_softmax_lse: bool = False
    kv_layout: str = "NHD"
    k_descale: Any = None
    v_descale: Any = None
    max_seqlen_k: int | None = None
    sinks: Any = None
    out: Any = None
    lse: Any = None
    stream: Any = None
    cu_seqlens_q: Any = None
    cu_seqlens_kv: Any = None

    @property
    def options(self) -> CacheOptions:
        """The arguments that are not arrays."""
        k, v = self.k_descale, self.v_descale
        numbers = [None if hasattr(k, "shape") else k, None if hasattr(v, "shape") else v]
        return CacheOptions(*_options(self), *numbers)

    @property
    def arrays(self) -> dict[str, Any]:
        """The arrays by name, or None; raises ValueError if only one of a pair is given."""
        refuse("alibi_slopes", self.alibi_slopes)
        found = dict(zip(_ARRAYS, _arrays(self), strict=True))
        for name in SCALES:
            if found[name] is not None and not hasattr(found[name], "shape"):
                found[name] = None  # a number
        for given, missing in _PAIRS:
            if found[given] is not None and found[missing] is None:
                raise ValueError(f"{given} was given, but {missing}=None; both must be, or neither")
        return found


# Operands that are arrays.
_TENSORS = ("q", "k_cache", "v_cache", "k", "v", "rotary_cos", "rotary_sin")
_NEEDED = ("q", "k_cache", "v_cache")
_PAIRS = (("k", "v"), ("v", "k"), ("rotary_cos", "rotary_sin"), ("rotary_sin", "rotary_cos"))
_RAGGED_LABELS = {"k_cache": "k", "v_cache": "v"}
_SHAPED = ("q", "k_cache", "v_cache", "k", "rotary_cos")
INDICES = ("cache_seqlens", "cache_batch_idx", "cache_leftpad", "block_table")
SCALES = ("k_descale", "v_descale")
_SUMS = ("cu_seqlens_q", "cu_seqlens_kv")
_ARRAYS = (*_TENSORS, *INDICES, *SCALES, "sinks", *_SUMS)
_READ = (*INDICES, *_SUMS, *SCALES, "k_cache", "v_cache", "sinks")
# Optional arrays by the field of a problem that says whether they are given.
_GIVEN = {
    **{name: name for name in (*INDICES[:3], "sinks")},
    **{f"{name}s": name for name in SCALES},
}
_arrays, _options = attrgetter(*_ARRAYS), attrgetter(*CacheOptions._fields[:-2])


class CacheKey(NamedTuple):
    """The facts of a call on which its plan depends."""

    shapes: tuple[tuple[int, ...], ...]  # of _SHAPED
    table: tuple[int, ...]
    dtypes: tuple[str, str, str]  # of q, of the cache, of angles or ""
    given: tuple[bool, ...]  # of _GIVEN
    return_lse: bool
    is_paged: bool
    options: CacheOptions
    longest: int  # declared keys of the longest sequence; 0: not declared
    longest_chunk: int = 0  # queries of the longest chunk; 0: chunks have one length
    max_total_kv: int = 0

    @staticmethod
    def of(
        tensors: Mapping[str, Any],
        given: Mapping[str, Any],
        options: CacheOptions,
        return_lse: bool,
        longest: int,
        *of_ragged: int,
    ) -> CacheKey:
        """The key of a call from `tensors`, which have shapes and types, and all given arrays."""
        table = given["block_table"]
        angles = tensors.get("rotary_cos")
        return CacheKey(
            tuple([tensors[name].shape if name in tensors else () for name in _SHAPED]),
            () if table is None else shape_of_table(table),
            (
                *(tensors["q"].dtype.name, tensors["k_cache"].dtype.name),
                "" if angles is None else angles.dtype.name,
            ),
            tuple([given[name] is not None for name in _GIVEN.values()]),
            return_lse,
            table is not None,
            options,
            longest,
            *of_ragged,
        )


class CacheCall:
    """Arrays and options of a call.

    Attributes
    ----------
    views : dict of str to View
        Views of q, the caches, appended rows and angles; after `complete` of all operands.
    """

    def __init__(self, asked: CacheArguments, longest: int, *of_ragged: int) -> None:
        """Read the arguments; the numbers are the last fields of `CacheKey`."""
        with_lse = scalars.boolean("return_softmax_lse", asked.return_softmax_lse)
        self.stream = runtime.stream_handle(asked.stream)
        self._arrays = given = asked.arrays
        options = asked.options
        if not options.are_plain:
            options = options.read()
        labels = _RAGGED_LABELS if of_ragged else {}
        self.views: dict[str, View] = {
            name: as_view(given[name], labels.get(name, name), self.stream)
            for name in _TENSORS
            if given[name] is not None or name in _NEEDED
        }
        with_lse = with_lse or asked.lse is not None
        self.key = CacheKey.of(self.views, given, options, with_lse, longest, *of_ragged)

    @property
    def ordinal(self) -> int:
        """The device that runs it."""
        return runtime.get(self.views["q"].ordinal).ordinal

    def complete(self, specs: Specs, problem: DecodeProblem) -> None:
        """Make views of the other operands that a plan needs."""
        q = self.views["q"]
        if any([view.ordinal != q.ordinal for view in self.views.values()]):
            # Checked first: the operands that follow are placed on the device of q.
            check_placement({specs[name].title: view for name, view in self.views.items()})
        arrays = self._arrays
        for name in COUNTED if problem.page_size else ():  # read once for two checks
            if arrays[name] is not None:
                arrays[name] = private(arrays[name], specs[name].title if name in specs else name)
        for name in _READ:
            if arrays[name] is not None and name in specs:
                spec = specs[name]
                if spec.present and spec.host_check is not None:
                    read = spec.host_check(arrays[name], spec.title, q.ordinal, self.stream)
                    self.views[name] = read
        check_pages(self._arrays, problem)

    def run(self, plan: Any, asked: CacheArguments) -> Any:
        """Run a plan and return its results as requested."""
        inputs = tuple([self.views[name] for name in plan.input_names])
        results = plan.execute(asked.q, inputs, (asked.out, asked.lse), "", self.stream)
        return results if self.key.return_lse else results[0]


def check_axes(key: CacheKey) -> None:
    """Raise ValueError if an array has a wrong number of axes."""
    layouts = layouts_named(key.options.kv_layout, key.is_paged)
    is_ragged = key.longest_chunk > 0
    axes = _AXES | {name: f"({layout.text(key.is_paged)})" for name, layout in layouts.items()}
    axes |= {"q": "(total_q, num_heads_q, head_dim)"} if is_ragged else {}
    for name, shape in zip((*_SHAPED, "block_table"), (*key.shapes, key.table), strict=True):
        if shape and len(shape) != len(axes[name].split(",")):
            label = _RAGGED_LABELS.get(name, name) if is_ragged else name
            raise ValueError(f"{label} has shape {shape}; it must be {axes[name]}")


def problem_of(key: CacheKey, fp8: str = BYTES, copies: str = "") -> DecodeProblem:
    """The problem of a call: a `PrefillProblem` for more queries than decoding kernels support.

    All other requirements on arrays follow from it. `fp8` is the element type of a cache of bytes.
    """
    check_axes(key)
    shapes, table, dtypes, given, return_lse, is_paged, options, longest, longest_chunk, _ = key
    layouts = LAYOUTS[options.kv_layout]
    (*rows, heads, head_dim), k_shape, v_shape, k, angles = shapes
    k_cache, v_cache = layouts["k_cache"].sizes(k_shape), layouts["v_cache"].sizes(v_shape)
    if k and k[1] == 0:
        raise ValueError(f"k has shape {k}; it must have at least one row a sequence, or be None")
    capacity = k_cache["seq"] * (table[1] if is_paged else 1)
    named: dict[str, Any] = dict(zip(_GIVEN, given, strict=True))
    named |= {name: x for name, x in options._asdict().items() if x is not None}
    named |= {
        **{"seqlen_kv": capacity, "num_heads_q": heads, "num_heads_kv": k_cache["head"]},
        **{"head_dim": head_dim, "head_dim_v": v_cache["column"], "return_lse": return_lse},
        **{"dtype": dtypes[0], "kv_dtype": fp8 if dtypes[1] == BYTES else dtypes[1]},
        **{"page_size": k_cache["seq"] if is_paged else 0, "num_pages": k_cache["page"]},
        **{"seqlen_new": k[1] if k else 0, "rotary_dtype": dtypes[2]},
    }
    if angles:
        named |= {"rotary_dim": 2 * angles[1], "rotary_positions": angles[0]}
    if longest_chunk:
        return PrefillProblem(
            *(table[0], max(1, min(longest_chunk, rows[0]))),
            total_q=rows[0],
            max_seqlen_kv=max(1, min(longest, capacity)),
            max_total_kv=key.max_total_kv,
            **named,
        )
    problem = DecodeProblem(rows[0], rows[1], **named)
    if problem.seqlen_q <= MOST_QUERIES:
        return problem
    return PrefillProblem.of(problem, longest, copies)


def declared(name: str, most: int | None) -> int:
    """The limit that a caller declares; 0 if none."""
    if most is None:
        return 0
    found = scalars.integer(name, most)
    if found < 1:
        raise ValueError(f"{name}={found} must be at least 1, or None")
    return found


def shape_of_table(table: Any) -> tuple[int, ...]:
    """The shape of a table: an array, or rows in a list."""
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
