"""What the operands of an attention plan must be, and the memory of those that were."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from amdattn.arch.props import DeviceProps
from amdattn.arrays.buffers import View
from amdattn.arrays.dlpack import compact_strides
from amdattn.device import runtime
from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import FLOAT32, DType, as_dtype
from amdattn.errors import UnsupportedDeviceError
from amdattn.op.cache import keep
from amdattn.op.operands import (
    check_output,
    check_placement,
    check_shape,
    check_workspace,
    operand_of,
)
from amdattn.op.plan import Operand
from amdattn.ops.attention.alignment import check_alignment
from amdattn.ops.attention.problem import LABELS, AttentionProblem, axis_order

_TENSORS, _OF_KEYS = ("q", "k", "v", "o"), ("k", "v")
_INT32 = as_dtype("int32")


@dataclasses.dataclass(frozen=True, slots=True)
class Expected:
    """What an operand must be; of a result also the strides of one that is made: compact."""

    shape: tuple[int, ...]
    dtype: DType
    axes: tuple[str, ...]  # all but the last, which has stride 1
    strides: tuple[int, ...] = ()
    axis_strides: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @staticmethod
    def made(shape: tuple[int, ...], dtype: DType, axes: tuple[str, ...]) -> Expected:
        """What a result must be."""
        view = View(0, shape, compact_strides(shape), dtype, False, None, ordinal=0)
        return Expected(shape, dtype, axes, view.strides, operand_of(view, axes).strides)


class Admission:
    """Checks of the operands of a plan's runs.

    Parameters
    ----------
    input_names : tuple of str
        Operands that the plan reads.
    base : Admission, optional
        Of a plan that differs in the number of keys alone: what has nothing to do with the keys and
        passed there passes here.
    """

    __slots__ = (
        *("_problem", "_props", "_kernel", "_workspace_bytes", "_input_names", "_base"),
        *("_admitted", "_expected_by_layout", "_known"),
    )

    def __init__(
        self,
        problem: AttentionProblem,
        props: DeviceProps,
        kernel: KernelSpec,
        workspace_bytes: int,
        input_names: tuple[str, ...],
        base: Admission | None = None,
    ) -> None:
        self._problem = problem
        self._props = props
        self._kernel = kernel
        self._workspace_bytes = workspace_bytes
        self._input_names = input_names
        self._base = base
        self._admitted: dict[object, dict[str, Operand]] = {}
        self._expected_by_layout: dict[tuple[str, bool], Mapping[str, Expected]] = {}
        self._known: dict[object, Operand] = {}

    def with_keys(self, problem: AttentionProblem) -> Admission:
        """The same for a plan that differs in the number of keys alone."""
        return Admission(
            *(problem, self._props, self._kernel, self._workspace_bytes, self._input_names, self)
        )

    def admit(
        self, views: Mapping[str, View], outputs: Mapping[str, View], layout: str
    ) -> dict[str, Operand]:
        """The operands of what was given, after every check."""
        alike = layout, *[_but_for_keys(name, view) for name, view in {**views, **outputs}.items()]
        operands = self._admitted_alike(alike, views, outputs, layout)
        if operands is None:
            operands = self._check_all(views, outputs, layout)
            if views["q"].on_device and self._num_keys > 1:
                keep((self._base or self)._admitted, alike, operands)
        return operands

    @property
    def _num_keys(self) -> int:
        return self._problem.total_kv or self._problem.seqlen_kv

    def _admitted_alike(
        self,
        alike: object,
        views: Mapping[str, View],
        outputs: Mapping[str, View],
        layout: str,
    ) -> dict[str, Operand] | None:
        """The same operands if they passed before with other numbers of keys, and do so again."""
        if self._base is None or self._num_keys == 1:  # a stride along one key counts for nothing
            return None
        operands = self._base._admitted.get(alike)
        if operands is None:
            return None
        expected = self._base.expected(layout, with_inputs=True)
        ranges = [output.extent() for output in outputs.values()]
        for name in _OF_KEYS:
            if views[name].shape != self._shape_of_keys(expected[name]):
                return None
            low, high = views[name].extent()
            if any([begin < high and low < end for begin, end in ranges]):
                return None
        return operands

    def _check_all(
        self, views: Mapping[str, View], outputs: Mapping[str, View], layout: str
    ) -> dict[str, Operand]:
        device = runtime.get(views["q"].ordinal)
        if device.props.arch != self._props.arch:
            raise UnsupportedDeviceError(
                f"this plan is for {self._props.arch}, but {device.props.name} "
                f"({device.props.arch}) is bound"
            )
        if "lse" in outputs and not self._problem.return_lse:
            raise ValueError("lse was given, but return_lse is false")
        arrays = {**views, **outputs}
        check_placement({LABELS.get(name, name): view for name, view in arrays.items()})
        return self._check(views, outputs, layout)

    def expected(self, layout: str, with_inputs: bool = False) -> Mapping[str, Expected]:
        """The results of the plan, "lse" only if it is asked for; or all operands."""
        key = layout, with_inputs
        expected = self._expected_by_layout.get(key)
        if expected is None:
            if self._base is None:
                names = ("o", *(("lse",) * self._problem.return_lse))
                expected = self._facts(layout, (*names, *(self._input_names * with_inputs)))
            else:  # only k and v have other shapes
                expected = self._base.expected(layout, with_inputs)
                if with_inputs:
                    keys = {name: self._of_keys(expected[name]) for name in _OF_KEYS}
                    expected = {**expected, **keys}
            self._expected_by_layout[key] = expected
        return expected

    def _of_keys(self, of_base: Expected) -> Expected:
        """What k or v must be, of what that of the plan with other keys must be."""
        return Expected(self._shape_of_keys(of_base), of_base.dtype, of_base.axes)

    def _shape_of_keys(self, of_base: Expected) -> tuple[int, ...]:
        seq, shape = of_base.axes.index("seq"), of_base.shape
        return (*shape[:seq], self._num_keys, *shape[seq + 1 :])

    def _facts(self, layout: str, names: tuple[str, ...]) -> dict[str, Expected]:
        p = self._problem
        found = {}
        for name in names:
            if name in _TENSORS:
                facts = p.shape(name, layout), as_dtype(p.dtype), axis_order(layout)
            elif name == "lse":
                axes = ("head",) if p.varlen else ("batch", "head")
                facts = p.shape("lse", layout), FLOAT32, axes
            elif name == "sinks":
                facts = (p.num_heads_q,), FLOAT32, ()
            else:
                facts = (p.batch + 1,), _INT32, ()
            found[name] = (Expected.made if name in ("o", "lse") else Expected)(*facts)
        return found

    def _check(
        self, views: Mapping[str, View], outputs: Mapping[str, View], layout: str
    ) -> dict[str, Operand]:
        """The operands of what was given, after every check of them."""
        expected = self.expected(layout, with_inputs=True)
        taken: dict[str, View] = {}
        operands: dict[str, Operand] = {}
        for name, view in {**views, **outputs}.items():
            label = LABELS.get(name, name)
            if name == "workspace":
                check_workspace(view, self._workspace_bytes)
                operands[name] = operand_of(view, ())
            else:
                operands[name] = self._operand(name, view, label, expected[name], layout)
            if name in outputs:
                check_output(label, view, taken)
            taken[label] = view
        return operands

    def _operand(self, name: str, view: View, label: str, wanted: Expected, layout: str) -> Operand:
        """What a launch needs of one operand, whose shape, type and alignment are right."""
        # What is not of the keys is so for every number of them.
        known = (self._base or self)._known if name not in _OF_KEYS else None
        key = name, layout, view.facts
        if known is not None and (found := known.get(key)) is not None:
            return found
        check_shape(view, label, wanted.shape, wanted.dtype.name, layout)
        operand = operand_of(view, wanted.axes)
        if view.on_device and name in _TENSORS:
            of_blocks = name in _OF_KEYS and name not in self._problem.gather
            check_alignment(operand, label, self._kernel, wanted.shape[-1], of_blocks)
        if known is not None:
            keep(known, key, operand)
        return operand


def _but_for_keys(name: str, view: View) -> object:
    """What checks of an operand depend on, but for how many keys there are."""
    if name in _OF_KEYS:
        return view.address, view.strides, view.dtype.name, view.ordinal
    return name, view.facts
