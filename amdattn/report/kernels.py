"""Compares every shipped kernel with float64, with its results inside guard zones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn.arrays.buffers import DeviceArray
from amdattn.arrays.interchange import asarray
from amdattn.device import manifest, runtime
from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import as_dtype
from amdattn.op.comparison import judge
from amdattn.op.executor import RunnablePlan
from amdattn.op.operation import Case, Operation
from amdattn.op.spec import OperandSpec
from amdattn.ops.registry import operations
from amdattn.report.rows import Row, verdict

Array = NDArray[Any]
GUARD = 8  # elements on every side: 16 bytes, so that rows keep their alignment
_WORKSPACE_GUARD = 4096
_POISON = {1: 0xA5, 2: 0xFFA5, 4: 0xFFA5A5A5}  # by element size; NaNs for floats
_QUICK_EVERY = 12  # a quick report runs one of this many kernels of each operation
_OF_A_KERNEL, _QUICK = 3, 1  # cases


@dataclass(frozen=True)
class OfKernel:
    """A case of one of an operation's own kernels, or of the kernels that plans choose."""

    operation: Operation[Any, Any]
    case: Case[Any]
    kernel: KernelSpec | None = None

    @property
    def what(self) -> str:
        """The subject of its row."""
        return self.kernel.name if self.kernel else f"{self.operation.name}, as planned"

    def __str__(self) -> str:
        return self.case.title


@dataclass(frozen=True)
class Held:
    """The result of a case: the worst error as a share of the tolerance, and the failure."""

    share: float
    wrong: str
    kernels: tuple[str, ...]


def _poison(element: np.dtype[Any]) -> int:
    """Bits that no result has; for 8-bit floats, the NaN of the type."""
    if element.itemsize == 1 and element.kind not in "iu":
        return int(np.full(1, np.nan, element).view(np.uint8)[0])
    return _POISON[element.itemsize]


class Guarded:
    """A device array inside a larger one of poison, with poison between its rows if `gaps`."""

    def __init__(
        self, shape: tuple[int, ...], dtype: str, guard: int = GUARD, gaps: bool = True
    ) -> None:
        element = as_dtype(dtype).numpy()
        self._shape, self._poison = shape, _poison(element)
        axes = shape if gaps else (math.prod(shape),)
        self._where = (*(slice(1, -1) for _ in axes[:-1]), slice(guard, -guard))
        wide = (*(n + 2 for n in axes[:-1]), axes[-1] + 2 * guard)
        self._bits = np.dtype(f"u{element.itemsize}")
        self._dtype = element
        self._array = asarray(np.full(wide, self._poison, self._bits).view(element))
        self.inner: DeviceArray = self._array[self._where].reshape(*shape)

    def taken(self, whole: bool = True) -> tuple[Array, str]:
        """The contents, and the failure: writes outside, or elements left out if `whole`."""
        after = self._array.numpy().view(self._bits)
        inside = after[self._where].copy()
        after[self._where] = self._poison
        wrong = ""
        if outside := np.count_nonzero(after != self._poison):
            wrong = f"{outside} elements around the result were written"
        elif whole and (left := np.count_nonzero(inside == self._poison)):
            wrong = f"{left} elements of the result were not written"
        return inside.view(self._dtype).reshape(self._shape), wrong


# -- which cases -----------------------------------------------------------------------------------


def groups(quick: bool) -> list[tuple[str, str, list[OfKernel]]]:
    """The name, title and cases of every step, by operation. Binds no device."""
    found = []
    for operation in operations():
        by_arch: dict[str, list[KernelSpec]] = {}
        for row in manifest.kernels():
            if row.op == operation.kernel_ops[0]:
                by_arch.setdefault(row.arch, []).append(row)
        by_arch = {arch: own[:: _QUICK_EVERY if quick else 1] for arch, own in by_arch.items()}
        cases = [
            OfKernel(operation, case, row)
            for own in by_arch.values()
            for row in own
            for case in _spread(list(operation.cases(row)), _QUICK if quick else _OF_A_KERNEL)
        ]
        general = list(operation.cases(None))
        cases += [OfKernel(operation, case) for case in (_spread(general, 2) if quick else general)]
        counts = ", ".join(f"{len(own)} for {arch}" for arch, own in by_arch.items())
        title = f"kernels of {operation.name} against float64 ({counts})"
        found.append((operation.name, title, cases))
    return found


