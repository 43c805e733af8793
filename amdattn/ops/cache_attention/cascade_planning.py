"""Attention over a shared prefix once for all sequences, over own keys, and their merge. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.op.choices import Choices, KernelChoice, fastest, kernel_choices
from amdattn.op.plan import Address, Argument, Launch, Plan, Stride
from amdattn.op.support import Mismatch
from amdattn.op.workspace import Region, WorkspaceLayout
from amdattn.ops.attention import planning as attention
from amdattn.ops.attention.planning import PlannedAttention, TileChoice
from amdattn.ops.cache_attention import decode_planning as decode, prefill_planning as prefill
from amdattn.ops.cache_attention.cascade_problem import CascadeProblem, splits_of_tiles
from amdattn.ops.cache_attention.decode_problem import DecodeProblem, as_problem
from amdattn.ops.cache_attention.kernels import CASCADE_MERGE, MERGE_GRID, Operands, replaced
from amdattn.ops.cache_attention.prefill_planning import (
    SCALES,
    able,
    kernel_for,
    region_of_scales,
    rows_launch,
    scaled,
)
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem

P = TypeVar("P")
_FLOAT_BYTES = 4
# Costs of the ways of attending over a prefix in addition to their keys, in launches, and how much
# faster than the last level cache the L2s deliver the keys of a head; fitted to modelled times.
_DECODING_LAUNCHES, _TILES_LAUNCHES, _CACHED = 2, 5, 3
QUERIES = "prefix_q"  # regions
_K, _V, PREFIX_O, _LSE, _OWN_LSE = (*("prefix_k", "prefix_v", "prefix_o", "prefix_lse", "own_lse"),)
_SCALES, _OWN_O = "prefix_scales", "own_o"


def choices(
    problem: CascadeProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> Choices[KernelChoice]:
    """Every kernel that merges results of this type."""
    return kernel_choices(problem, props, rows, CASCADE_MERGE, _mismatches, lambda *_: 0.0)


def _mismatches(kernel: KernelSpec, problem: CascadeProblem) -> list[Mismatch]:
    dtype = problem.own.dtype
    return [] if kernel.dtype == dtype else [Mismatch("dtype", dtype, (kernel.dtype,))]


def own_plan(
    problem: DecodeProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> Plan[DecodeProblem]:
    """The plan of attention over the cache alone."""
    given = problem.num_splits
    if isinstance(problem, PrefillProblem):
        in_parts = [dataclasses.replace(problem, num_splits=n) for n in splits_of_tiles(given)]
        chunked, choice, found = _best_tiles(prefill, in_parts, props, rows, given)
        return prefill.build(chunked, props, choice, found, True)
    of_few = decode.choices(problem, props, rows)
    of_few.require(props)
    return decode.build(problem, props, fastest(of_few.items), of_few, True)


@dataclass(frozen=True, slots=True)
class _Prefix:
    """Attention over the prefix.

    Attributes
    ----------
    o, lse : dict of str to int
        Strides of its results, along queries, KV heads, and query heads that share a KV head.
    """

    launches: tuple[Launch, ...]
    regions: tuple[Region, ...]
    reasons: Mapping[str, str]
    o: Mapping[str, int]
    lse: Mapping[str, int]


def build(
    problem: CascadeProblem,
    props: DeviceProps,
    choice: KernelChoice,
    choices: Choices[KernelChoice],
) -> Plan[CascadeProblem]:
    """The plan of a choice.

    Raises
    ------
    UnsupportedProblem
        No kernel attends over the prefix, or over the cache.
    """
    p, own, rows = problem, problem.own, choices.rows
    of_prefix = _prefix(p, props, rows)
    of_own = own_plan(own, props, rows)
    sizes = p.queries * own.num_heads_q
    regions = [
        Region(PREFIX_O, sizes * own.head_dim_v * _FLOAT_BYTES),
        Region(_OWN_O, sizes * own.head_dim_v * _FLOAT_BYTES),
        Region(_LSE, sizes * 2 * _FLOAT_BYTES),
        Region(_OWN_LSE, sizes * 2 * _FLOAT_BYTES),
        *of_prefix.regions,
        *of_own.workspace.regions,
    ]
    launches = [*of_prefix.launches]
    of_query = own.num_heads_q * own.head_dim_v
    compact = {"batch": own.seqlen_q * of_query, "seq": of_query, "head": own.head_dim_v}
    regions_of_own: Operands = {"lse": (_OWN_LSE, {}), "out": (_OWN_O, compact)}
    launches += [replaced(launch, regions_of_own) for launch in of_own.launches]
    launches.append(_merge(p, choice.kernel, of_prefix))
    reasons = {
        "prefix": f"{p.prefix_len} keys, {p.prefix_bytes} bytes, attended once by the {p.queries} "
        f"queries of {own.batch} sequences: {p.saved_bytes} bytes less than by each",
        **{f"prefix: {name}": text for name, text in of_prefix.reasons.items() if name != "work"},
        **dict(of_own.reasons),
        "work": f"{p.flops:.4g} floating point operations, of a full cache",
    }
    workspace = WorkspaceLayout.of(regions)
    return Plan(problem, props, tuple(launches), workspace, tuple(reasons.items()))


def _prefix(problem: CascadeProblem, props: DeviceProps, rows: Sequence[KernelSpec]) -> _Prefix:
    """Attention over the prefix, by a decoding kernel if that takes less time.

    Each tile of rows of a decoding kernel reads all keys.
    """
    p, given, kernels = problem, problem.own.num_splits, able(problem.own, rows)
    in_parts = [p.forward(parts) for parts in splits_of_tiles(given)]
    forward, tiled, of_tiles = _best_tiles(attention, in_parts, props, kernels, given)
    launch_clk = props.architecture.launch_us * 1e3 * props.peak_clock_ghz
    decoded = None if p.is_chunked else _least_decoding(p, props, rows)
    clk = tiled.estimated_clk + launch_clk * (_TILES_LAUNCHES + (p.prefix_pages > 0))
    if decoded and decoded.clk <= clk:
        return _by_decoding(p, props, rows, decoded, clk)
    why = {}
    if decoded:
        why = {"instead": f"decoding, {decoded.clk:.0f} clk; tiles of rows, {clk:.0f} clk"}
    found = attention.build(forward, props, tiled, of_tiles, True)
    return _by_tiles(p, props, rows, found, why)


def _best_tiles(
    planner: Any,
    problems: Sequence[P],
    props: DeviceProps,
    rows: Sequence[KernelSpec],
    given_splits: int,
) -> tuple[P, TileChoice, Choices[TileChoice]]:
    """The fastest of problems in several parts, with its tiles, and all tiles that there are.

    With a given number of parts the tiles do not depend on the batch; otherwise they are the
    fastest for this batch.
    """
    found = []
    for problem in problems:
        of_parts: Choices[TileChoice] = planner.choices(problem, props, rows)
        of_parts.require(props)
        best = fastest(of_parts.items)
        if not given_splits:
            best = min(of_parts.items, key=lambda choice: choice.estimated_clk)
        found.append((problem, best, of_parts))
    return min(found, key=lambda one: one[1].estimated_clk)


def _least_decoding(
    problem: CascadeProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> decode.Choice | None:
    """The best decoding kernel; these support any number of queries if none is masked.

    It is the one with the fewest rows, because parts with many rows take long to merge. Each tile
    of rows reads all keys, and all but the first tile read them from caches.
    """
    whole = problem.decoded
    of_one = decode.choices(dataclasses.replace(whole, seqlen_q=1), props, rows)
    if not of_one.items:
        return None
    kernel = min((one.kernel for one in of_one.items), key=lambda row: int(row.params["rows"]))
    width = whole.num_heads_kv * (whole.head_dim + whole.head_dim_v) * whole.kv_itemsize
    read = decode.row_tiles(kernel, whole) * problem.prefix_len * width
    fixed = _DECODING_LAUNCHES * props.architecture.launch_us * 1e3
    # Workgroups are distributed over the XCDs round robin. If the number of parts of each tile is a
    # multiple of the XCDs, each XCD has the same keys of all tiles.
    count, tiles = decode.workgroups(kernel, whole, props), decode.items(kernel, whole)
    in_parts = tiles * props.num_xcds
    of_xcd = problem.prefix_bytes // whole.num_heads_kv
    if in_parts <= count and not whole.num_splits:
        count = count // in_parts * in_parts
        of_xcd = problem.prefix_bytes // props.num_xcds
    fits = of_xcd <= props.architecture.l2_bytes
    rate = props.mall_bytes_per_ns * (_CACHED if fits else 1)
    clk = (fixed + read / rate) * props.peak_clock_ghz
    return decode.Choice(kernel, count, clk)


def _by_decoding(
    problem: CascadeProblem,
    props: DeviceProps,
    rows: Sequence[KernelSpec],
    choice: decode.Choice,
    otherwise_clk: float,
) -> _Prefix:
    p, own = problem, problem.own
    found = decode.build(p.decoded, props, choice, Choices((choice,), (), rows), True)
    width, row = own.head_dim_v, own.num_heads_q * own.head_dim_v
    operands: Operands = {
        "out": (PREFIX_O, {"batch": 0, "seq": row, "head": width}),
        "lse": (_LSE, {}),
    }
    queries = []
    if p.copies_queries:
        queries.append(_queries(p, props, rows, own.num_heads_q))
        of_query = own.num_heads_q * own.head_dim
        operands["q"] = QUERIES, {"batch": 0, "seq": of_query, "head": own.head_dim}
    elif own.seqlen_q == 1:
        operands["q"] = "q", {"batch": 0, "seq": Stride("q", "batch")}
    if p.prefix_pages:
        operands["block_table"] = "prefix_table", {"batch": 0}
    else:
        operands |= {f"{x}_cache": (f"{x}_prefix", {"page": 0}) for x in "kv"}
    regions, (launch,) = _of_prefix(found, operands)
    args = {**dict(launch.args), "max_seqlen": p.prefix_len}
    launch = dataclasses.replace(launch, args=tuple(args.items()))
    instead = f"tiles of rows, {otherwise_clk:.0f} clk; decoding, {choice.clk:.0f} clk"
    return _Prefix(
        (*queries, launch),
        (*regions, *(_region_of_queries(p) for _ in queries)),
        {**dict(found.reasons), "instead": instead},
        {"query": row, "kv": own.group * width, "member": width},
        {"query": 1, "kv": own.group * p.queries, "member": p.queries},
    )


def _of_prefix(found: Plan[Any], operands: Operands) -> tuple[list[Region], list[Launch]]:
    """The scratch memory of a plan, with names that differ from own keys', and its launches."""
    names = {region.name: f"prefix_{region.name}" for region in found.workspace.regions}
    named = [dataclasses.replace(one, name=names[one.name]) for one in found.workspace.regions]
    others: Operands = {**{name: (other, {}) for name, other in names.items()}, **operands}
    return named, [replaced(launch, others) for launch in found.launches]


