"""The required operands of a plan, and the checks of those that are given."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, ClassVar

from amdattn.arrays.dlpack import compact_strides
from amdattn.arrays.interchange import as_view
from amdattn.arrays.views import View
from amdattn.device import runtime
from amdattn.errors import UnsupportedDeviceError
from amdattn.op.operands import (
    check_output,
    check_placement,
    check_shape,
    check_workspace,
    operand_of,
    same_elements,
)
from amdattn.op.plan import Operand, P, Plan
from amdattn.op.spec import OperandSpec, Specs
from amdattn.op.staging import WORKSPACE


class CheckedPlan(Plan[P]):
    """A plan that knows its operands.

    An operation defines its operands (`operands`), and may refine how a kernel takes them
    (`operand`, `misfit`).

    Attributes
    ----------
    input_names : tuple of str
        Operands that a caller gives, in the order in which `execute` takes them.
    default_variant : str
        The variant for callers that give none.
    result_names, result_labels : tuple of str
        Operands that are allocated if no caller gives them, including those that this plan lacks;
        and the names that callers know.
    """

    result_names: ClassVar[tuple[str, ...]] = ("out",)
    result_labels: ClassVar[tuple[str, ...]] = ("out",)
    default_variant: ClassVar[str] = ""
    # -- what an operation says ------------------------------------------------------------------

    def operands(self, variant: str) -> Specs:
        """The required shape and type of every operand; `variant` refines the plan."""
        raise NotImplementedError

    def operand(self, spec: OperandSpec, view: View) -> Operand:
        """The values that launches need of an operand."""
        return operand_of(view, spec.axes)

    def misfit(self, spec: OperandSpec, operand: Operand) -> str:
        """Why no kernel of the plan takes the address or strides of an operand, or ""."""
        return ""

    def misfit_of_copy(self, spec: OperandSpec, operand: Operand) -> str:
        """`misfit` for a copy of host memory; if it is not "", the copy is made without gaps."""
        return self.misfit(spec, operand)

    @property
    def overwritten(self) -> frozenset[str]:
        """Inputs that results may overwrite, by the names that callers know."""
        return frozenset()

    # -- what follows from it --------------------------------------------------------------------

    @functools.cached_property
    def _specs(self) -> dict[str, Specs]:
        return {}

    def specs(self, variant: str = "") -> Specs:
        """The specs of all operands by name, including those that this plan lacks."""
        variant = variant or self.default_variant
        found = self._specs.get(variant)
        if found is None:
            found = self._specs[variant] = self.operands(variant)
        return found

    @functools.cached_property
    def _made(self) -> dict[str, tuple[tuple[OperandSpec, Operand], ...]]:
        return {}

    def _results(self, variant: str) -> tuple[tuple[OperandSpec, Operand], ...]:
        """For each result its spec, and the values that launches need for one at address 0."""
        found = self._made.get(variant)
        if found is None:
            found = tuple(
                (spec, self.operand(spec, _compact_view(spec)))
                for spec in self.specs(variant).values()
                if spec.role == "out" and spec.present
            )
            self._made[variant] = found
        return found

    @functools.cached_property
    def input_names(self) -> tuple[str, ...]:  # noqa: D102 -- an attribute of the class
        specs = self.specs().values()
        return tuple(spec.name for spec in specs if spec.role != "out" and spec.present)

    def views_of(self, given: Mapping[str, Any], stream: Any) -> tuple[tuple[View, ...], int]:
        """Views of a caller's arrays by name, None for missing ones; and the stream."""
        handle = runtime.stream_handle(stream)
        specs = self.specs()
        ordinal = None
        views: list[View] = []
        for name, array in given.items():
            spec = specs[name]
            if spec.present and (array is not None or not spec.condition):
                read = spec.host_check
                view = (
                    as_view(array, spec.title, handle)
                    if read is None
                    else read(array, spec.title, ordinal, handle)
                )
                ordinal = ordinal if views else view.ordinal
                views.append(view)
            elif spec.present or array is not None:
                raise ValueError(_presence(spec, array is not None, self.problem))
        return tuple(views), handle

    def admit(
        self, inputs: Mapping[str, View], outputs: Mapping[str, View], variant: str
    ) -> dict[str, Operand]:
        """Return the operands for the given arrays, after every check."""
        first = next(iter(inputs.values()))
        device = runtime.get(first.ordinal)
        if device.props.arch != self.props.arch:
            raise UnsupportedDeviceError(
                f"this plan is for {self.props.arch}, but {device.props.name} "
                f"({device.props.arch}) is bound"
            )
        specs = self.specs(variant)
        for name in outputs:
            if name != WORKSPACE and not specs[name].present:
                raise ValueError(_presence(specs[name], True, self.problem))
        arrays = {**inputs, **outputs}
        if len({view.ordinal for view in arrays.values()}) > 1:
            titles = {name: spec.title for name, spec in specs.items()}
            check_placement({titles.get(name, name): view for name, view in arrays.items()})
        operands: dict[str, Operand] = {}
        read: dict[str, View] = {}
        written: dict[str, View] = {}
        for name, view in arrays.items():
            if name == WORKSPACE:
                check_workspace(view, self.workspace.total_bytes)
                operands[name] = operand_of(view, ())
                written[name] = view
            else:
                spec = specs[name]
                operands[name] = self.admit_one(spec, view, variant)
                (read if spec.role == "in" else written)[spec.title] = view
        for title, view in written.items():  # it shares no memory with any other operand
            over = self.overwritten & set(read)
            itself = [name for name in over if same_elements(view, read[name])]
            check_output(title, view, {name: read[name] for name in read if name not in itself})
            read[title] = view
        return operands

    def admit_one(self, spec: OperandSpec, view: View, variant: str) -> Operand:
        """The values that launches need of one operand, after its own checks."""
        check_shape(view, spec.title, spec.shape, spec.dtype.name, spec.layout or variant)
        operand = self.operand(spec, view)
        wrong = view.on_device and (_gaps(self, spec, view) or self.misfit(spec, operand))
        if wrong:
            raise ValueError(f"{spec.title} has {wrong}")
        return operand

    def unfit(self, spec: OperandSpec, view: View) -> str:
        """Why the plan does not take the address or strides of device memory, or ""."""
        return _gaps(self, spec, view) or self.misfit(spec, self.operand(spec, view))


def _gaps(plan: CheckedPlan[Any], spec: OperandSpec, view: View) -> str:
    """Gaps along axes whose strides no launch knows, unless the operation allows them."""
    if len(spec.axes) >= len(spec.shape) - 1 or type(plan).operand is not CheckedPlan.operand:
        return ""
    axes = zip(view.shape, view.strides, compact_strides(view.shape), strict=True)
    if all(n == 1 or stride == compact for n, stride, compact in axes):
        return ""
    return f"strides {view.strides}; it must be without gaps"


def _compact_view(spec: OperandSpec) -> View:
    strides = compact_strides(spec.shape)
    return View(0, spec.shape, strides, spec.dtype, False, None, ordinal=0)


def _presence(spec: OperandSpec, is_given: bool, problem: object) -> str:
    """The message for an operand that was given, or is missing, against the plan."""
    was = "given" if is_given else "not given"
    value = getattr(problem, spec.condition)
    return f"{spec.title} was {was}, but the plan has {spec.condition}={value}"
