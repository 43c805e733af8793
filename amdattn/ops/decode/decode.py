"""Attention over a cache of keys and values: check, plan, run."""

from __future__ import annotations

import functools
from types import MappingProxyType
from typing import Any, NamedTuple

from amdattn import scalars
from amdattn.arch.props import DeviceProps, as_device_props
from amdattn.arrays.buffers import View
from amdattn.arrays.interchange import as_view
from amdattn.device import manifest, runtime
from amdattn.errors import UnsupportedDeviceError, UnsupportedProblem
from amdattn.op.mismatch import Support, all_allowed
from amdattn.ops.decode import planning
from amdattn.ops.decode.execution import DecodePlan
from amdattn.ops.decode.indices import check_pages
from amdattn.ops.decode.layouts import layouts_named
from amdattn.ops.decode.problem import DecodeProblem
from amdattn.ops.decode.quantized import BYTES

_AXES = {
    "q": "(batch, seqlen_q, num_heads_q, head_dim)",
    "k": "(batch, seqlen_new, num_heads_kv, head_dim)",
    "rotary_cos": "(positions, rotary_dim / 2)",
    "block_table": "(batch, pages of a sequence)",
}
# Values that are equal, with equal types, only to what is the same.
_PLAIN = frozenset({int, float, bool, tuple, str, type(None)})


class Options(NamedTuple):
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
        return _PLAIN.issuperset(map(type, self)) and (
            type(window) is tuple and len(window) == 2 and [*map(type, window)] == [int, int]
        )

    def read(self) -> Options:
        """The same as values of Python; TypeError for what is none."""
        return Options(
            scalars.optional_number("softmax_scale", self.softmax_scale),
            scalars.boolean("causal", self.causal),
            scalars.pair("window_size", self.window_size),
            scalars.number("softcap", self.softcap),
            scalars.boolean("rotary_interleaved", self.rotary_interleaved),
            scalars.integer("num_splits", self.num_splits),
            self.kv_layout,
            scalars.optional_number("k_descale", self.k_descale),
            scalars.optional_number("v_descale", self.v_descale),
        )


