"""Plans, which planning makes from a problem, a device and kernels. Queries no device."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.op.workspace import WorkspaceLayout


@dataclass(frozen=True, slots=True)
class Address:
    """A kernel argument known at run time: the device address of an operand, 0 if absent."""

    operand: str


@dataclass(frozen=True, slots=True)
class Stride:
    """A kernel argument known at run time: an operand's stride along an axis, in elements."""

    operand: str
    axis: str


@dataclass(frozen=True, slots=True)
class PerRun:
    """A kernel argument that grows from launch to launch, over all plans.

    It distinguishes what an aborted launch has left from what the present one writes. Replays of a
    graph have the number that was captured.
    """


Argument = int | float | Address | Stride | PerRun


class Operand(NamedTuple):
    """An operand at run time: a device address, and strides by axis name."""

    address: int
    strides: Mapping[str, int]


@dataclass(frozen=True, slots=True, repr=False)
class Launch:
    """One dispatch.

    Attributes
    ----------
    grid : tuple of int
        Workgroups along x, y and z.
    args : tuple of (str, Argument)
        Every field of the kernarg struct.
    writes : frozenset of str
        Operands and regions that the kernel may write.
    updates : frozenset of str
        Those of them whose earlier contents matter.
    """

    kernel: KernelSpec
    grid: tuple[int, int, int]
    args: tuple[tuple[str, Argument], ...]
    writes: frozenset[str] = frozenset()
    updates: frozenset[str] = frozenset()

    @property
    def reads(self) -> frozenset[str]:
        """Operands and regions whose earlier contents matter."""
        named = {value.operand for _, value in self.args if isinstance(value, Address)}
        return frozenset(named - self.writes) | self.updates

    @property
    def num_workgroups(self) -> int:
        """Workgroups of the whole grid."""
        x, y, z = self.grid
        return x * y * z

    def __repr__(self) -> str:
        return f"<Launch {self.kernel.name} grid={self.grid}>"


class Problem(Protocol):
    """The problem of an operation, whose sizes and options have been checked."""

    @property
    def text(self) -> str:
        """Every argument."""
        ...

    @property
    def brief(self) -> str:
        """Sizes, and what differs from the defaults."""
        ...


P = TypeVar("P", bound=Problem, covariant=True)
Made = TypeVar("Made", bound="Plan[Any]")


@dataclass(frozen=True, repr=False)
class Plan(Generic[P]):
    """The launches that will run, in stream order, and why. A plan can run any number of times.

    Attributes
    ----------
    problem, props
        The problem, and the device that it was planned for.
    launches : tuple of Launch
        In stream order.
    workspace : WorkspaceLayout
        Device memory the launches need besides the operands.
    reasons : tuple of (str, str)
        Each decision with the arithmetic behind it.
    """

    problem: P
    props: DeviceProps
    launches: tuple[Launch, ...]
    workspace: WorkspaceLayout
    reasons: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls: type[Made], found: Plan[Any]) -> Made:
        """Make a plan of this class from another one."""
        fields = dataclasses.fields(Plan)
        return cls(**{field.name: getattr(found, field.name) for field in fields})

    def explain(self) -> str:
        """The plan as readable text: kernel, grid, workspace and why."""
        facts = self.as_dict()
        width = max(map(len, facts))
        return "\n".join(f"{key:<{width}}  {value}" for key, value in facts.items())

    def as_dict(self) -> Mapping[str, str]:
        """The facts of `explain` as a dictionary."""
        props = self.props
        partition = f" {props.partition}" if props.partition not in ("", "SPX") else ""
        device = f"{props.name}{partition} ({props.arch}), {props.num_cus} CUs"
        rows = {"problem": self.problem.text, "device": device}
        for i, launch in enumerate(self.launches):
            suffix = "" if len(self.launches) == 1 else f" {i}"
            kernel = launch.kernel
            rows[f"kernel{suffix}"] = kernel.name
            rows[f"code object{suffix}"] = f"{kernel.path.name} sha256 {kernel.sha256[:16]}"
            rows[f"grid{suffix}"] = f"{launch.grid} = {launch.num_workgroups} workgroups"
        rows.update(self.reasons)
        regions = ", ".join(f"{region.name} {region.nbytes}" for region in self.workspace.regions)
        total = self.workspace.total_bytes
        rows["workspace"] = f"{total} bytes{regions and ': '}{regions}"
        return rows

    def flow_errors(self, inputs: Collection[str], results: Collection[str]) -> list[str]:
        """Errors in the order in which launches read and write; a correct plan has none.

        Parameters
        ----------
        inputs, results : collection of str
            Operands that a caller gives, and those that a run has to write.
        """
        written = {*inputs}
        written |= {region.name for region in self.workspace.regions if region.init != "none"}
        regions = {region.name for region in self.workspace.regions}
        found = []
        for launch in self.launches:
            name, known = launch.kernel.name, {*inputs, *results, *regions}
            found += [f"{name} reads {x}, which nothing wrote" for x in launch.reads - written]
            found += [
                f"{name} writes {x}, an input" for x in (launch.writes - launch.updates) & {*inputs}
            ]
            found += [f"{name} names {x}" for x in (launch.reads | launch.writes) - known]
            written |= launch.writes
        read = frozenset().union(*(launch.reads for launch in self.launches))
        found += [f"nothing reads {x}" for x in {*inputs} - read]
        return [*found, *(f"nothing writes {x}" for x in {*results} - written)]

    def __repr__(self) -> str:
        kernels = " + ".join(
            f"{launch.kernel.name} x {launch.num_workgroups}" for launch in self.launches
        )
        return f"<{type(self).__name__} {self.problem.brief}: {kernels}>"