def _by_tiles(
    problem: CascadeProblem,
    props: DeviceProps,
    rows: Sequence[KernelSpec],
    found: PlannedAttention,
    why: Mapping[str, str],
) -> _Prefix:
    """Attention by forward kernels, whose rows are queries and heads that share a KV head."""
    p, own = problem, problem.own
    regions = [_region_of_queries(p)]
    launches = [_queries(p, props, rows, own.group)]
    if p.prefix_pages:
        of_row = p.prefix_len * own.num_heads_kv * own.itemsize
        regions += [Region(_K, of_row * own.head_dim), Region(_V, of_row * own.head_dim_v)]
        if own.is_quantized:
            regions.append(dataclasses.replace(region_of_scales(own), name=_SCALES))
        launches.append(_gather(p, props, rows))
    if own.is_quantized:
        found = dataclasses.replace(found, launches=tuple(map(scaled, found.launches)))
    of_found, attending = _of_prefix(found, _operands(p))
    width, group = own.head_dim_v, own.group
    return _Prefix(
        (*launches, *attending),
        (*regions, *of_found),
        {**dict(found.reasons), **why},
        {"query": group * width, "kv": p.queries * group * width, "member": width},
        {"query": group, "kv": p.queries * group, "member": 1},
    )


def _region_of_queries(problem: CascadeProblem) -> Region:
    own = problem.own
    return Region(QUERIES, problem.queries * own.num_heads_q * own.head_dim * own.itemsize)


