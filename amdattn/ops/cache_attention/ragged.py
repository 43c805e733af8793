"""Attention of many queries over a cache: plans, and calls of chunks of several lengths."""

from __future__ import annotations

import functools
from typing import Any

from amdattn import scalars
from amdattn.arch.props import DeviceProps, as_device_props
from amdattn.arrays.buffers import View
from amdattn.arrays.interchange import as_view
from amdattn.device import manifest, runtime
from amdattn.errors import UnsupportedProblem
from amdattn.op.indices import private
from amdattn.op.outputs import output_view
from amdattn.ops.attention import no_work
from amdattn.ops.attention.options import Options
from amdattn.ops.attention.problem import VARLEN_LAYOUT
from amdattn.ops.cache_attention import prefill_planning as planning
from amdattn.ops.cache_attention.calls import declared, shape_of_table
from amdattn.ops.cache_attention.indices import COUNTED, check_pages
from amdattn.ops.cache_attention.layouts import layouts_named
from amdattn.ops.cache_attention.prefill_plan import PrefillPlan
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem
from amdattn.ops.cache_attention.quantized import BYTES


def plan_prefill(
    batch: int,
    seqlen_q: int,
    seqlen_kv: int,
    num_heads_q: int,
    num_heads_kv: int,
    head_dim: int,
    *,
    device: DeviceProps | str,
    **options: Any,
) -> PrefillPlan:
    """Plan attention of chunks of queries over a cache. No device is queried or bound.

    What `flash_attn_with_kvcache` does of more than 16 queries a sequence, and, with `total_q`,
    `flash_attn_varlen_func` with a block table.

    Parameters
    ----------
    batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim : int
        `seqlen_kv`: rows of the cache, or of all pages of a sequence.
    device : DeviceProps or str
        `amdattn.device_props()` for the bound device, or a known name such as "MI300X".
    **options
        The rest of `PrefillProblem`: causal, seqlen_new, page_size, cache_seqlens, total_q,
        max_seqlen_kv, max_total_kv, copies, ...

    Raises
    ------
    UnsupportedProblem, UnsupportedDeviceError, ValueError, TypeError
    """
    problem = PrefillProblem(
        batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim, **options
    )
    return planned(problem, as_device_props(device))


@functools.lru_cache(maxsize=1024)
def planned(problem: PrefillProblem, props: DeviceProps) -> PrefillPlan:
    """The plan of a problem on a device."""
    found = planning.choices(problem, props, manifest.kernels())
    found.require(props)
    return PrefillPlan.of(planning.build(problem, props, planning.best(found.items), found))


def attend_pages(
    q: Any,
    caches: tuple[Any, Any],
    sums: tuple[Any, Any],
    used: Any,
    longest: tuple[int, int],
    block_table: Any,
    options: Options,
    *,
    sinks: Any,
    kv_layout: str,
    descales: tuple[Any, Any],
    max_total_k: int | None,
    out: Any,
    lse: Any,
    return_lse: bool,
    stream: int,
) -> Any:
    """Attention of chunks of several lengths over a cache in pages.

    Parameters
    ----------
    sums, longest
        Of queries and of keys: rows before each sequence, and what no length is above.
    used
        How many keys sequences have (seqused_k), in place of sums; or None.
    """
    if (sums[1] is None) == (used is None):
        which = "neither" if used is None else "both"
        raise ValueError(
            f"{which} of cu_seqlens_k and seqused_k were given; with block_table one of them says "
            "how many keys sequences have"
        )
    options = options.read()
    _refuse_others(options)
    q_view = as_view(q, "q", stream)
    k, v = (as_view(x, name, stream) for x, name in zip(caches, "kv", strict=True))
    layouts = layouts_named(kv_layout)
    table = shape_of_table(block_table)
    shapes = (
        ("q", q_view.shape, "(total_q, num_heads_q, head_dim)"),
        ("k", k.shape, f"({layouts['k_cache'].text(True)})"),
        ("v", v.shape, f"({layouts['v_cache'].text(True)})"),
    )
    for name, shape, axes in shapes:
        if len(shape) != len(axes.split(",")):
            raise ValueError(f"{name} has shape {tuple(shape)}; it must be {axes}")
    with_lse = return_lse or lse is not None
    if q_view.shape[0] == 0:
        return _of_nothing(q, (q_view, k, v), (out, lse), with_lse, stream)
    ordinal = runtime.get(q_view.ordinal).ordinal
    arrays = tuple(hasattr(x, "shape") for x in descales)
    scales = tuple(
        None if is_array or x is None else scalars.number(name, x)
        for x, is_array, name in zip(descales, arrays, ("k_descale", "v_descale"), strict=True)
    )
    plan = _ragged_plan(
        ordinal,
        (q_view.shape, k.shape, v.shape, table),
        (q_view.dtype.name, k.dtype.name),
        longest,
        declared("max_total_k", max_total_k),
        (
            sinks is not None,
            used is not None,
            *(x is not None and has for x, has in zip(descales, arrays, strict=True)),
        ),
        with_lse,
        kv_layout,
        scales,
        options,
    )
    p, specs = plan.problem, plan.specs()
    views: dict[str, View] = {"q": q_view, "k_cache": k, "v_cache": v}
    counted = dict(zip(COUNTED, (block_table, used, *sums), strict=True))
    counted = {name: private(x, specs[name].title) for name, x in counted.items()}
    for name, array in (
        *counted.items(),
        *((x, y) for x, y in zip(("k_descale", "v_descale"), descales, strict=True)),
        *zip(("k_cache", "v_cache"), caches, strict=True),
        ("sinks", sinks),
    ):
        read = specs[name].host_check
        if specs[name].present and array is not None and read is not None:
            views[name] = read(array, specs[name].title, q_view.ordinal, stream)
    check_pages(counted, p)
    inputs = tuple([views[name] for name in plan.input_names])
    results = plan.execute(q, inputs, (out, lse), "", stream)
    return results if with_lse else results[0]