def _spread(cases: list[Case[Any]], count: int) -> list[Case[Any]]:
    """A number of items, spread evenly, with the first and the last among them."""
    if len(cases) <= count:
        return cases
    return [cases[i * (len(cases) - 1) // max(count - 1, 1)] for i in range(count)]


def larger_cases() -> list[OfKernel]:
    """Cases with work for every CU, or for a few on the virtual device."""
    device = runtime.get()
    on_gpu, arch = device.choice.kind != "virtual", device.props.arch
    rows = {row.name: row for row in manifest.kernels() if row.arch == arch}
    return [
        OfKernel(operation, case, rows.get(case.kernel))
        for operation in operations()
        for case in operation.larger(on_gpu)
    ]


# -- running them ----------------------------------------------------------------------------------


def run(cases: Sequence[OfKernel], hold: Callable[[OfKernel], Held] | None = None) -> Iterator[Row]:
    """Yield a row for each kernel of the device, one for helper kernels, and one for others.

    A step whose kernels are all for other architectures fails.
    """
    hold = hold or held
    arch = runtime.device_props().arch
    by_kernel: dict[str, list[OfKernel]] = {}
    foreign: dict[str, set[str]] = {}
    for case in cases:
        if case.kernel is not None and case.kernel.arch != arch:
            foreign.setdefault(case.kernel.arch, set()).add(case.kernel.name)
        else:
            by_kernel.setdefault(case.what, []).append(case)
    others: set[str] = set()
    for what, of_kernel in by_kernel.items():
        worst, wrong = 0.0, ""
        for case in of_kernel:
            found = hold(case)
            worst = max(worst, found.share)
            others |= set(found.kernels)
            if found.wrong:
                wrong = f"{case}: {found.wrong}"
                break
        count = len(of_kernel)
        yield verdict(
            what,
            wrong,
            f"{worst:.0%} of the allowed error, {count} case{'s' * (count != 1)}, "
            "guard zones untouched",
            share=worst,
            cases=[str(case) for case in of_kernel],
        )
    others -= set(by_kernel)
    if others:
        yield verdict(
            "kernels that ran with them", "", ", ".join(sorted(others)), kernels=sorted(others)
        )
    for of, names in foreign.items():
        ran = any(case.kernel for of_kernel in by_kernel.values() for case in of_kernel)
        text = f"{len(names)}, not run: the device is {arch}"
        yield verdict(f"kernels for {of}", "" if ran else text, text, kernels=sorted(names))


def _guarded(plan: RunnablePlan[Any], spec: OperandSpec) -> Guarded:
    """Memory for a result, with gaps between its rows if the plan takes such."""
    found = Guarded(spec.shape, spec.dtype.name)
    if plan.unfit(spec, found.inner.view()):
        return Guarded(spec.shape, spec.dtype.name, gaps=False)
    return found


def held(one: OfKernel) -> Held:
    """Run a case on the bound device and compare."""
    operation, case = one.operation, one.case
    props = runtime.device_props()
    plan = operation.plan_case(case, props, manifest.kernels())
    variant = case.variant or plan.default_variant
    inputs = case.inputs(0)
    results = {
        spec.name: _guarded(plan, spec)
        for spec in plan.specs(variant).values()
        if spec.role == "out" and spec.present
    }
    scratch = None
    if plan.workspace.total_bytes:
        scratch = Guarded((plan.workspace.total_bytes,), "uint8", _WORKSPACE_GUARD)
        zeros = scratch.inner[: plan.workspace.zero_bytes]
        runtime.get().clear(zeros.address, zeros.nbytes, 0)
    arrays = {name: asarray(x) for name, x in inputs.items()}
    views, stream = plan.views_of(arrays, None)
    given = tuple(results[name].inner if name in results else None for name in plan.result_names)
    plan.execute(None, views, given, variant, stream, scratch and scratch.inner)
    runtime.synchronize()
    kernels = tuple(launch.kernel.name for launch in plan.launches)
    wrong = ""
    if scratch is not None:
        left, wrong = scratch.taken(whole=False)
        if left[: plan.workspace.zero_bytes].any():
            wrong = wrong or "the counters of the workspace are not 0 again"
    share = 0.0
    must = operation.reference(case, inputs)
    specs = plan.specs(variant)
    taken = {name: result.taken() for name, result in results.items()}
    taken |= {name: (x.numpy(), "") for name, x in arrays.items() if specs[name].role == "inout"}
    for name, (got, around) in taken.items():
        compared = judge(got, must[name].values, must[name].tolerance, 0.0)
        share = max(share, compared.share)
        if not wrong and (found := around or compared.reason):
            wrong = f"{specs[name].title}: {found}"
    return Held(math.inf if wrong else share, wrong, kernels)
