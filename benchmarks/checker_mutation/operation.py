"""Launches of any operation's own kernels, of the cases that the registry has of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdattn.arch.props import DeviceProps
from amdattn.arrays.buffers import View
from amdattn.arrays.dlpack import compact_strides
from amdattn.device import manifest
from amdattn.device.kernarg import packer
from amdattn.device.manifest import KernelSpec
from amdattn.op.operation import Case as OperationCase, Operation
from amdattn.op.plan import Address, PerRun, Stride
from benchmarks.checker_mutation.subject import Buffer, Case, Subject, read_only, unwritten

_SEED = 0


def operation_subject(
    operation: Operation[Any, Any], kernel: KernelSpec, props: DeviceProps
) -> Subject:
    """One of an operation's own kernels."""
    made = tuple(_case(operation, case, kernel, props) for case in operation.cases(kernel))
    return Subject(kernel.name, kernel.read_code_object(), kernel.symbol, made)


def _case(
    operation: Operation[Any, Any], case: OperationCase[Any], kernel: KernelSpec, props: DeviceProps
) -> Case:
    plan = operation.plan(case.problem, props, manifest.kernels(), kernel.name)
    launch = next(launch for launch in plan.launches if launch.kernel is kernel)
    specs = plan.specs(case.variant)
    buffers, operands = [], {}
    for name, array in case.inputs(_SEED).items():
        spec = specs[name]
        data = np.ascontiguousarray(array).tobytes()
        is_read = spec.role == "in"
        buffers.append(read_only(name, data) if is_read else Buffer(name, len(data), data, True))
    for spec in specs.values():
        if spec.role == "out" and spec.present:
            buffers.append(unwritten(spec.name, spec.nbytes))
    for region in plan.workspace.regions:
        if region.init == "none":
            buffers.append(Buffer(region.name, region.nbytes))
        else:
            contract = "zero_at_end" if region.init == "zero_at_rest" else ""
            zeros = bytes(region.nbytes)
            buffers.append(Buffer(region.name, region.nbytes, zeros, contract=contract))
    for spec in specs.values():
        strides = compact_strides(spec.shape)
        view = View(0, spec.shape, strides, spec.dtype, False, None, ordinal=0)
        operands[spec.name] = plan.operand(spec, view)
    index = {buffer.name: i for i, buffer in enumerate(buffers)}
    offsets = {name: offset for name, offset, *_ in kernel.kernarg.fields}
    layout, args = packer(kernel), dict(launch.args)
    values: list[int | float] = []
    pointers = []
    for name in layout.names:
        value = args[name]
        if isinstance(value, Address):
            pointers.append((offsets[name], index[value.operand]))
            values.append(0)
        elif isinstance(value, Stride):
            values.append(operands[value.operand].strides[value.axis])
        else:
            values.append(1 if isinstance(value, PerRun) else value)
    block = bytearray(layout.size)
    layout.pack_into(block, 0, *values)
    return Case(
        *(case.title, launch.grid, kernel.workgroup, bytes(block), tuple(pointers)), tuple(buffers)
    )
