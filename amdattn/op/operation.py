"""An operation as one value, which selftest, check, bench, tune and explain use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from amdattn.arch.props import KNOWN_DEVICES, DeviceProps
from amdattn.device.manifest import KernelSpec, candidates
from amdattn.op.choices import C, Choices, clk_of, fastest
from amdattn.op.executor import RunnablePlan
from amdattn.op.options import Option
from amdattn.op.plan import Plan, Problem
from amdattn.op.spec import Specs
from amdattn.op.workspace import WorkspaceLayout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

P = TypeVar("P", bound=Problem)
_NO_DEVICE = next(iter(KNOWN_DEVICES.values()))  # plans that know their operands, and no more


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected values of a result in float64, and the allowed error of all or of each."""

    values: NDArray[np.float64]
    tolerance: float | NDArray[np.float64]


@dataclass(frozen=True)
class Case(Generic[P]):
    """A problem with inputs, for selftest, check and benchmarks.

    Attributes
    ----------
    problem : P
    variant : str
        The variant of `RunnablePlan.operands`.
    kernel : str
        A kernel of the operation, by its name in the manifest, to plan with; "": the best one.
    """

    problem: P
    variant: str = ""
    kernel: str = ""

    @property
    def title(self) -> str:
        """A title of one line."""
        of_kernel = f" with {self.kernel}" if self.kernel else ""
        return f"{self.problem.brief}{self.variant and ' ' + self.variant}{of_kernel}"

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """Random host arrays by operand, the same for the same seed."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Operation(Generic[P, C]):
    """The facts and functions that make up an operation.

    Attributes
    ----------
    name : str
        The name in commands.
    title : str
        A description for the help of commands.
    kernel_ops : tuple of str
        `KernelSpec.op` of the kernels that its plans launch; its own come first.
    plan_type : type
        The type of its plans, which defines the operands.
    options : tuple of Option
        Options of commands; `problem` takes their values.
    problem : callable
        Makes a problem; raises ValueError or TypeError for malformed values.
    choices : callable
        ``(problem, props, rows)``: all legal choices. Raises UnsupportedDeviceError.
    build : callable
        ``(problem, props, choice, choices)``: the plan of a choice. Pure, like the two above.
    reference : callable
        ``(case, inputs)``: the expected results.
    planned : callable
        ``(problem, props)``: the plan that the public function runs, with tuned tables.
    cases : callable
        For a kernel: cases at sizes that fit no tile, and every path through it. For None: the
        cases of `amdattn selftest`.
    larger : callable
        ``(on_gpu)``: cases with work for every CU, or for a few on the virtual device.
    cost : callable
        ``(choice)``: the estimated clocks of a choice.
    best : callable
        ``(items)``: the choice that plans take unless a table names another.
    """

    name: str
    title: str
    kernel_ops: tuple[str, ...]
    plan_type: type[RunnablePlan[P]]
    options: tuple[Option, ...]
    problem: Callable[..., P]
    choices: Callable[[P, DeviceProps, Sequence[KernelSpec]], Choices[C]]
    build: Callable[[P, DeviceProps, C, Choices[C]], Any]
    reference: Callable[[Any, Mapping[str, NDArray[Any]]], Mapping[str, Expected]]
    planned: Callable[[P, DeviceProps], RunnablePlan[P]]
    cases: Callable[[KernelSpec | None], Iterator[Case[P]]]
    larger: Callable[[bool], Iterator[Case[P]]]
    cost: Callable[[C], float] = clk_of
    best: Callable[[Sequence[C]], C] = fastest

    def plan(
        self, problem: P, props: DeviceProps, rows: Sequence[KernelSpec], kernel: str = ""
    ) -> RunnablePlan[P]:
        """The plan of the best choice, or of the best choice with a given kernel.

        Raises
        ------
        UnsupportedProblem, UnsupportedDeviceError
        ValueError
            The operation has no such kernel.
        """
        if kernel:
            own = self.kernel_ops[0]
            names = [row.name for row in candidates(rows, own, props)]
            if kernel not in names:
                have = ", ".join(names)
                raise ValueError(f"kernel={kernel!r} must be one of {have} on {props.arch}")
            rows = [row for row in rows if row.op != own or row.name == kernel]
        found = self.choices(problem, props, rows)
        found.require(props)
        return self.plan_of(problem, props, self.best(found.items), found)

    def specs(self, problem: P, variant: str = "") -> Specs:
        """The specs of a problem's operands, which depend on no device or kernel."""
        unplanned: Plan[Any] = Plan(problem, _NO_DEVICE, (), WorkspaceLayout(), ())
        return self.plan_type.of(unplanned).specs(variant)

    def plan_case(
        self, case: Case[P], props: DeviceProps, rows: Sequence[KernelSpec]
    ) -> RunnablePlan[P]:
        """The plan with the kernel that a case names, or that of the public function."""
        if not case.kernel:
            return self.planned(case.problem, props)
        return self.plan(case.problem, props, rows, case.kernel)

    def plan_of(
        self, problem: P, props: DeviceProps, choice: C, choices: Choices[C]
    ) -> RunnablePlan[P]:
        """The plan of a choice."""
        return self.plan_type.of(self.build(problem, props, choice, choices))
