"""What holds of every operation of the registry: nothing here names one."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.arch.props import KNOWN_DEVICES
from amdattn.arrays.buffers import empty
from amdattn.arrays.interchange import asarray
from amdattn.checking.findings import ERROR, FindingLog
from amdattn.checking.schedules import run, schedules
from amdattn.checking.subjects import OfOperation
from amdattn.device import manifest, runtime
from amdattn.op.comparison import judge
from amdattn.op.operation import Case, Operation
from amdattn.ops import registry
from amdattn.testing import selftest
from tests.support.shipped import shipped

OPERATIONS = registry.operations()
PROPS = KNOWN_DEVICES["MI300X"]
of_every = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
AnyOperation = Operation[Any, Any]


def cases(operation: AnyOperation) -> Iterator[Case[Any]]:
    """General ones, and those of every kernel."""
    own = shipped(operation.kernel_ops[0])
    for row in (None, *own):
        yield from operation.cases(row)


def plan_of(operation: AnyOperation, case: Case[Any]) -> Any:
    return operation.plan(case.problem, PROPS, manifest.kernels(), case.kernel)


@of_every
def test_plans_read_what_was_written(operation: AnyOperation) -> None:
    for case in cases(operation):
        plan = plan_of(operation, case)
        specs = plan.specs(case.variant).values()
        inputs = [one.name for one in specs if one.role != "out" and one.present]
        results = [one.name for one in specs if one.role == "out" and one.present]
        assert plan.flow_errors(inputs, results) == [], case.title
        assert list(plan.input_names) == inputs
        assert {launch.kernel.op for launch in plan.launches} <= {*operation.kernel_ops}


@of_every
def test_wrong_orders_are_told(operation: AnyOperation) -> None:
    """Of each plan that has one: without a writer, a reader, an operand."""
    plan = plan_of(operation, next(iter(cases(operation))))
    specs = plan.specs().values()
    inputs = [one.name for one in specs if one.role != "out" and one.present]
    results = [one.name for one in specs if one.role == "out" and one.present]
    assert plan.flow_errors(inputs, [*results, "other"]) == ["nothing writes other"]
    assert plan.flow_errors([*inputs, "other"], results) == ["nothing reads other"]
    assert any("reads" in error for error in plan.flow_errors(inputs[1:], results))
    mute = dataclasses.replace(plan.launches[-1], writes=frozenset())
    assert dataclasses.replace(plan, launches=(mute,)).flow_errors(inputs, results)


@of_every
def test_a_named_kernel_is_taken(operation: AnyOperation) -> None:
    own = shipped(operation.kernel_ops[0])
    assert own
    for row in own:
        made = list(operation.cases(row))
        assert made and all(case.kernel == row.name for case in made)
        assert row in {launch.kernel for launch in plan_of(operation, made[0]).launches}


@of_every
def test_some_cases_hold(operation: AnyOperation) -> None:
    """Also those of kernels, of which `amdattn selftest` runs none."""
    some = random.Random(operation.name).sample(list(cases(operation)), 12)
    for case in some:
        result = selftest.run_case(operation, case, seed=1)
        assert result.ok, f"{case.title}: {result.reason}"


@of_every
def test_results_on_the_device_are_those_of_the_host(operation: AnyOperation) -> None:
    case = list(operation.cases(None))[3]
    plan, inputs = plan_of(operation, case), case.inputs(5)
    variant = case.variant or plan.default_variant
    first = next(iter(inputs.values()))
    none = (None,) * len(plan.result_names)
    views, stream = plan.views_of(inputs, None)
    of_host = plan.execute(first, views, none, variant, stream)
    arrays = {name: asarray(x) for name, x in inputs.items()}
    for _ in range(3):  # checked; packed; submitted as it was packed
        views, stream = plan.views_of(arrays, None)
        of_device = plan.execute(next(iter(arrays.values())), views, none, variant, stream)
        for one, other in zip(of_host, of_device, strict=True):
            assert (one is None) == (other is None)
            if other is not None:
                np.testing.assert_array_equal(one.view(np.uint8), other.numpy().view(np.uint8))


@of_every
def test_wrong_results_are_told(operation: AnyOperation) -> None:
    case = next(case for case in operation.cases(None) if case.problem.flops > 1000)
    for name, must in operation.reference(case, case.inputs(0)).items():
        assert judge(must.values, must.values, must.tolerance, 0.0)
        wrong = must.values.copy()
        at = np.unravel_index(int(np.argmax(np.abs(wrong))), wrong.shape)
        wrong[at] += 2 * float(np.max(must.tolerance)) + 1e-3
        assert not judge(wrong, must.values, must.tolerance, 0.0), name
        wrong[at] = np.nan
        assert "NaN" in judge(wrong, must.values, must.tolerance, 0.0).reason


@of_every
def test_no_findings_and_no_differences_under_schedules(operation: AnyOperation) -> None:
    log = FindingLog()
    case = list(operation.cases(None))[-1]
    for _ in run(OfOperation(operation, case, 2), schedules(3), log):
        pass
    assert log.num_launches >= 3
    assert [str(finding) for finding in log if finding.severity == ERROR] == []


@of_every
def test_options_of_commands_make_problems(operation: AnyOperation) -> None:
    values = {
        option.name: 8 if option.default is ... else option.default for option in operation.options
    }
    problem = operation.problem(**values)
    assert operation.planned(problem, PROPS).problem == problem
    assert problem.text and problem.brief and problem.flops > 0


def test_unknown_operation() -> None:
    with pytest.raises(ValueError, match=f"operation='conv' must be one of {registry.names()[0]}"):
        registry.operation("conv")


def test_plans_are_those_of_the_public_functions() -> None:
    """One cache: what a command explains is what a call runs."""
    assert registry.operation("gemm").planned(
        amdattn.plan_gemm(4, 64, 512, device="MI300X").problem, PROPS
    ) is amdattn.plan_gemm(4, 64, 512, device="MI300X")


@of_every
def test_graphs_of_plans(operation: AnyOperation, hip_stream: Any) -> None:
    """Captured with every result given, replayed on new contents of the same arrays."""
    case = list(operation.cases(None))[4]
    plan, stream = plan_of(operation, case), runtime.stream_handle(hip_stream)
    variant, device = case.variant or plan.default_variant, runtime.get()
    arrays = {name: asarray(x) for name, x in case.inputs(1).items()}
    specs = plan.specs(variant)
    results = tuple(
        empty(specs[name].shape, specs[name].dtype.name) if specs[name].present else None
        for name in plan.result_names
    )
    workspace = plan.new_workspace() if plan.workspace.regions else None
    views, _ = plan.views_of(arrays, None)
    plan.execute(None, views, results, variant, 0, workspace)  # loads the kernels
    device.synchronize(0)
    hip = device.hip
    mode = hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
    device.check("hipStreamBeginCapture", hip.hipStreamBeginCapture(stream, mode))
    views, _ = plan.views_of(arrays, stream)
    with pytest.raises(ValueError, match="a graph is being captured"):
        plan.execute(None, views, (None,) * len(results), variant, stream, workspace)
    plan.execute(None, views, results, variant, stream, workspace)
    graph = device.check("hipStreamEndCapture", hip.hipStreamEndCapture(stream))
    made = device.check("hipGraphInstantiate", hip.hipGraphInstantiateWithFlags(graph, 0))
    for seed in (2, 3):
        inputs = case.inputs(seed)
        for name, x in inputs.items():
            device.upload(arrays[name].address, np.ascontiguousarray(x).ctypes.data, x.nbytes, 0)
        device.synchronize(0)
        device.check("hipGraphLaunch", hip.hipGraphLaunch(made, stream))
        device.synchronize(stream)
        for name, must in operation.reference(case, inputs).items():
            result = results[plan.result_names.index(name)]
            assert result is not None
            assert judge(result.numpy(), must.values, must.tolerance, 0.0), name
    device.check("hipGraphExecDestroy", hip.hipGraphExecDestroy(made))
    device.check("hipGraphDestroy", hip.hipGraphDestroy(graph))


@of_every
def test_a_kernel_that_is_none_is_named(operation: AnyOperation) -> None:
    case = next(operation.cases(None))
    with pytest.raises(ValueError, match="kernel='nope' must be one of "):
        operation.plan(case.problem, PROPS, manifest.kernels(), "nope")
