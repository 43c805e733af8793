"""Attention of many queries over a cache: copies and appended rows, then the forward kernels. Pure.

The forward kernels read keys as consecutive rows. A launch before them appends, rotates, and copies
keys that are stored in another way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec, candidates
from amdattn.op.choices import Choices
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.op.plan import Address, Argument, Launch, Plan
from amdattn.op.support import Mismatch
from amdattn.op.workspace import Region, WorkspaceLayout
from amdattn.ops.attention import planning as attention
from amdattn.ops.attention.planning import TileChoice
from amdattn.ops.attention.select import ATTENTION
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from amdattn.ops.cache_attention.kernels import (
    CACHE_ROWS,
    LSE_GRID,
    LSE_ROWS,
    ROWS_GRID,
    Operands,
    cache_arguments,
    replaced,
    type_mismatches,
)
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem
from amdattn.scalars import LOG2_E, rest_of_float32

_INT_BYTES = 4
_LANE_COLUMNS = 8
_LONG = 3  # pieces of a workgroup, according to the performance model
_LOADS = 4  # kAtOnce of asm_src/cache/rows.h
_K, _V, _Q, _Q_SUMS, _KV_SUMS, _LSE = (
    *("k_rows", "v_rows", "q_rows", "q_sums", "kv_sums", "lse_rows"),
)
SCALES = "scales"  # a region: scales of 8-bit floats, per head, for scores and for results
_SCALE_BYTES = 16  # asm_src/attn/head_scales.h


def mismatches(kernel: KernelSpec, problem: PrefillProblem) -> list[Mismatch]:
    """Everything in `problem` that a kernel that copies caches does not support."""
    found = type_mismatches(kernel, problem)
    multiple = kernel.accepts["page_size_multiple"]
    if problem.page_size % multiple:
        found.append(Mismatch("page_size", problem.page_size, (f"multiples of {multiple}",)))
    return found


def choices(
    problem: PrefillProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> Choices[TileChoice]:
    """The forward kernels for a problem, if there is a kernel for its cache.

    Raises
    ------
    UnsupportedProblem
        There is none.
    """
    kernel_for(problem, props, rows)
    return attention.choices(problem.forward, props, able(problem, rows))


def able(problem: DecodeProblem, rows: Sequence[KernelSpec]) -> Sequence[KernelSpec]:
    """The kernels without forward kernels that do not apply the scales of 8-bit floats."""
    if not problem.is_quantized:
        return rows
    return [row for row in rows if row.op != ATTENTION or row.accepts["max_tile_heads"] == 1]


def kernel_for(
    problem: PrefillProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> KernelSpec:
    """The kernel that copies the cache of a problem.

    Raises
    ------
    UnsupportedProblem
        There is none.
    """
    found = [(row, mismatches(row, problem)) for row in candidates(rows, CACHE_ROWS, props)]
    taking = tuple(row for row, wrong in found if not wrong)
    Choices(taking, tuple(sorted(found, key=lambda one: len(one[1]))), rows).require(props)
    return taking[0]


def build(
    problem: PrefillProblem,
    props: DeviceProps,
    choice: TileChoice,
    choices: Choices[TileChoice],
    keeps_floats: bool = False,
) -> Plan[PrefillProblem]:
    """The plan of a choice.

    keeps_floats : bool
        As for the forward kernels; lse is then packed: for each head, one sequence after the other.
    """
    p = problem
    rows = choices.rows
    forward = attention.build(p.forward, props, choice, choices, keeps_floats)
    kernel = kernel_for(p, props, rows)
    reorders_lse = not keeps_floats and _reorders_lse(p)
    regions = _regions(p, reorders_lse)
    workspace = WorkspaceLayout.of((*forward.workspace.regions, *regions))
    launches = [
        rows_launch(
            p, kernel, props, frozenset(region.name for region in regions if region.name != _LSE)
        )
    ]
    launches += [
        replaced(scaled(launch) if p.is_quantized else launch, _operands(p, reorders_lse))
        for launch in forward.launches
    ]
    if reorders_lse:
        launches.append(_lse(p, candidates(rows, LSE_ROWS, props)[0]))
    reasons = {**dict(forward.reasons), **_reasons(p)}
    return Plan(problem, props, tuple(launches), workspace, tuple(reasons.items()))


def _reorders_lse(problem: PrefillProblem) -> bool:
    """Whether each sequence gets its own lse, which the forward kernels do not write."""
    return problem.return_lse and not problem.is_ragged and problem.batch > 1


def _regions(problem: PrefillProblem, reorders_lse: bool) -> tuple[Region, ...]:
    p = problem
    found = [Region(_KV_SUMS, p.num_sums * _INT_BYTES)]
    if not p.is_ragged:
        found.append(Region(_Q_SUMS, p.num_sums * _INT_BYTES))
    if p.copies_queries:
        found.append(Region(_Q, p.queries * p.num_heads_q * p.head_dim * p.itemsize))
    if p.copies_keys:
        of_row = p.max_total_kv * p.num_heads_kv * p.itemsize
        found += [Region(_K, of_row * p.head_dim), Region(_V, of_row * p.head_dim_v)]
    if p.is_quantized:
        found.append(region_of_scales(p))
    if reorders_lse:
        found.append(Region(_LSE, p.num_heads_q * p.queries * _INT_BYTES))
    return tuple(found)


def region_of_scales(problem: DecodeProblem) -> Region:
    """The region that the launch that widens 8-bit floats writes for the forward kernels."""
    return Region(SCALES, problem.num_heads_kv * _SCALE_BYTES)


def _operands(problem: PrefillProblem, reorders_lse: bool) -> Operands:
    """The operands that the forward kernels use in place of their own; with strides, if known."""
    p = problem
    found: Operands = {
        "o": ("out", {}),
        "k": ("k_cache", {}),
        "v": ("v_cache", {}),
        "cu_seqlens_q": ("cu_seqlens_q" if p.is_ragged else _Q_SUMS, {}),
        "cu_seqlens_kv": (_KV_SUMS, {}),
    }
    if p.copies_queries:
        found["q"] = _Q, {"seq": p.num_heads_q * p.head_dim, "head": p.head_dim}
    if p.copies_keys:
        for name, rows, dim in (("k", _K, p.head_dim), ("v", _V, p.head_dim_v)):
            found[name] = rows, {"seq": dim, "head": p.max_total_kv * dim}
    if not p.is_ragged:
        lse = _LSE if reorders_lse else "lse"
        found["lse"] = lse, {"head": p.queries}
    return found


def scaled(launch: Launch) -> Launch:
    """The launch with scales for widened rows, if it is one of a forward kernel."""
    if launch.kernel.op != ATTENTION:
        return launch
    args = {**dict(launch.args), "scales": Address(SCALES)}
    return dataclasses.replace(launch, args=tuple(args.items()))


def piece_heads(kernel: KernelSpec, problem: PrefillProblem) -> int:
    """The number of heads of K or of V whose 16 keys a workgroup copies at once.

    It corresponds to the loads in flight, or to one load if keys are only appended, because these
    are few.
    """
    p = problem
    at_once = kernel.tile["lanes"] // (max(p.head_dim, p.head_dim_v) // _LANE_COLUMNS)
    loads = _LOADS if p.copies_keys else 1
    return min(p.num_heads_kv, max(1, loads * at_once // kernel.tile["keys"]))


def num_workgroups(kernel: KernelSpec, problem: PrefillProblem, props: DeviceProps) -> int:
    """The number of workgroups: as many as the device holds, or half, or as there is work for.

    A workgroup takes longer to start if more workgroups start with it, but more workgroups have
    more loads in flight.
    """
    p, keys = problem, kernel.tile["keys"]
    of_sequence = p.max_seqlen_kv if p.copies_keys else p.seqlen_new
    pieces = 2 * -(-p.num_heads_kv // piece_heads(kernel, p))
    count = max(1, p.batch * -(-of_sequence // keys) * pieces)
    if p.copies_queries:
        at_once = kernel.tile["lanes"] // (p.head_dim // _LANE_COLUMNS)
        count = max(count, -(-p.queries * p.num_heads_q // at_once))
    resident = props.num_cus * workgroups_per_cu(kernel, props)[0]
    return min(count, resident if count >= _LONG * resident else resident // 2)


def rows_launch(
    problem: PrefillProblem,
    kernel: KernelSpec,
    props: DeviceProps,
    regions: frozenset[str],
    others: Mapping[str, Argument] = MappingProxyType({}),
) -> Launch:
    """The launch that appends and copies to regions; `others` replace some of its arguments."""
    kernel.check_grid(ROWS_GRID)
    p = problem
    count, heads = num_workgroups(kernel, p, props), piece_heads(kernel, p)
    # Optional operands, which are read or written only if present.
    there = {
        **{x: p.seqlen_new > 0 or p.copies_keys for x in "kv"},
        **dict.fromkeys(("q", _Q, "q_batch", "q_seq", "q_head"), p.copies_queries),
        **dict.fromkeys((_K, _V), p.copies_keys),
        **{"cu_seqlens_q": p.is_ragged, "cu_seqlens_kv": p.has_key_sums},
        **{_Q_SUMS: not p.is_ragged, _KV_SUMS: True},
        SCALES: p.is_quantized and p.copies_keys,
    }
    args = cache_arguments(p)
    args |= {name: args.get(name, Address(name)) if there[name] else 0 for name in there}
    args |= {
        "k_chunk": args["k_chunk"] or p.chunk,
        "q_group": p.num_heads_q,
        "turns_each": int(p.is_masked),
        "max_seqlen": p.max_seqlen_kv,
        "max_rows": p.max_total_kv,
        "num_workgroups": count,
        "pieces": 2 * -(-p.num_heads_kv // heads),
        "piece_heads": heads,
        "log2_rest": rest_of_float32(p.softcap * LOG2_E or p.softmax_scale_log2),
        "is_capped": int(p.softcap > 0),
        "padding": 0,
    }
    caches = frozenset({"k_cache", "v_cache"} if p.seqlen_new else ())
    fields = kernel.kernarg.filled({**args, **others})
    return Launch(kernel, (count, 1 + p.copies_queries, 1), fields, regions | caches, caches)


def _lse(problem: PrefillProblem, kernel: KernelSpec) -> Launch:
    """The launch that writes the lse of every sequence."""
    kernel.check_grid(LSE_GRID)
    p = problem
    count = p.num_heads_q * p.queries
    args: dict[str, Argument] = {
        **{"from": Address(_LSE), "from_batch": p.seqlen_q, "from_head": p.queries},
        **{"to": Address("lse"), "seqlen": p.seqlen_q, "num_heads": p.num_heads_q},
        "count": count,
    }
    fields = kernel.kernarg.filled(args)
    grid = -(-count // kernel.workgroup[0]), 1, 1
    return Launch(kernel, grid, fields, frozenset({"lse"}))


def _reasons(problem: PrefillProblem) -> Mapping[str, str]:
    """Reasons of the plan: what is copied, and what that costs."""
    p = problem
    copied = []
    if p.copies_keys:
        why = "pages" if p.page_size else "8 bits" if p.is_quantized else "strides or lengths"
        copied.append(
            f"keys and values ({why}), room for {p.max_total_kv} of all sequences: the plan "
            f"declares max_seqlen_kv={p.max_seqlen_kv} and max_total_kv={p.max_total_kv}"
        )
    else:
        copied.append("no keys or values: the cache is read as it lies")
    if p.copies_queries:
        copied.append("queries, " + ("turned" if p.rotary_dim else "as their strides need it"))
    return {
        "copies": f"{'; '.join(copied)}; {p.copied_bytes} bytes read and written of a full cache",
        "appended": f"{p.appended_bytes} bytes read and written",
    }
