"""Kernels of attention over a cache: their names, their arguments and their operands."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from amdattn.device.manifest import KernelSpec
from amdattn.op.plan import Address, Argument, Launch, Stride
from amdattn.op.support import Mismatch
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from amdattn.ops.cache_attention.layouts import LAYOUTS

# Values of KernelSpec.op.
DECODE, CACHE_ROWS, LSE_ROWS, CASCADE_MERGE = (
    *("attn_decode", "cache_rows", "lse_rows", "cascade_merge"),
)
# Values of KernelSpec.grid. For decoding x = any number of workgroups, which share the work.
DECODE_GRID = "shares_of_work"
# x = any number of workgroups, which share the keys; y = 2 if they also copy queries.
ROWS_GRID = "shares_of_keys_and_queries"
# x = ceil(rows of all sequences and heads / lanes).
LSE_GRID = "rows_of_all_heads"
# x = ceil(rows / rows of a workgroup), each lane of which has 8 columns.
MERGE_GRID = "rows_of_all_queries_and_heads"
MOST_QUERIES = 16  # per sequence that decoding kernels support

# Replacements of operands by name, with strides that differ from those of the operand.
Operands = dict[str, tuple[str, Mapping[str, Argument]]]
_ROW_AXES = ("batch", "seq", "head")
_NUMBERS = (
    *("batch", "seqlen_q", "seqlen_new", "num_heads_q", "num_heads_kv", "group"),
    *("head_dim", "head_dim_v", "rotary_dim", "rotary_flags", "page_keys", "page_reciprocal"),
    *("num_pages", "softmax_scale_log2", "softcap", "num_splits"),
)


def type_mismatches(kernel: KernelSpec, problem: DecodeProblem) -> list[Mismatch]:
    """Element types of a problem that a kernel does not support."""
    found = []
    for name, taken in (("dtype", kernel.dtype), ("kv_dtype", kernel.params["kv_dtype"])):
        if getattr(problem, name) != taken:
            found.append(Mismatch(name, getattr(problem, name), (taken,)))
    return found


def cache_arguments(problem: DecodeProblem) -> dict[str, Argument]:
    """All arguments of kernels for a call over a cache by name; 0 for absent operands.

    Each kernel uses those in its block of arguments.
    """
    p = problem
    # For addresses: the operand, whether it is present, and the axes of its strides.
    rows: dict[str, tuple[str, object, tuple[str, ...]]] = {
        **{"q": ("q", True, _ROW_AXES), "o": ("out", True, _ROW_AXES)},
        **{f"{x}_new": (x, p.seqlen_new, _ROW_AXES) for x in "kv"},
        **{x: (f"{x}_cache", True, ("page", "head")) for x in "kv"},
        **{name: (name, p.rotary_dim, ()) for name in ("rotary_cos", "rotary_sin")},
        **{
            name: (name, getattr(p, name), ())
            for name in ("cache_seqlens", "cache_batch_idx", "cache_leftpad", "sinks")
        },
        "block_table": ("block_table", p.page_size, ()),
        "lse": ("lse", p.return_lse, ()),
        **{f"{x}_scales": (f"{x}_descale", p.is_scaled(x), ()) for x in "kv"},
    }
    args: dict[str, Argument] = {}
    for name, (operand, there, axes) in rows.items():
        args[name] = Address(operand) if there else 0
        args |= {f"{name}_{axis}": Stride(operand, axis) if there else 0 for axis in axes}

    def of_cache(x: str, axis: str, otherwise: int = 0) -> Argument:
        axes = LAYOUTS[p.kv_layout][f"{x}_cache"].axes[:-1]
        return Stride(f"{x}_cache", axis) if axis in axes else otherwise

    args |= {f"{x}_seq": of_cache(x, "seq") for x in "kv"}
    args |= {"k_chunk": of_cache("k", "column_chunk"), "v_column": of_cache("v", "column")}
    args["v_chunk"] = of_cache("v", "seq_chunk", p.chunk)
    args["table_stride"] = Stride("block_table", "batch") if p.page_size else 0
    for x in "kv":
        args[f"{x}_scale_head"] = Stride(f"{x}_descale", "head") if p.is_scaled(x) else 0
        args[f"{x}_scale"] = p.k_descale if x == "k" else p.v_descale
    args |= {name: getattr(p, name) for name in _NUMBERS}
    return args | dict(zip(("window_left", "window_right"), p.window, strict=True))


def replaced(launch: Launch, operands: Operands) -> Launch:
    """The launch with some operands replaced."""

    def name(given: str) -> str:
        return operands.get(given, (given, {}))[0]

    def argument(value: Argument) -> Argument:
        if isinstance(value, Address):
            return Address(name(value.operand))
        if isinstance(value, Stride):
            other, strides = operands.get(value.operand, (value.operand, {}))
            return strides.get(value.axis, Stride(other, value.axis))
        return value

    return dataclasses.replace(
        launch,
        args=tuple((field, argument(value)) for field, value in launch.args),
        writes=frozenset(map(name, launch.writes)),
        updates=frozenset(map(name, launch.updates)),
    )
