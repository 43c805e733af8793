"""An operation as one value: what selftest, check, bench, tune and explain know of it."""

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
_NO_DEVICE = next(iter(KNOWN_DEVICES.values()))  # of plans that say what operands are, and no more


@dataclass(frozen=True, slots=True)
class Expected:
    """What a result must be: float64 values, and the error that is allowed of all or of each."""

    values: NDArray[np.float64]
    tolerance: float | NDArray[np.float64]


@dataclass(frozen=True)
class Case(Generic[P]):
    """One problem with inputs; what selftest, check and benchmarks draw from.

    Attributes
    ----------
    problem : P
    variant : str
        What a caller says besides the problem: `RunnablePlan.operands`.
    kernel : str
        Of the manifest: plan with this one of the operation's own kernels; "": with the best.
    """

    problem: P
    variant: str = ""
    kernel: str = ""

    @property
    def title(self) -> str:
        """One line for people."""
        of_kernel = f" with {self.kernel}" if self.kernel else ""
        return f"{self.problem.brief}{self.variant and ' ' + self.variant}{of_kernel}"

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """Random host arrays by operand, the same for the same seed."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Operation(Generic[P, C]):
    """What the package knows of an operation.

    Attributes
    ----------
    name : str
        As commands name it.
    title : str
        What it does, for the help of commands.
    kernel_ops : tuple of str
        `KernelSpec.op` of the kernels that its plans launch, its own first.
    plan_type : type
        Of its plans; says what the operands are.
    options : tuple of Option
        Of commands; `problem` takes their values.
    problem : callable
        Makes a problem; raises ValueError or TypeError for what is none.
    choices : callable
        ``(problem, props, rows)``: every legal way to do it. Raises UnsupportedDeviceError.
    build : callable
        ``(problem, props, choice, choices)``: the plan of a choice. Pure, as both before.
    reference : callable
        ``(case, inputs)``: what every result must be.
    planned : callable
        ``(problem, props)``: what the public function runs, tuned tables and all.
    cases : callable
        Of a kernel: sizes that fit no tile, and every way through it. Of None: what `amdattn
        selftest` runs.
    larger : callable
        ``(on_gpu)``: cases with work for every CU, or, on the virtual device, for a few.
    cost : callable
        ``(choice)``: its estimated clocks.
    best : callable
        ``(items)``: which of them plans take where no table says another.
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
        """The plan of the best choice, or of the best with one of the operation's own kernels.

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
        """What the operands of a problem must be, whatever the device and the kernels."""
        unplanned: Plan[Any] = Plan(problem, _NO_DEVICE, (), WorkspaceLayout(), ())
        return self.plan_type.of(unplanned).specs(variant)

    def plan_case(
        self, case: Case[P], props: DeviceProps, rows: Sequence[KernelSpec]
    ) -> RunnablePlan[P]:
        """The plan with the kernel that a case names, or what the public function runs."""
        if not case.kernel:
            return self.planned(case.problem, props)
        return self.plan(case.problem, props, rows, case.kernel)

    def plan_of(
        self, problem: P, props: DeviceProps, choice: C, choices: Choices[C]
    ) -> RunnablePlan[P]:
        """The plan of a choice."""
        return self.plan_type.of(self.build(problem, props, choice, choices))
