"""Attention over a shared prefix once for all sequences, over own keys, and their merge. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec, candidates
from amdattn.op.choices import Choices
from amdattn.op.mismatch import Mismatch
from amdattn.op.plan import Address, Argument, Launch, Plan, Stride
from amdattn.op.workspace import Region, WorkspaceLayout
from amdattn.ops.attention.planning import plan_attention
from amdattn.ops.cascade.problem import CascadeProblem
from amdattn.ops.decode import planning as decode
from amdattn.ops.decode.problem import DecodeProblem
from amdattn.ops.prefill import planning as prefill
from amdattn.ops.prefill.planning import kernel_for, replaced, rows_launch
from amdattn.ops.prefill.problem import PrefillProblem

CASCADE_MERGE = "cascade_merge"  # of KernelSpec.op
# Of KernelSpec.grid: x = ceil(rows / rows of a workgroup), each lane of which has 8 columns.
MERGE_GRID = "rows_of_all_queries_and_heads"
_FLOAT_BYTES = 4
_Q, _K, _V, _O, _LSE, _OWN_LSE = (
    *("prefix_q", "prefix_k", "prefix_v", "prefix_o", "prefix_lse", "own_lse"),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """The kernel that merges."""

    kernel: KernelSpec
    clk: float

    @property
    def facts(self) -> dict[str, object]:
        """What tells it from the others."""
        return {"kernel": self.kernel.name}


def choices(
    problem: CascadeProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> Choices[Choice]:
    """Every kernel that merges such results."""
    found, own = candidates(rows, CASCADE_MERGE, props), problem.own
    taking = tuple(Choice(row, 0.0) for row in found if row.dtype == own.dtype)
    rejected = tuple(
        (row, [Mismatch("dtype", own.dtype, (row.dtype,))])
        for row in found
        if row.dtype != own.dtype
    )
    return Choices(taking, rejected, rows)


def best(items: Sequence[Choice]) -> Choice:
    """The only one."""
    return items[0]


def own_plan(
    problem: DecodeProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> Plan[DecodeProblem]:
    """Attention over the cache."""
    if isinstance(problem, PrefillProblem):
        of_chunks = prefill.choices(problem, props, rows)
        of_chunks.require(props)
        return prefill.build(problem, props, prefill.best(of_chunks.items), of_chunks)
    found = decode.choices(problem, props, rows)
    found.require(props)
    return decode.build(problem, props, decode.best(found.items), found)


def build(
    problem: CascadeProblem, props: DeviceProps, choice: Choice, choices: Choices[Choice]
) -> Plan[CascadeProblem]:
    """The plan of a choice.

    Raises
    ------
    UnsupportedProblem
        No kernel attends over the prefix, or over the cache.
    """
    p, own, rows = problem, problem.own, choices.rows
    of_prefix = plan_attention(p.forward, props, rows)
    of_own = own_plan(own, props, rows)
    sizes = p.queries * own.num_heads_q
    regions = [
        Region(_Q, sizes * own.head_dim * own.itemsize),
        Region(_O, sizes * own.head_dim_v * own.itemsize),
        Region(_LSE, sizes * _FLOAT_BYTES),
        Region(_OWN_LSE, sizes * _FLOAT_BYTES),
        *(
            dataclasses.replace(region, name=f"prefix_{region.name}")
            for region in of_prefix.workspace.regions
        ),
        *of_own.workspace.regions,
    ]
    launches = [_queries(p, props, rows)]
    if p.prefix_pages:
        of_row = p.prefix_len * own.num_heads_kv * own.itemsize
        regions += [Region(_K, of_row * own.head_dim), Region(_V, of_row * own.head_dim_v)]
        launches.append(_gather(p, props, rows))
    of_forward = {
        **{region.name: (f"prefix_{region.name}", {}) for region in of_prefix.workspace.regions},
        **_operands(p),
    }
    launches += [replaced(launch, of_forward) for launch in of_prefix.launches]
    launches += [replaced(launch, {"lse": (_OWN_LSE, {})}) for launch in of_own.launches]
    launches.append(_merge(p, choice.kernel))
    reasons = {
        "prefix": f"{p.prefix_len} keys, {p.prefix_bytes} bytes, attended once by the {p.queries} "
        f"queries of {own.batch} sequences: {p.saved_bytes} bytes less than by each",
        **{f"prefix: {name}": text for name, text in of_prefix.reasons if name != "work"},
        **dict(of_own.reasons),
        "work": f"{p.flops:.4g} floating point operations, of a full cache",
    }
    workspace = WorkspaceLayout.of(regions)
    return Plan(problem, props, tuple(launches), workspace, tuple(reasons.items()))


def _operands(problem: CascadeProblem) -> Mapping[str, tuple[str, Mapping[str, int]]]:
    """What the forward kernels read and write in place of their operands."""
    p, own = problem, problem.own
    rows = p.queries * own.group

    def of_heads(name: str, length: int, dim: int) -> tuple[str, Mapping[str, int]]:
        return name, {"batch": 0, "seq": dim, "head": length * dim}

    found = {
        "q": of_heads(_Q, rows, own.head_dim),
        "o": of_heads(_O, rows, own.head_dim_v),
        "lse": (_LSE, {"batch": 0, "head": rows}),
    }
    for name, copy, dim in (("k", _K, own.head_dim), ("v", _V, own.head_dim_v)):
        if p.prefix_pages:
            found[name] = of_heads(copy, p.prefix_len, dim)
        else:
            found[name] = f"{name}_prefix", {"batch": 0}
    return found


def _queries(problem: CascadeProblem, props: DeviceProps, rows: Sequence[KernelSpec]) -> Launch:
    """The launch that copies queries, turned, by the heads of keys that they share."""
    own = problem.own
    named = {one.name: getattr(own, one.name) for one in dataclasses.fields(DecodeProblem)}
    named |= {"kv_dtype": own.dtype, "kv_layout": "NHD", "page_size": 0, "num_pages": 0}
    named |= {"cache_batch_idx": False, "cache_leftpad": False}
    named |= {f"{x}_{y}": z for x in "kv" for y, z in (("descale", 1.0), ("descales", False))}
    alone = PrefillProblem(**named, copies="q")
    longest = own.max_seqlen_kv if isinstance(own, PrefillProblem) else own.seqlen_kv
    others: dict[str, Argument] = {
        **dict.fromkeys(("k", "v", "k_new", "v_new", "k_rows", "v_rows", "q_sums", "kv_sums"), 0),
        **dict.fromkeys(("cache_batch_idx", "cache_leftpad", "block_table", "seqlen_new"), 0),
        **dict.fromkeys(("k_new_batch", "k_new_head", "k_new_seq", "k_page", "k_head", "k_seq"), 0),
        **dict.fromkeys(("v_new_batch", "v_new_head", "v_new_seq", "v_page", "v_head", "v_seq"), 0),
        "table_stride": 0,
        "max_seqlen": longest - own.seqlen_new,
        "q_group": own.group,
    }
    kernel = kernel_for(alone, props, rows)
    launch = rows_launch(alone, kernel, props, frozenset({"q_rows"}), others)
    launch = dataclasses.replace(launch, writes=frozenset({"q_rows"}), updates=frozenset())
    return replaced(launch, {"q_rows": (_Q, {})})


def _gather(problem: CascadeProblem, props: DeviceProps, rows: Sequence[KernelSpec]) -> Launch:
    """The launch that copies the prefix out of its pages."""
    p = problem.gathered
    written = frozenset({"k_rows", "v_rows"})
    others: dict[str, Argument] = {"q_sums": 0, "kv_sums": 0}
    launch = rows_launch(p, kernel_for(p, props, rows), props, written, others)
    return replaced(
        launch,
        {
            "k_rows": (_K, {}),
            "v_rows": (_V, {}),
            "block_table": ("prefix_table", {"batch": 0}),
        },
    )


def _merge(problem: CascadeProblem, kernel: KernelSpec) -> Launch:
    """The launch that adds the prefix to what own keys came to."""
    kernel.check_grid(MERGE_GRID)
    p, own = problem, problem.own
    args: dict[str, Argument] = {
        **{"prefix_o": Address(_O), "prefix_lse": Address(_LSE), "own_lse": Address(_OWN_LSE)},
        "o": Address("out"),
        "lse": Address("lse") if p.return_lse else 0,
        **{f"o_{axis}": Stride("out", axis) for axis in ("batch", "seq", "head")},
        "queries": p.queries,
        **{name: getattr(own, name) for name in ("seqlen_q", "num_heads_q", "group", "head_dim_v")},
    }
    fields = tuple((name, args[name]) for name, *_ in kernel.kernarg.fields)
    at_once = kernel.tile["lanes"] // (own.head_dim_v // kernel.tile["columns"])
    grid = -(-p.queries * own.num_heads_q // at_once), 1, 1
    writes = frozenset({"out", "lse"} if p.return_lse else {"out"})
    return Launch(kernel, grid, fields, writes, frozenset({"out"}))