def _operands(problem: CascadeProblem) -> Operands:
    """The operands that the forward kernels read and write in place of their own."""
    p, own = problem, problem.own
    rows = p.queries * own.group

    def of_heads(name: str, length: int, dim: int) -> tuple[str, Mapping[str, Argument]]:
        return name, {"batch": 0, "seq": dim, "head": length * dim}

    found: Operands = {
        SCALES: (_SCALES, {}),
        "q": of_heads(QUERIES, rows, own.head_dim),
        "o": of_heads(PREFIX_O, rows, own.head_dim_v),
        "lse": (_LSE, {"batch": 0, "head": rows}),
    }
    for name, copy, dim in (("k", _K, own.head_dim), ("v", _V, own.head_dim_v)):
        if p.prefix_pages:
            found[name] = of_heads(copy, p.prefix_len, dim)
        else:
            found[name] = f"{name}_prefix", {"batch": 0}
    return found


def _queries(
    problem: CascadeProblem, props: DeviceProps, rows: Sequence[KernelSpec], group: int
) -> Launch:
    """The launch that copies and rotates queries, with `group` adjacent heads of each."""
    own = problem.own
    # Only lengths of the cache are read, to rotate queries.
    alone = as_problem(
        PrefillProblem,
        own,
        **{"kv_dtype": own.dtype, "kv_layout": "NHD", "page_size": 0, "num_pages": 0},
        **{"cache_batch_idx": False, "cache_leftpad": False, "copies": "q"},
        **{f"{x}_{y}": z for x in "kv" for y, z in (("descale", 1.0), ("descales", False))},
    )
    longest = own.max_seqlen_kv if isinstance(own, PrefillProblem) else own.seqlen_kv
    kernel = kernel_for(alone, props, rows)
    launch = rows_launch(alone, kernel, props, frozenset())
    of_queries = {"q", "q_rows", "rotary_cos", "rotary_sin", "cache_seqlens"}
    args: dict[str, Argument] = {
        name: 0
        if isinstance(value, (Address, Stride)) and value.operand not in of_queries
        else value
        for name, value in launch.args
    }
    args |= {"seqlen_new": 0, "max_seqlen": longest - own.seqlen_new, "q_group": group}
    launch = Launch(kernel, launch.grid, tuple(args.items()), frozenset({"q_rows"}))
    return replaced(launch, {"q_rows": (QUERIES, {})})