def flash_attn_with_kvcache(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    k: Any = None,
    v: Any = None,
    rotary_cos: Any = None,
    rotary_sin: Any = None,
    cache_seqlens: Any = None,
    cache_batch_idx: Any = None,
    cache_leftpad: Any = None,
    block_table: Any = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
    *,
    kv_layout: str = "NHD",
    k_descale: Any = None,
    v_descale: Any = None,
    sinks: Any = None,
    out: Any = None,
    lse: Any = None,
    stream: Any = None,
) -> Any:
    """Attention of a few queries of every sequence over a cache, to which keys may be appended.

    Names, order and meaning of the positional parameters are flash-attn's. One launch appends,
    turns and attends; the lengths are read on the device. With int32 arrays in device memory a step
    plans and waits for nothing; results that are not given and scratch memory are of the cache.

    Parameters
    ----------
    q : array, bfloat16 or float16, (batch, seqlen_q, num_heads_q, head_dim)
        Of any kind that `flash_attn_func` takes; at most 16 queries of a sequence. In device memory
        of q, the caches, k, v and out rows begin at multiples of 16 bytes.
    k_cache : array, like q, (batch_cache, seqlen_cache, num_heads_kv, head_dim)
        With `block_table` (num_pages, page_size, num_heads_kv, head_dim), page_size a multiple of
        16 up to 256. What lies behind the keys of a sequence is not looked at. Elements may be
        the device's 8-bit floats, too (float8_e4m3fnuz on gfx942, float8_e4m3fn on gfx950), or
        these as uint8.
    v_cache : array, like q, shaped like k_cache, of head_dim_v
    k, v : array, like q, (batch, seqlen_new, num_heads_kv, head_dim or head_dim_v), optional
        Written to the caches from position ``cache_seqlens[b]`` on, before the queries attend. The
        caches must be in device memory then.
    rotary_cos, rotary_sin : array, like q, (positions, rotary_dim / 2), optional
        With them k and q are turned: row i of k by the angles of position ``cache_seqlens[b] + i``;
        of q, too, if `causal` or a window is given, else all by those of ``cache_seqlens[b]``.
    cache_seqlens : int, or array of int32 or int64, (batch,), optional
        Keys that the cache has of each sequence before; an int: of all. None: it is full. In device
        memory lengths beyond the cache count as its own.
    cache_batch_idx : array of int32 or int64, (batch,), optional
        Which sequence of the caches each of q's is. Without: the same.
    cache_leftpad : array of int32 or int64, (batch,), optional
        Positions at the begin of each sequence that no query sees.
    block_table : array of int32 or int64, (batch, pages of a sequence), optional
        Position p of sequence b lies in page ``block_table[b, p // page_size]``. Entries behind the
        last key's are not looked at; several may name one page.
    softmax_scale : float, optional
        Defaults to ``1 / sqrt(head_dim)``.
    causal : bool
        Query i sees keys up to ``i + L - seqlen_q`` of the L that there are, appended ones among
        them: the last query all.
    window_size : (int, int)
        Query i sees `left` keys before and `right` behind that one; -1: all.
    softcap : float
        A score s counts as ``softcap * tanh(s / softcap)``; 0: as s.
    rotary_interleaved : bool
        Pairs are channels 2i and 2i + 1; else i and i + rotary_dim / 2.
    alibi_slopes
        Must be None.
    num_splits : int
        0: workgroups share the keys of all sequences evenly, by their true lengths. More: every
        tile of queries in as many parts, so that a sequence's result does not depend on the others
        of the call. 1: in one.
    return_softmax_lse : bool
        Return ``(out, lse)``.
    kv_layout : {"NHD", "packed", "shuffled"}
        How pages lie. "packed", as vLLM's: k_cache (num_pages, num_heads_kv, head_dim / x,
        page_size, x), x elements being 16 bytes, and v_cache (num_pages, num_heads_kv, head_dim_v,
        page_size). "shuffled", as AITER's: v_cache (num_pages, num_heads_kv, page_size / x,
        head_dim_v, x) instead. head_dim is a multiple of x then.
    k_descale, v_descale : float, or array of float32, (num_heads_kv,) or (1,), optional
        What elements of a cache of 8-bit floats are to be multiplied by; of a row that is appended
        what it is divided by. Quotients beyond the greatest number become it. None: 1.
    sinks : array, float32, (num_heads_q,), optional
        A score of every head of a key without a value, as `flash_attn_func` takes it.
    out, lse : array, optional
        Written instead of new arrays; `lse` implies `return_softmax_lse`.
    stream : hipStream_t, optional
        An int or a hip-python stream; defaults to the default stream.

    Returns
    -------
    out : array, like q, (batch, seqlen_q, num_heads_q, head_dim_v)
        Rows that see no key are 0.
    lse : array, float32, (batch, num_heads_q, seqlen_q)
        Natural log of the sum of exponentials, the sink's among them; -inf where nothing is seen.

    Raises
    ------
    UnsupportedProblem
        (a NotImplementedError and ValueError) No kernel does this; the message says what there is.
    ValueError, TypeError, BufferError
        Malformed input. Nothing was launched.
    UnsupportedDeviceError, HipError
        The device is of another architecture; a HIP call failed.
    """
    if alibi_slopes is not None:
        raise UnsupportedProblem("alibi_slopes is not built (have None)")
    check_pairs(k, v, rotary_cos, rotary_sin)
    with_lse = scalars.boolean("return_softmax_lse", return_softmax_lse) or lse is not None
    arrays_of_scales = [x if hasattr(x, "shape") else None for x in (k_descale, v_descale)]
    scales = [None if hasattr(x, "shape") else x for x in (k_descale, v_descale)]
    options = Options(
        softmax_scale,
        causal,
        window_size,
        softcap,
        rotary_interleaved,
        num_splits,
        kv_layout,
        *scales,
    )
    if not options.are_plain:
        options = options.read()
    handle = runtime.stream_handle(stream)
    arrays = {"q": q, "k_cache": k_cache, "v_cache": v_cache, "k": k, "v": v}
    arrays |= {"rotary_cos": rotary_cos, "rotary_sin": rotary_sin}
    views = {
        name: as_view(array, name, handle) for name, array in arrays.items() if array is not None
    }
    shapes: tuple[tuple[int, ...], ...] = tuple(
        views[name].shape if name in views else ()
        for name in ("q", "k_cache", "v_cache", "k", "rotary_cos")
    )
    table = () if block_table is None else _shape_of(block_table)
    given = tuple(
        x is not None
        for x in (cache_seqlens, cache_batch_idx, cache_leftpad, sinks, *arrays_of_scales)
    )
    q_view = views["q"]
    ordinal = runtime.get(q_view.ordinal).ordinal
    dtypes = q_view.dtype.name, views["k_cache"].dtype.name
    plan = _planned_for(
        ordinal, shapes, table, dtypes, given, with_lse, block_table is not None, options
    )
    specs = plan.specs()
    for name, array in (
        ("cache_seqlens", cache_seqlens),
        ("cache_batch_idx", cache_batch_idx),
        ("cache_leftpad", cache_leftpad),
        ("block_table", block_table),
        *zip(("k_descale", "v_descale"), arrays_of_scales, strict=True),
        *((name, arrays[name]) for name in ("k_cache", "v_cache")),
    ):
        read = specs[name].host_check
        if array is not None and read is not None:
            views[name] = read(array, specs[name].title, q_view.ordinal, handle)
    if sinks is not None:
        views["sinks"] = as_view(sinks, "sinks", handle)
    p = plan.problem
    if p.page_size:
        check_pages(block_table, cache_seqlens, p.page_size, p.num_pages, p.seqlen_new)
    inputs: tuple[View, ...] = tuple([views[name] for name in plan.input_names])
    results = plan.execute(q, inputs, (out, lse), "", handle)
    return results if with_lse else results[0]


