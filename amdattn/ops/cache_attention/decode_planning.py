"""Chooses the kernel that attends over a cache, its workgroups and its scratch memory. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec, candidates
from amdattn.op.choices import Choices, Rejected
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.op.plan import Address, Argument, Launch, PerRun, Plan
from amdattn.op.support import Mismatch, Span
from amdattn.op.workspace import Region, WorkspaceLayout
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from amdattn.ops.cache_attention.kernels import (
    DECODE,
    DECODE_GRID,
    MOST_QUERIES,
    cache_arguments,
    type_mismatches,
)
from amdattn.ops.cache_attention.layouts import LAYOUTS
from amdattn.scalars import rest_of_float32

HEAD_DIM_MULTIPLE = 8  # elements that a lane loads at a time
# As for the forward kernels: capped scores are accurate to 2^-21 of the cap.
_SOFTCAPS = 2.0**-10, 2.0**10
PAGE_SIZES = tuple(range(16, 257, 16))
COUNTER_BYTES = 8  # per item: which parts have arrived, and in which run
_FLOAT_BYTES = 4
# In addition to its columns, a row of partial results has its reference and its sum.
_OF_ROW = 2


@dataclass(frozen=True, slots=True)
class Choice:
    """A kernel, the workgroups that share the work, and their estimated clk."""

    kernel: KernelSpec
    num_workgroups: int
    clk: float

    @property
    def facts(self) -> dict[str, object]:
        """The facts that distinguish it from other choices."""
        return {"kernel": self.kernel.name}


def mismatches(kernel: KernelSpec, problem: DecodeProblem) -> list[Mismatch]:
    """Everything in `problem` that `kernel` does not implement; empty if it solves it."""
    found = type_mismatches(kernel, problem)
    if problem.is_packed != kernel.params["packed"]:
        allowed = [name for name in LAYOUTS if (name != "NHD") == kernel.params["packed"]]
        found.append(Mismatch("kv_layout", problem.kv_layout, tuple(allowed)))
    columns = kernel.params["columns"]
    for name in ("head_dim", "head_dim_v"):
        dim = getattr(problem, name)
        if dim > columns:
            found.append(Mismatch(name, dim, (Span(HEAD_DIM_MULTIPLE, columns),)))
        elif dim % HEAD_DIM_MULTIPLE:
            found.append(Mismatch(name, dim, (f"multiples of {HEAD_DIM_MULTIPLE}",)))
    if problem.seqlen_q > MOST_QUERIES:
        found.append(Mismatch("seqlen_q", problem.seqlen_q, (Span(1, MOST_QUERIES),)))
    least, most = _SOFTCAPS
    if problem.softcap and not least <= problem.softcap <= most:
        found.append(Mismatch("softcap", problem.softcap, (0.0, Span(least, most))))
    if problem.page_size and problem.page_size not in PAGE_SIZES:
        found.append(Mismatch("page_size", problem.page_size, PAGE_SIZES))
    return found


def row_tiles(kernel: KernelSpec, problem: DecodeProblem) -> int:
    """Tiles of the queries that share a KV head."""
    rows: int = kernel.params["rows"]
    return -(-problem.seqlen_q * problem.group // rows)


def items(kernel: KernelSpec, problem: DecodeProblem) -> int:
    """Tiles of queries of all sequences and KV heads."""
    return problem.batch * problem.num_heads_kv * row_tiles(kernel, problem)


def key_tiles(kernel: KernelSpec, problem: DecodeProblem) -> int:
    """The most units of work of an item; a window need not begin at the start of one."""
    tile = kernel.tile["keys"]
    of_cache = -(-problem.seqlen_kv // tile)
    return min(of_cache, -(-problem.seen_keys // tile) + 1)


def workgroups(kernel: KernelSpec, problem: DecodeProblem, props: DeviceProps) -> int:
    """The number of workgroups: one per CU, or as many as there is work for.

    Two per CU would not load keys faster, and would double the parts. If possible it is a multiple
    of the items, so that with equal sequences no workgroup has parts of two items.
    """
    resident = props.num_cus
    parts, count = problem.num_splits or key_tiles(kernel, problem), items(kernel, problem)
    return min(count * parts, resident // count * count or resident)


def slots(kernel: KernelSpec, problem: DecodeProblem, num_workgroups: int) -> int:
    """The number of partial results: one per part, or two per workgroup.

    A workgroup may share its first and its last item with others. If the device chooses the parts,
    there are at most as many as workgroups.
    """
    if problem.num_splits == 1:
        return 0
    if problem.num_splits:
        return items(kernel, problem) * problem.num_splits
    return 2 * num_workgroups


def most_parts(kernel: KernelSpec, problem: DecodeProblem, num_workgroups: int) -> int:
    """The most parts of an item that the device may choose; 0: it has to share by keys."""
    return 0 if problem.num_splits else num_workgroups // items(kernel, problem)


def slot_bytes(kernel: KernelSpec) -> int:
    """Bytes of a partial result."""
    rows, columns = kernel.params["rows"], kernel.params["columns"]
    return int(rows * (columns + _OF_ROW) * _FLOAT_BYTES)


def cost_clk(
    kernel: KernelSpec, problem: DecodeProblem, num_workgroups: int, props: DeviceProps
) -> float:
    """Estimated clk with a full cache, for a choice among kernels.

    The estimate is the greater of the time of HBM for keys and values, which every tile of queries
    reads anew, and the time of the matrix units for whole tiles, plus writes and reads of partial
    results. It uses published rates, so only ratios are meaningful, not times.
    """
    rows, columns = kernel.params["rows"], kernel.params["columns"]
    tiles = items(kernel, problem) * key_tiles(kernel, problem)
    width = problem.head_dim + problem.head_dim_v
    read = items(kernel, problem) * problem.seen_keys * width * problem.kv_itemsize
    hbm = read / (props.hbm_bytes_per_ns / props.peak_clock_ghz)
    flops = 2 * rows * kernel.tile["keys"] * 2 * columns
    cus = min(num_workgroups, props.num_cus)
    of_cu = math.ceil(tiles / num_workgroups) * math.ceil(num_workgroups / cus)
    matrix = of_cu * flops / props.architecture.matrix_flops_per_clk
    moved = 2 * slots(kernel, problem, num_workgroups) * slot_bytes(kernel)
    partials = moved / (props.mall_bytes_per_ns / props.peak_clock_ghz)
    found: float = props.hbm_latency_clk + max(hbm, matrix) + partials
    return found


def choices(
    problem: DecodeProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> Choices[Choice]:
    """Kernels that solve a problem with the fewest columns, for every number of rows."""
    found = [(row, mismatches(row, problem)) for row in candidates(rows, DECODE, props)]
    taking = [row for row, wrong in found if not wrong]
    columns = min((row.params["columns"] for row in taking), default=0)
    taking = [row for row in taking if row.params["columns"] == columns]
    taking.sort(key=lambda row: row.params["rows"])
    counts = [(row, workgroups(row, problem, props)) for row in taking]
    made = [Choice(row, count, cost_clk(row, problem, count, props)) for row, count in counts]
    rejected = sorted(((row, wrong) for row, wrong in found if wrong), key=_distance)
    return Choices(tuple(made), tuple(rejected), rows)


def _distance(rejected: Rejected) -> tuple[int, int]:
    """The distance of a rejected kernel: fewest differences first, then most columns."""
    kernel, wrong = rejected
    return len(wrong), -kernel.params["columns"]


def build(
    problem: DecodeProblem,
    props: DeviceProps,
    choice: Choice,
    choices: Choices[Choice],
    keeps_floats: bool = False,
) -> Plan[DecodeProblem]:
    """The plan of a choice; with `keeps_floats` O stays float32, to be merged with other keys."""
    kernel, count = choice.kernel, choice.num_workgroups
    kernel.check_grid(DECODE_GRID)
    workspace = _workspace(problem, kernel, count)
    args = {
        **_arguments(problem, kernel, count, bool(workspace.regions)),
        "keeps_floats": int(keeps_floats),
    }
    fields = kernel.kernarg.filled(args)
    per_cu, limit = workgroups_per_cu(kernel, props)
    tried = ", ".join(f"{one.kernel.name}: {one.clk:.0f} clk" for one in choices.items)
    caches = {"k_cache", "v_cache"} if problem.seqlen_new else set()
    regions = {region.name for region in workspace.regions}
    writes = {"out", *caches, *regions} | ({"lse"} if problem.return_lse else set())
    counters = {region.name for region in workspace.regions if region.init == "zero_at_rest"}
    launch = Launch(kernel, (count, 1, 1), fields, frozenset(writes), frozenset(caches | counters))
    tile, params = kernel.tile, kernel.params
    reasons = {
        "why this kernel": f"least estimated time: {tried}",
        "tiles": f"{row_tiles(kernel, problem)} of {params['rows']} rows for the "
        f"{problem.seqlen_q} x {problem.group} of a head of keys; up to "
        f"{key_tiles(kernel, problem)} of {tile['keys']} keys",
        "splits": _splits_text(problem, kernel, count),
        "workgroups per CU": f"1; {per_cu} would fit, limited by {limit}",
        "work": f"{problem.nbytes} bytes and {problem.flops:.4g} floating point operations, of a "
        "full cache",
    }
    return Plan(problem, props, (launch,), workspace, tuple(reasons.items()))


def _splits_text(problem: DecodeProblem, kernel: KernelSpec, num_workgroups: int) -> str:
    parts = problem.num_splits
    if parts:
        return f"{parts} of each of {items(kernel, problem)} tiles: num_splits={parts} was given"
    alike = most_parts(kernel, problem, num_workgroups)
    shares = f"{num_workgroups} equal shares of {items(kernel, problem)} tiles' keys"
    if not alike:
        return f"{shares}, by the lengths that the device has"
    return f"by the lengths that the device has: at most {alike} of each tile, or {shares}"


def _workspace(problem: DecodeProblem, kernel: KernelSpec, count: int) -> WorkspaceLayout:
    num_slots = slots(kernel, problem, count)
    if not num_slots:
        return WorkspaceLayout()
    return WorkspaceLayout.of(
        (
            Region("counters", items(kernel, problem) * COUNTER_BYTES, "zero_at_rest"),
            Region("partials", num_slots * slot_bytes(kernel)),
        )
    )


def _arguments(
    problem: DecodeProblem, kernel: KernelSpec, num_workgroups: int, has_partials: bool
) -> dict[str, Argument]:
    p = problem
    return {
        **cache_arguments(p),
        **{x: Address(x) if has_partials else 0 for x in ("partials", "counters")},
        "generation": PerRun() if has_partials else 0,
        "max_seqlen": p.seqlen_kv,
        "num_splits": p.num_splits or -most_parts(kernel, p, num_workgroups),
        "softmax_scale_rest": rest_of_float32(p.softmax_scale_log2),
        "num_workgroups": num_workgroups,
        "row_tiles": row_tiles(kernel, p),
    }
