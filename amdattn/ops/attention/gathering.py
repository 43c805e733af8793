"""Copies rows of K or V from which attention kernels cannot load blocks directly.

The copy is compact, (batch, num_heads_kv, seqlen_kv, columns), in the workspace.
"""

from __future__ import annotations

from collections.abc import Mapping

from amdattn.device.manifest import KernelSpec
from amdattn.op.plan import Address, Argument, Launch, Stride
from amdattn.op.workspace import Region
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.attention.select import GATHER_GRID

_ELEMENT_BYTES, _LANE_COLUMNS = 2, 8


def _region(operand: str) -> str:
    return f"gathered_{operand}"


def _batch(problem: AttentionProblem) -> int:
    return 1 if problem.varlen else problem.batch


def _strides(problem: AttentionProblem, operand: str) -> dict[str, int]:
    """Strides of the copy by axis."""
    axes = problem.axes(operand)
    of_head = axes["seq"] * axes["dim"]
    of_batch = 0 if problem.varlen else axes["head"] * of_head
    return {"batch": of_batch, "seq": axes["dim"], "head": of_head}


def regions(problem: AttentionProblem) -> tuple[Region, ...]:
    """Regions of the workspace for the copies."""
    return tuple(
        Region(
            _region(operand),
            _batch(problem) * axes["head"] * axes["seq"] * axes["dim"] * _ELEMENT_BYTES,
        )
        for operand in problem.gather
        for axes in (problem.axes(operand),)
    )


def launches(problem: AttentionProblem, kernel: KernelSpec) -> list[Launch]:
    """The launches that copy, one per operand."""
    kernel.check_grid(GATHER_GRID)
    found = []
    for operand in problem.gather:
        axes, to = problem.axes(operand), _strides(problem, operand)
        rows = kernel.workgroup[0] // (axes["dim"] // _LANE_COLUMNS)
        args: dict[str, Argument] = {"from": Address(operand), "to": Address(_region(operand))}
        for axis in ("batch", "seq", "head"):
            args[f"stride_{axis}"] = Stride(operand, axis)
        if problem.varlen:
            args["stride_batch"] = 0
        args |= {"to_stride_batch": to["batch"], "to_stride_head": to["head"]}
        args |= {"seqlen": axes["seq"], "columns": axes["dim"]}
        grid = (-(-axes["seq"] // rows), axes["head"], _batch(problem))
        copied = frozenset({_region(operand)})
        found.append(Launch(kernel, grid, tuple(args.items()), copied))
    return found


def arguments(problem: AttentionProblem, operand: str) -> dict[str, Argument]:
    """Arguments of the attention kernel that refer to the copy instead of the operand."""
    args: dict[str, Argument] = {operand: Address(_region(operand))}
    for axis, stride in _strides(problem, operand).items():
        args[f"{operand}_stride_{axis}"] = stride
    return args


def reasons(problem: AttentionProblem) -> Mapping[str, str]:
    """Reasons of the plan: what is copied, and what that costs."""
    if not problem.gather:
        return {}
    copies = [(region.name, region.nbytes) for region in regions(problem)]
    copied = " and ".join(f"{name}, {nbytes} bytes" for name, nbytes in copies)
    return {
        "gather": f"rows copied next to each other first, read and written once: {copied}",
    }