def _gather(problem: CascadeProblem, props: DeviceProps, rows: Sequence[KernelSpec]) -> Launch:
    """The launch that copies the prefix out of its pages."""
    p = problem.gathered
    written = frozenset({"k_rows", "v_rows"} | ({SCALES} if p.is_quantized else set()))
    others: dict[str, Argument] = {"q_sums": 0, "kv_sums": 0}
    launch = rows_launch(p, kernel_for(p, props, rows), props, written, others)
    return replaced(
        launch,
        {
            "k_rows": (_K, {}),
            "v_rows": (_V, {}),
            SCALES: (_SCALES, {}),
            "block_table": ("prefix_table", {"batch": 0}),
        },
    )


def _merge(problem: CascadeProblem, kernel: KernelSpec, prefix: _Prefix) -> Launch:
    """The launch that merges attention over the prefix into that over own keys."""
    kernel.check_grid(MERGE_GRID)
    p, own = problem, problem.own
    of_sequence = own.seqlen_q if p.is_chunked else own.num_heads_q * own.seqlen_q
    args: dict[str, Argument] = {
        "own_lse_batch": of_sequence,
        "own_lse_head": p.queries if p.is_chunked else own.seqlen_q,
        **{
            "prefix_o": Address(PREFIX_O),
            "prefix_lse": Address(_LSE),
            "own_lse": Address(_OWN_LSE),
        },
        "own_o": Address(_OWN_O),
        "o": Address("out"),
        "lse": Address("lse") if p.return_lse else 0,
        **{f"prefix_o_{axis}": stride for axis, stride in prefix.o.items()},
        **{f"prefix_lse_{axis}": stride for axis, stride in prefix.lse.items()},
        **{f"o_{axis}": Stride("out", axis) for axis in ("batch", "seq", "head")},
        "rows": p.queries * own.num_heads_q,
        **{name: getattr(own, name) for name in ("seqlen_q", "num_heads_q", "group", "head_dim_v")},
    }
    fields = kernel.kernarg.filled(args)
    at_once = kernel.tile["lanes"] // (own.head_dim_v // kernel.tile["columns"])
    grid = -(-p.queries * own.num_heads_q // at_once), 1, 1
    writes = frozenset({"out", "lse"} if p.return_lse else {"out"})
    return Launch(kernel, grid, fields, writes)
