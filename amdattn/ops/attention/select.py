"""Selects the attention kernel for a problem, and finds the reasons if none solves it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from amdattn.arch.architectures import ARCHITECTURES
from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import Facts, KernelSpec, candidates, candidates_of
from amdattn.errors import ManifestError, UnsupportedDeviceError, UnsupportedProblem
from amdattn.op.choices import Choices, Rejected
from amdattn.op.support import Mismatch, Span, Support, all_allowed
from amdattn.ops.attention.problem import AttentionProblem

# Values of KernelSpec.op.
ATTENTION, MERGE, GATHER = "attn_fwd", "attn_merge", "gather_rows"
# Values of KernelSpec.grid.
WORK_GRID = "whole_tiles_then_parts"  # x = whole tiles + tiles in parts * parts
MERGE_GRID = "rows_of_tiles_in_parts"  # x = tiles in parts * ceil(rows of a tile / tile.q)
# x = ceil(seqlen / rows of a workgroup), each lane of which has 8 columns; y = heads; z = batch
GATHER_GRID = "rows_heads_batch"


def column_groups(kernel: KernelSpec, problem: AttentionProblem) -> int:
    """Workgroups that share the columns of a row of O: each computes `head_dim_v` of them."""
    columns: int = kernel.params["head_dim_v"]
    return -(-problem.head_dim_v // columns)


def tile_heads(kernel: KernelSpec, problem: AttentionProblem) -> int:
    """Q heads of a tile, which share a kv head; of more than one, parts are of heads."""
    group = problem.num_heads_q // problem.num_heads_kv
    return math.gcd(group, kernel.accepts["max_tile_heads"])


ANY = "any"  # as a constraint: the argument is free
_SIZES = {"head_dim": "head_dims", "head_dim_v": "head_dims_v"}
_LIMITED = ("batch", "seqlen_q", "seqlen_kv", "num_heads_q", "num_splits")
_NOT_LISTED = {
    *(*_SIZES, *_LIMITED, "num_heads_kv", "dtype", "softmax_scale", "softcap"),
    *("total_q", "total_kv", "gaps", "gather"),
}
# Defaults of all other arguments of a problem. A kernel lists the values that it supports, or ANY;
# otherwise it supports the default only.
_LISTED = {"varlen": False} | {
    field.name: field.default
    for field in dataclasses.fields(AttentionProblem)
    if field.name not in _NOT_LISTED
}


@dataclass(frozen=True, slots=True)
class Member:
    """An attention kernel, and the values that it supports by argument: listed, a range, or ANY.

    For `softcap` they are bounds. If "gqa" is true, `num_heads_kv` is any divisor of `num_heads_q`.
    """

    kernel: str
    takes: Mapping[str, Any]


def members(rows: Sequence[KernelSpec], props: DeviceProps) -> tuple[Member, ...]:
    """Every attention kernel for a device."""
    found = []
    for row in candidates(rows, ATTENTION, props):
        takes: dict[str, Any] = {"dtype": (row.dtype,), "softcap": row.accepts["softcaps"]}
        for argument, sizes in _SIZES.items():
            low, high, step = row.accepts[sizes]
            takes[argument] = range(low, high + 1, step)
        for argument in _LISTED:
            allowed = _listed(row, argument)
            takes[argument] = ANY if allowed == ANY else tuple(allowed)
        for argument in _LIMITED:
            lowest = _lowest(argument)
            takes[argument] = range(lowest, row.accepts[f"max_{argument}"] + 1)
        takes["window_keys"] = range(1, row.accepts["max_window_keys"] + 1)
        takes["gqa"] = row.accepts["gqa"]
        found.append(Member(row.name, MappingProxyType(takes)))
    return tuple(found)


def _listed(kernel: KernelSpec, argument: str) -> Any:
    return kernel.accepts[argument] if argument in kernel.accepts else (_LISTED[argument],)


def _lowest(argument: str) -> int:
    return 0 if argument == "num_splits" else 1


def mismatches(kernel: KernelSpec, problem: AttentionProblem) -> list[Mismatch]:
    """Everything in `problem` that `kernel` does not implement; empty if it solves it."""
    found = []

    def require(argument: str, value: object, allowed: Sequence[object]) -> None:
        if value not in allowed:
            why = _why_not_rounded(kernel) if argument == "round_mode" else ""
            found.append(Mismatch(argument, value, tuple(allowed), why))

    require("dtype", problem.dtype, (kernel.dtype,))
    for argument, sizes in _SIZES.items():
        low, high, step = kernel.accepts[sizes]
        require(argument, getattr(problem, argument), range(low, high + 1, step))
    for argument in _LISTED:
        allowed = _listed(kernel, argument)
        if allowed == ANY or (argument == "top_left" and problem.window == (-1, -1)):
            continue
        if argument == "window_size":
            allowed = [tuple(window) for window in allowed]
        require(argument, getattr(problem, argument), allowed)
    most = kernel.accepts["max_window_keys"]
    if problem.window_keys > most:
        allowed = (Span(1, most, "up to {} keys"),)
        found.append(Mismatch("window_size", problem.window_size, allowed))
    least, most = kernel.accepts["softcaps"]
    if not least <= problem.softcap <= most:
        found.append(Mismatch("softcap", problem.softcap, (Span(least, most),)))
    if problem.num_heads_kv != problem.num_heads_q and not kernel.accepts["gqa"]:
        require("num_heads_kv", problem.num_heads_kv, (problem.num_heads_q,))
    for argument in _LIMITED:
        limit, value = kernel.accepts[f"max_{argument}"], getattr(problem, argument)
        if value > limit:
            found.append(Mismatch(argument, value, (Span(_lowest(argument), limit),)))
    return found


def _why_not_rounded(kernel: KernelSpec) -> str:
    """The reason why a kernel has only one rounding, if its architecture allows no other."""
    arch = ARCHITECTURES.get(kernel.arch)
    if kernel.dtype != "bfloat16" or arch is None or not arch.converts_bf16:
        return ""
    return f"{arch.name} converts to bfloat16 by an instruction, which rounds to nearest even"


def select(rows: Sequence[KernelSpec], problem: AttentionProblem, props: DeviceProps) -> KernelSpec:
    """The kernel for `problem` on `props`: among those that solve it, the one that computes least.

    Raises
    ------
    UnsupportedProblem
        No kernel solves it; the message names each argument that the nearest kernel does not
        support.
    UnsupportedDeviceError
        There are no kernels for the architecture at all.
    """
    ranked = nearest_first(rows, problem, props)
    nearest, wrong = ranked[0]
    Choices(() if wrong else (nearest,), tuple(ranked), rows).require(props)
    return nearest


def with_other_tiles(
    rows: Sequence[KernelSpec], kernel: KernelSpec, problem: AttentionProblem
) -> list[KernelSpec]:
    """`kernel`, and similar kernels that solve `problem` in tiles of fewer rows.

    With `num_splits` only those that compute the same bits, so not those for narrow windows.
    """
    return [kernel] + [
        row
        for row in _of_kind(candidates_of(rows, kernel.op, kernel.arch), problem)
        if (row.params["head_dim"], row.params["head_dim_v"], row.grid)
        == (kernel.params["head_dim"], kernel.params["head_dim_v"], kernel.grid)
        and row.tile["q"] < kernel.tile["q"]
        and (problem.num_splits == 0 or _heads_of_tile(row) == _heads_of_tile(kernel))
        and not mismatches(row, problem)
    ]


def _heads_of_tile(kernel: KernelSpec) -> int:
    """The most heads of a tile; kernels for narrow windows have several."""
    return int(kernel.accepts["max_tile_heads"])


def _of_kind(rows: Sequence[KernelSpec], problem: AttentionProblem) -> list[KernelSpec]:
    """Kernels that may solve a problem, by a quick check of element type, rounding and softcap."""
    return [
        row
        for row in rows
        if row.dtype == problem.dtype
        and problem.round_mode in row.accepts["round_mode"]
        and (problem.softcap == 0) == (row.accepts["softcaps"][0] == 0)
    ]


def _compared(
    rows: Sequence[KernelSpec], problem: AttentionProblem
) -> list[tuple[KernelSpec, list[Mismatch]]]:
    return [(row, mismatches(row, problem)) for row in rows]


def nearest_first(
    rows: Sequence[KernelSpec], problem: AttentionProblem, props: DeviceProps
) -> list[Rejected]:
    """Kernels with their mismatches; those that solve the problem first, by least computation.

    Raises
    ------
    UnsupportedDeviceError
        There are no kernels for the architecture at all.
    """
    fitting = candidates(rows, ATTENTION, props)
    found = _compared(_of_kind(fitting, problem), problem)
    if all(wrong for _, wrong in found):
        found = _compared(fitting, problem)

    def distance(pair: tuple[KernelSpec, list[Mismatch]]) -> tuple[int, ...]:
        row, wrong = pair
        # Options are easier to change than arrays.
        of_arrays = sum(m.argument in ("dtype", "head_dim", "head_dim_v") for m in wrong)
        of_dim = abs(row.params["head_dim"] - problem.head_dim)
        unused = of_dim + abs(row.params["head_dim_v"] - problem.head_dim_v)
        groups = of_dim if wrong else column_groups(row, problem)
        return len(wrong), of_arrays, groups, unused, -row.tile["q"]

    found.sort(key=distance)
    return found


def merge_kernel(rows: Sequence[KernelSpec], kernel: KernelSpec, round_mode: str) -> KernelSpec:
    """The kernel that merges the partial results of `kernel`."""
    for row in candidates_of(rows, MERGE, kernel.arch):
        if (
            (row.dtype, row.params["head_dim_v"]) == (kernel.dtype, kernel.params["head_dim_v"])
            and kernel.tile["q"] in row.accepts["tile_rows"]
            and round_mode in row.accepts["round_mode"]
        ):
            return row
    raise ManifestError(
        f"kernel {kernel.name} can split the KV range, but no {MERGE} kernel has "
        f"dtype={kernel.dtype} head_dim_v={kernel.params['head_dim_v']} "
        f"tile_rows={kernel.tile['q']} "
        f"round_mode={round_mode}"
    )


def gather_kernel(
    rows: Sequence[KernelSpec], problem: AttentionProblem, props: DeviceProps
) -> KernelSpec:
    """The kernel that copies rows of K and V to adjacent rows.

    Raises
    ------
    UnsupportedProblem
        A size exceeds its limits.
    """
    kernel = candidates(rows, GATHER, props)[0]
    batch = 1 if problem.varlen else problem.batch
    rows_at_once = kernel.workgroup[0] // (max(problem.head_dim, problem.head_dim_v) // 8)
    most_rows = kernel.accepts["max_workgroups_x"] * rows_at_once
    for name, value, most in (
        ("batch", batch, kernel.accepts["max_batch"]),
        ("num_heads_kv", problem.num_heads_kv, kernel.accepts["max_num_heads_kv"]),
        ("seqlen_kv", problem.axes("k")["seq"], most_rows),
    ):
        if value > most:
            raise UnsupportedProblem(
                f"{name}={value} with gather={problem.gather!r}: kernel {kernel.name} takes "
                f"1..{most}"
            )
    return kernel


def support(rows: Sequence[KernelSpec], problem: AttentionProblem, props: DeviceProps) -> Support:
    """Like `select`, but returns a Support instead of raising UnsupportedProblem."""
    try:
        kernel = select(rows, problem, props)
        if problem.gather:
            gather_kernel(rows, problem, props)
    except UnsupportedProblem as error:
        ranked = nearest_first(rows, problem, props)
        wrong = all_allowed(ranked[0][1], [others for _, others in ranked])
        change = {mismatch.argument: mismatch.nearest for mismatch in wrong}
        return Support(False, str(error), MappingProxyType(change))
    except UnsupportedDeviceError as error:
        return Support(False, str(error))
    return Support(True, f"kernel {kernel.name}")


def merging_apart(row: KernelSpec) -> KernelSpec:
    """The forward kernel without merging by the last part of a tile, so that a launch merges."""
    accepts = Facts(row.name, "accepts", {**row.accepts, "max_merged_parts": 0})
    return dataclasses.replace(row, accepts=accepts)