def _refuse_others(options: Options) -> None:
    """Raise for what only arrays without pages have."""
    for name, have in (("round_mode", "rtne"), ("top_left", False), ("dropout_p", 0.0)):
        value = getattr(options, name)
        if value != have:
            raise UnsupportedProblem(f"{name}={value} with block_table is not built (have {have})")


@functools.lru_cache(maxsize=1024, typed=True)
def _ragged_plan(
    ordinal: int,
    shapes: tuple[tuple[int, ...], ...],
    dtypes: tuple[str, str],
    longest: tuple[int, int],
    max_total_kv: int,
    given: tuple[bool, ...],
    return_lse: bool,
    kv_layout: str,
    scales: tuple[float | None, float | None],
    options: Options,
) -> PrefillPlan:
    props = runtime.get(ordinal).props
    q, k_shape, v_shape, table = shapes
    layouts = layouts_named(kv_layout)
    k, v = layouts["k_cache"].sizes(k_shape), layouts["v_cache"].sizes(v_shape)
    capacity = k["seq"] * table[1]
    sinks, cache_seqlens, k_descales, v_descales = given
    problem = PrefillProblem(
        batch=table[0],
        seqlen_q=max(1, min(longest[0], q[0])),
        seqlen_kv=capacity,
        num_heads_q=q[1],
        num_heads_kv=k["head"],
        head_dim=q[2],
        head_dim_v=v["column"],
        dtype=dtypes[0],
        kv_dtype=props.architecture.fp8 if dtypes[1] == BYTES else dtypes[1],
        softmax_scale=options.softmax_scale,
        causal=options.causal,
        window_size=options.window_size,
        softcap=options.softcap,
        sinks=sinks,
        return_lse=return_lse,
        page_size=k["seq"],
        num_pages=k["page"],
        num_splits=options.num_splits,
        kv_layout=kv_layout,
        k_descale=1.0 if scales[0] is None else scales[0],
        v_descale=1.0 if scales[1] is None else scales[1],
        k_descales=k_descales,
        v_descales=v_descales,
        cache_seqlens=cache_seqlens,
        total_q=q[0],
        max_seqlen_kv=max(1, min(longest[1], capacity)),
        max_total_kv=max_total_kv,
    )
    return planned(problem, props)


def _of_nothing(
    q: Any, views: tuple[View, View, View], given: tuple[Any, Any], with_lse: bool, stream: int
) -> Any:
    """Results of a call without queries."""
    made = tuple(
        None if x is None else output_view(x, name, stream)
        for name, x in zip(("out", "lse"), given, strict=True)
    )
    named = dict(zip("qkv", views, strict=True))
    results = no_work.results(q, named, given, made, with_lse, VARLEN_LAYOUT, stream)
    return results if with_lse else results[0]