def check_pairs(k: Any, v: Any, rotary_cos: Any, rotary_sin: Any) -> None:
    """That what comes in pairs does."""
    for one, other, name, missing in (
        (k, v, "k", "v"),
        (v, k, "v", "k"),
        (rotary_cos, rotary_sin, "rotary_cos", "rotary_sin"),
        (rotary_sin, rotary_cos, "rotary_sin", "rotary_cos"),
    ):
        if one is not None and other is None:
            raise ValueError(f"{name} was given, but {missing}=None; both must be, or neither")


def plan_decode(
    batch: int,
    seqlen_q: int,
    seqlen_kv: int,
    num_heads_q: int,
    num_heads_kv: int,
    head_dim: int,
    *,
    device: DeviceProps | str,
    **options: Any,
) -> DecodePlan:
    """Plan a call of `flash_attn_with_kvcache`. No device is queried or bound.

    Parameters
    ----------
    batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim : int
        `seqlen_kv` is the greatest length: rows of the cache, or of all pages of a sequence.
    device : DeviceProps or str
        `amdattn.device_props()` for the bound device, or a known name such as "MI300X".
    **options
        The rest of `DecodeProblem`: head_dim_v, dtype, causal, seqlen_new, page_size, ...

    Raises
    ------
    UnsupportedProblem, UnsupportedDeviceError, ValueError, TypeError
    """
    problem = DecodeProblem(
        batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim, **options
    )
    return planned(problem, as_device_props(device))


def supports_decode(
    batch: int,
    seqlen_q: int,
    seqlen_kv: int,
    num_heads_q: int,
    num_heads_kv: int,
    head_dim: int,
    *,
    device: DeviceProps | str,
    **options: Any,
) -> Support:
    """Whether a kernel exists for a well-formed problem; parameters as `plan_decode`.

    Returns
    -------
    Support
        True in a condition if `ok`; else `reason`, and `nearest`: arguments to change.
    """
    problem = DecodeProblem(
        batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim, **options
    )
    props = as_device_props(device)
    try:
        found = planning.choices(problem, props, manifest.kernels())
    except UnsupportedDeviceError as error:
        return Support(False, str(error))
    try:
        found.require(props)
    except UnsupportedProblem as error:
        wrong = all_allowed(found.rejected[0][1], [others for _, others in found.rejected])
        nearest = {mismatch.argument: mismatch.nearest for mismatch in wrong}
        return Support(False, str(error), MappingProxyType(nearest))
    return Support(True, f"kernel {planning.best(found.items).kernel.name}")


@functools.lru_cache(maxsize=1024, typed=True)
def _planned_for(
    ordinal: int,
    shapes: tuple[tuple[int, ...], ...],
    table: tuple[int, ...],
    dtypes: tuple[str, str],
    given: tuple[bool, ...],
    return_lse: bool,
    is_paged: bool,
    options: Options,
) -> DecodePlan:
    props = runtime.get(ordinal).props
    if dtypes[1] == BYTES:
        dtypes = dtypes[0], props.architecture.fp8
    return planned(problem_of(shapes, table, dtypes, given, return_lse, is_paged, options), props)


def problem_of(
    shapes: tuple[tuple[int, ...], ...],
    table: tuple[int, ...],
    dtypes: tuple[str, str],
    given: tuple[bool, ...],
    return_lse: bool,
    is_paged: bool,
    options: Options,
) -> DecodeProblem:
    """What arrays of these shapes ask for; what else they must be follows from it."""
    layouts = layouts_named(options.kv_layout)
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
        kv_dtype=dtypes[1],
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


def _shape_of(table: Any) -> tuple[int, ...]:
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


@functools.lru_cache(maxsize=1024)
def planned(problem: DecodeProblem, props: DeviceProps) -> DecodePlan:
    """The plan of a problem on a device."""
    found = planning.choices(problem, props, manifest.kernels())
    found.require(props)
    return DecodePlan.of(planning.build(problem, props, planning.best(found.items), found))
