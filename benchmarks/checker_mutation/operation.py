"""Launches of any operation's own kernels, of the cases that the registry has of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn.arch.props import DeviceProps
from amdattn.arrays.buffers import empty
from amdattn.arrays.dlpack import compact_strides
from amdattn.arrays.interchange import asarray
from amdattn.arrays.views import View
from amdattn.device import manifest
from amdattn.device.kernarg import packer
from amdattn.device.manifest import KernelSpec
from amdattn.op.executor import RunnablePlan
from amdattn.op.operation import Case as OperationCase, Operation
from amdattn.op.plan import Address, PerRun, Stride
from amdattn.op.spec import OperandSpec
from amdattn.op.workspace import Region
from benchmarks.checker_mutation.subject import Buffer, Case, Subject, read_only, unwritten

_SEED = 0
_WILD = ("wild", "nothing")
# Of a counter of arrivals, as sample/slices.h has it: the run that counted last is above this bit.
_GENERATION_BIT = 17
_GENERATION, _OLDER = 2, 1  # the launch, and one before it that was aborted
_STALE_EACH = 4  # of so many cases one


def operation_subject(
    operation: Operation[Any, Any], kernel: KernelSpec, props: DeviceProps
) -> Subject:
    """A kernel of an operation; of one that is not its own, in the plans that launch it."""
    own = is_own(operation, kernel)
    cases = [
        case
        for case in operation.cases(kernel if own else None)
        if own or _launches(operation, case, kernel, props)
    ]
    again = [
        operation_case(operation, case, kernel, props, nth=nth)
        for case in cases
        for nth in range(1, _times(operation, case, kernel, props) if own else 1)
    ]
    tame, *others = (
        [operation_case(operation, case, kernel, props, wild=wild) for case in cases]
        for wild in ("", *_WILD)
    )
    wild = [
        other
        for some in others
        for one, other in zip(tame, some, strict=True)
        if one.buffers != other.buffers
    ]
    stale = [
        operation_case(
            *(operation, case, kernel, props),
            run=_GENERATION,
            at_rest=_OLDER << _GENERATION_BIT | 1,
        )
        for case in cases[::_STALE_EACH]
        if own and _counts_runs(operation, case, kernel, props)
    ]
    made = (*tame, *again, *wild, *stale)
    return Subject(kernel.name, kernel.read_code_object(), kernel.symbol, made)


def is_own(operation: Operation[Any, Any], kernel: KernelSpec) -> bool:
    """Whether plans can be asked for with this kernel."""
    return kernel.op == operation.kernel_ops[0]


def _launches(
    operation: Operation[Any, Any],
    case: OperationCase[Any],
    kernel: KernelSpec,
    props: DeviceProps,
) -> bool:
    plan = operation.plan(case.problem, props, manifest.kernels())
    return any(launch.kernel is kernel for launch in plan.launches)


def _counts_runs(
    operation: Operation[Any, Any],
    case: OperationCase[Any],
    kernel: KernelSpec,
    props: DeviceProps,
) -> bool:
    """Whether counters at rest tell launches apart, so that aborted ones may leave anything."""
    plan = operation.plan(case.problem, props, manifest.kernels(), kernel.name)
    return any(isinstance(value, PerRun) for _, value in plan.launches[0].args) and any(
        region.init == "zero_at_rest" for region in plan.workspace.regions
    )


def _times(
    operation: Operation[Any, Any],
    case: OperationCase[Any],
    kernel: KernelSpec,
    props: DeviceProps,
) -> int:
    """How often a plan launches the kernel."""
    plan = operation.plan(case.problem, props, manifest.kernels(), kernel.name)
    return [launch.kernel for launch in plan.launches].count(kernel)


def _left(
    plan: RunnablePlan[Any], inputs: Mapping[str, NDArray[Any]], nth: int
) -> dict[str, bytes]:
    """What regions hold behind the first `nth` launches."""
    first = dataclasses.replace(plan, launches=plan.launches[:nth])
    workspace, specs = first.new_workspace(), first.specs()
    views, stream = first.views_of({name: asarray(x) for name, x in inputs.items()}, None)
    results = tuple(empty(specs[name].shape, specs[name].dtype.name) for name in first.result_names)
    first.execute(None, views, results, "", stream, workspace)
    held = workspace.numpy().tobytes()
    return {
        region.name: held[region.offset : region.offset + region.nbytes]
        for region in plan.workspace.regions
    }


def operation_case(
    operation: Operation[Any, Any],
    case: OperationCase[Any],
    kernel: KernelSpec,
    props: DeviceProps,
    *,
    run: int = 1,
    at_rest: int = 0,
    wild: str = "",
    nth: int = 0,
) -> Case:
    """One launch of one of an operation's kernels.

    What an earlier launch of the plan writes is random: numbers in each type that memory holds. It
    is zero where this launch adds to it, so that two terms give the same sum in either order.

    Parameters
    ----------
    run : int
        What a number that differs from run to run is.
    at_rest : int
        Of 64 bits, in memory that is to be left at zero: what an aborted launch has left there.
    wild : {"", "wild", "nothing"}
        Some of what an earlier launch writes is minus infinity, as the logarithm of no key is, or
        infinite or none; or no number is any, so that whole waves go the way of those.
    nth : int
        Of several launches of the kernel in a plan which one. Behind the first one regions hold
        what those before have left.
    """
    named = kernel.name if is_own(operation, kernel) else ""
    plan = operation.plan(case.problem, props, manifest.kernels(), named)
    its = [i for i, launch in enumerate(plan.launches) if launch.kernel is kernel]
    at = its[nth]
    launch, again = plan.launches[at], nth > 0
    left = _left(plan, case.inputs(_SEED), at) if again else {}
    written = frozenset[str]().union(*(earlier.writes for earlier in plan.launches[:at]))
    finished = frozenset[str]().union(*(later.writes for later in plan.launches[at + 1 :]))
    specs = plan.specs(case.variant)
    buffers, operands = [], {}
    for name, array in case.inputs(_SEED).items():
        spec = specs[name]
        data = np.ascontiguousarray(array).tobytes()
        is_read = spec.role == "in"
        buffers.append(read_only(name, data) if is_read else Buffer(name, len(data), data, True))
    for spec in specs.values():
        if spec.role == "out" and spec.name in launch.writes:
            is_sum = spec.name in launch.updates & written
            if spec.name in finished and len(its) > 1:  # of which a part may be left to a later one
                data = b"\xff" * spec.nbytes
                buffers.append(Buffer(spec.name, spec.nbytes, data, output=True))
            else:
                buffers.append(_sums(spec) if is_sum else unwritten(spec.name, spec.nbytes))
    read_later = frozenset[str]().union(*(later.reads for later in plan.launches[at + 1 :]))
    for region in plan.workspace.regions:
        if again and region.name in written:
            is_read = region.name in launch.writes & read_later
            buffers.append(Buffer(region.name, region.nbytes, left[region.name], output=is_read))
        elif region.name in launch.updates & written:
            buffers.append(_sums(region))
        elif region.init == "none" and region.name in launch.writes & read_later:
            # Of which a part may be left as it is, such as rows that no sequence has.
            buffers.append(Buffer(region.name, region.nbytes, b"\xff" * region.nbytes, output=True))
        elif region.init == "none" and region.name in written:
            buffers.append(Buffer(region.name, region.nbytes, _numbers(region.nbytes, wild)))
        elif region.init == "none":
            buffers.append(Buffer(region.name, region.nbytes))
        else:
            is_at_rest = region.init == "zero_at_rest"
            word = at_rest.to_bytes(8, "little") if is_at_rest else bytes(8)
            data = (word * -(-region.nbytes // 8))[: region.nbytes]
            contract = "zero_at_end" if is_at_rest else ""
            buffers.append(Buffer(region.name, region.nbytes, data, contract=contract))
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
            values.append(run if isinstance(value, PerRun) else value)
    block = bytearray(layout.size)
    layout.pack_into(block, 0, *values)
    return Case(
        *(
            case.title + f", {wild}" * bool(wild) + ", stale" * bool(at_rest),
            launch.grid,
            kernel.workgroup,
            bytes(block),
            tuple(pointers),
        ),
        tuple(buffers),
    )


def _sums(of: OperandSpec | Region) -> Buffer:
    """A result that a launch adds to."""
    return Buffer(of.name, of.nbytes, bytes(of.nbytes), output=True)


def _numbers(nbytes: int, wild: str) -> bytes:
    """Normal ones of bfloat16, which are such in pairs as float32, too."""
    rng = np.random.default_rng(_SEED)
    some = rng.standard_normal(-(-nbytes // 4) * 2, np.float32)
    words = (some.view(np.uint32) >> 16).astype(np.uint16).view(np.float32)
    if wild == "nothing":
        words[:] = np.nan
    elif wild:
        which = rng.random(len(words))
        words[which < 0.3] = -np.inf
        words[which < 0.06] = np.inf
        words[which < 0.03] = np.nan
    return words.tobytes()[:nbytes]
