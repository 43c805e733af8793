"""Pure planning: (problem, device, kernels) -> Plan. Nothing here queries a device."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from amdattn.arch.props import DeviceProps
from amdattn.op.manifest import ATTENTION, KernelSpec
from amdattn.op.workspace import WorkspaceLayout
from amdattn.ops.attention.problem import AttentionProblem


@dataclass(frozen=True, slots=True)
class Address:
    """A kernel argument known at run time: the device address of an operand, 0 if absent."""

    operand: str


@dataclass(frozen=True, slots=True)
class Stride:
    """A kernel argument known at run time: an operand's stride along an axis, in elements."""

    operand: str
    axis: str


Argument = int | float | Address | Stride


class Operand(NamedTuple):
    """What those two read: a device address, and strides by axis name."""

    address: int
    strides: Mapping[str, int]


@dataclass(frozen=True, slots=True, repr=False)
class Launch:
    """One dispatch: `grid` counts workgroups, `args` names every field of the kernarg struct."""

    kernel: KernelSpec
    grid: tuple[int, int, int]
    args: tuple[tuple[str, Argument], ...]

    @property
    def num_workgroups(self) -> int:
        """Workgroups of the whole grid."""
        x, y, z = self.grid
        return x * y * z

    def __repr__(self) -> str:
        return f"<Launch {self.kernel.name} grid={self.grid}>"


@dataclass(frozen=True, repr=False)
class Plan:
    """What will run, in stream order, and why. Made once, it can be run any number of times.

    Attributes
    ----------
    problem, props
        What was planned, and for which device.
    launches : tuple of Launch
        In stream order.
    workspace : WorkspaceLayout
        Device memory the launches need besides the operands.
    reasons : tuple of (str, str)
        Each decision with the arithmetic behind it.
    """

    problem: AttentionProblem
    props: DeviceProps
    launches: tuple[Launch, ...]
    workspace: WorkspaceLayout
    reasons: tuple[tuple[str, str], ...]

    @property
    def forward(self) -> Launch:
        """The launch of the attention kernel itself."""
        return next(launch for launch in self.launches if launch.kernel.op == ATTENTION)

    def explain(self) -> str:
        """The plan as readable text: kernel, grid, occupancy and why."""
        return lines_of(self.as_dict())

    def as_dict(self) -> Mapping[str, Any]:
        """The same facts, keyed; every value is a string."""
        p = self.problem
        problem = (
            f"attention {p.dtype}, batch={p.batch} seqlen_q={p.seqlen_q} "
            f"seqlen_kv={p.seqlen_kv} num_heads_q={p.num_heads_q} "
            f"num_heads_kv={p.num_heads_kv} head_dim={p.head_dim} head_dim_v={p.head_dim_v} "
            f"softmax_scale={p.softmax_scale:.6g} causal={p.causal}{_options_text(p)}"
        )
        return describe(problem, self.props, self.launches, self.reasons, self.workspace)

    def __repr__(self) -> str:
        p = self.problem
        dims = f"{p.head_dim}" + f"/{p.head_dim_v}" * (p.head_dim_v != p.head_dim)
        problem = (
            f"{p.dtype} b{p.batch} sq{p.seqlen_q} skv{p.seqlen_kv} "
            f"h{p.num_heads_q}/{p.num_heads_kv} d{dims}{' causal' * p.causal}{_options_text(p)}"
        )
        return brief(self, problem, self.launches)


def brief(plan: object, problem: str, launches: tuple[Launch, ...]) -> str:
    """The `repr` of a plan: its problem and kernels; `explain()` has the rest."""
    kernels = " + ".join(f"{launch.kernel.name} x {launch.num_workgroups}" for launch in launches)
    return f"<{type(plan).__name__} {problem}: {kernels}>"


def describe(
    problem: str,
    props: DeviceProps,
    launches: tuple[Launch, ...],
    reasons: tuple[tuple[str, str], ...],
    workspace: WorkspaceLayout,
) -> dict[str, str]:
    """The facts of a plan as text, keyed."""
    partition = f" {props.partition}" if props.partition not in ("", "SPX") else ""
    device = f"{props.name}{partition} ({props.arch}), {props.num_cus} CUs"
    rows = {"problem": problem, "device": device}
    for i, launch in enumerate(launches):
        suffix = "" if len(launches) == 1 else f" {i}"
        rows[f"kernel{suffix}"] = launch.kernel.name
        rows[f"code object{suffix}"] = (
            f"{launch.kernel.path.name} sha256 {launch.kernel.sha256[:16]}"
        )
        rows[f"grid{suffix}"] = f"{launch.grid} = {launch.num_workgroups} workgroups"
    rows.update(reasons)
    regions = ", ".join(f"{region.name} {region.nbytes}" for region in workspace.regions)
    rows["workspace"] = f"{workspace.total_bytes} bytes{regions and ': '}{regions}"
    return rows


def lines_of(facts: Mapping[str, str]) -> str:
    """A line for each fact, the values below each other."""
    width = max(map(len, facts))
    return "\n".join(f"{key:<{width}}  {value}" for key, value in facts.items())


def _options_text(problem: AttentionProblem) -> str:
    """The less usual facts that differ from what they default to."""
    return "".join(
        f" {field.name}={getattr(problem, field.name)}"
        for field in dataclasses.fields(problem)
        if field.name in _OPTIONS and getattr(problem, field.name) != field.default
    )


_OPTIONS = (
    *("window_size", "softcap", "round_mode", "num_splits", "return_lse", "top_left", "sinks"),
    *("total_q", "total_kv", "gather"),
)
