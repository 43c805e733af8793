"""Parts along k of the decode GEMM: both ways to add them up, under every disturbance."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.checking import schedules
from amdattn.checking.findings import ERROR, FindingLog
from amdattn.device import runtime
from amdattn.op import zero_at_rest
from amdattn.op.launch import PreparedLaunch, runs
from amdattn.op.plan import Operand
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.ops.gemm.problem import GemmProblem
from tests.support.gemm_family import (
    SMALL,
    SOME_SPLITTING,
    SPLITTING,
    WITH_FACTORS,
    Array,
    Call,
    adds_in_order,
    operands,
    planned,
)

BOTH = pytest.mark.parametrize("deterministic", [True, False], ids=["in_order", "adding"])


@pytest.fixture(autouse=True)
def _options_as_before() -> Iterator[None]:
    yield
    for key, value in (("seed", 0), ("resident_workgroups", 0), ("quantum", 8)):
        amdattn.virtual.set_option(key, value)


def zeros_of(plan: GemmPlan, workspace: amdattn.DeviceArray) -> amdattn.DeviceArray:
    """What is 0 between launches: the counters, and sums that parts are added to."""
    if adds_in_order(plan):
        return workspace[: plan.workspace["counters"].nbytes]
    return workspace


@pytest.fixture
def kernels_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is set right but by the kernels themselves."""
    monkeypatch.setattr(zero_at_rest, "prepare", lambda *_: None)
    monkeypatch.setattr(runtime.get(), "after_failures", [])


class Checked:
    """A call for checked mode; `stale`: on what a launch that was aborted left behind."""

    def __init__(self, call: Call, stale: bool = False) -> None:
        self.call, self.stale = call, stale
        self.title = str(call)

    def run(self, check: Any) -> dict[str, Array]:
        plan = self.call.plan()
        a, b, *bias = arrays = [amdattn.asarray(x) for x in self.call.inputs()]
        out = amdattn.empty((self.call.m, self.call.n), plan.problem.out_dtype)
        more: dict[str, Any] = {"bias": bias[0]} if bias else {}
        workspace = plan.new_workspace()
        if self.stale:
            soil(plan, workspace)
        check.declare(read_only=arrays, zero_at_end=[zeros_of(plan, workspace)])
        plan.run(a, b, out, workspace=workspace, **more)
        self.call.hold(out.numpy(), *self.call.inputs())
        return {"out": out.numpy()} if plan.problem.deterministic else {}


def soil(plan: GemmPlan, workspace: amdattn.DeviceArray, seed: int = 0) -> None:
    """Counters and sums as after any aborted launches."""
    rng = np.random.default_rng(seed)
    counters, partials = plan.workspace["counters"], plan.workspace["partials"]
    memory = np.zeros(workspace.nbytes, np.uint8)
    sums = rng.standard_normal(partials.nbytes // 4, np.float32)
    memory[partials.offset :] = sums.view(np.uint8)
    # Of launch 1: its sums may have been open, a few parts may have arrived.
    next(runs)
    states = [generation << 16 | arrived for generation in (2, 3) for arrived in (0, 1, 2)]
    left = rng.choice(np.array(states, np.uint64), counters.nbytes // 8)
    memory[: counters.nbytes] = left.view(np.uint8)
    device = runtime.get()
    device.upload(workspace.address, memory.ctypes.data, memory.nbytes)
    amdattn.synchronize()


def checked(subject: Checked, count: int) -> None:
    log = FindingLog()
    for _ in schedules.run(subject, schedules.schedules(count), log):
        pass
    assert log.num_launches == count
    assert not [str(finding) for finding in log if finding.severity == ERROR]


@BOTH
@pytest.mark.parametrize("name", SOME_SPLITTING)
def test_checked_under_schedules(name: str, deterministic: bool) -> None:
    options = {"split_k": 3, "deterministic": deterministic}
    checked(Checked(Call(35, 40, 840, name, options)), 2)
    activation = "silu_and_mul" if name in WITH_FACTORS else "silu"
    gated = Call(35, 21, 840, name, {**options, "activation": activation})
    checked(Checked(gated, stale=True), 2)


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("name", SPLITTING)
def test_checked_under_many_schedules(name: str, deterministic: bool) -> None:
    call = Call(18, 34, 1352, name, {"split_k": 4, "deterministic": deterministic})
    checked(Checked(call), 64)
    checked(Checked(call, stale=True), 64)


def test_the_order_of_arrivals_does_not_matter() -> None:
    call = Call(20, 40, 2048, SMALL, {"split_k": 5})
    first = call.run()
    for seed in range(1, 6):
        amdattn.virtual.set_option("seed", seed)
        amdattn.virtual.set_option("resident_workgroups", seed % 3)
        assert (call.run() == first).all()


def back_to_back(deterministic: bool, count: int) -> None:
    plan = planned(GemmProblem(2, 32, 256, split_k=2, deterministic=deterministic), SMALL)
    a, b, _ = operands(2, 32, 256)
    device_a, device_b, workspace = amdattn.asarray(a), amdattn.asarray(b), plan.new_workspace()
    out = plan.run(device_a, device_b, workspace=workspace)
    for _ in range(count):
        plan.run(device_a, device_b, out, workspace=workspace)
    Call(2, 32, 256, with_bias=False).hold(out.numpy(), a, b)
    assert not zeros_of(plan, workspace).numpy().any()


@BOTH
def test_back_to_back_launches_leave_zeros(deterministic: bool) -> None:
    back_to_back(deterministic, 300)


@pytest.mark.slow
@BOTH
def test_ten_thousand_launches_leave_zeros(deterministic: bool) -> None:
    back_to_back(deterministic, 10_000)


@BOTH
@pytest.mark.parametrize("name", SOME_SPLITTING)
def test_what_an_aborted_launch_left_behind(name: str, deterministic: bool) -> None:
    """It is of an older launch, so that the next one overrides it."""
    options = {"split_k": 3, "deterministic": deterministic}
    call = Call(37, 40, 1024, name, options, with_bias=False)
    plan = call.plan()
    a, b = call.inputs()
    device_a, device_b, workspace = amdattn.asarray(a), amdattn.asarray(b), plan.new_workspace()
    for seed in range(2):
        soil(plan, workspace, seed)
        amdattn.virtual.set_option("seed", seed)
        amdattn.virtual.set_option("resident_workgroups", seed)
        call.hold(plan.run(device_a, device_b, workspace=workspace).numpy(), a, b)
        assert not zeros_of(plan, workspace).numpy().any()


def regions_of(plan: GemmPlan, workspace: amdattn.DeviceArray) -> dict[str, int]:
    """Their addresses in a workspace."""
    return {region.name: workspace.address + region.offset for region in plan.workspace.regions}


def abort(call: Call, regions: Mapping[str, int], cut: int, seed: int) -> None:
    """A launch that ends when a workgroup reads one of the last `cut` elements of b, not there.

    By then others have done any part of their work, as `seed` has it.
    """
    plan = call.plan()
    a, b = (x.ravel() for x in call.inputs())
    device_a, device_b = amdattn.asarray(a), amdattn.asarray(b[:-cut].copy())
    out = amdattn.empty((call.m, call.n))
    rows = {"a": (device_a, call.k), "b": (device_b, call.k), "out": (out, call.n)}
    given = {name: Operand(x.address, {"row": step}) for name, (x, step) in rows.items()}
    given |= {name: Operand(address, {}) for name, address in regions.items()}
    amdattn.synchronize()
    amdattn.virtual.set_option("seed", seed)
    amdattn.virtual.set_option("quantum", 1 + seed % 16)
    amdattn.virtual.set_option("resident_workgroups", (0, 1, 3)[seed % 3])
    with pytest.raises(amdattn.HipError, match="illegal address"):
        PreparedLaunch(plan.launches[0], runtime.get()).run(given, 0)
        amdattn.synchronize()


def killed(name: str, deterministic: bool, count: int) -> int:
    """Launches that are aborted, each before one that has to be right.

    Returns how many left something behind.
    """
    options = {"split_k": 3, "deterministic": deterministic}
    call = Call(19, 40, 1024, name, options, with_bias=False)
    plan = call.plan()
    a, b = call.inputs()
    device_a, device_b, workspace = amdattn.asarray(a), amdattn.asarray(b), plan.new_workspace()
    rng = np.random.default_rng(7)
    dirty = 0
    for seed in range(1, count + 1):
        abort(call, regions_of(plan, workspace), int(rng.integers(1, 1000)), seed)
        zeros = zeros_of(plan, workspace)
        dirty += bool(zeros.numpy().any())
        out = plan.run(device_a, device_b, workspace=workspace)
        call.hold(out.numpy(), a, b)
        assert not zeros.numpy().any()
    return dirty


@BOTH
def test_killed_launches(deterministic: bool, kernels_alone: None) -> None:
    assert killed(SMALL, deterministic, 20) > 5


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("name", SPLITTING)
def test_many_killed_launches(name: str, deterministic: bool, kernels_alone: None) -> None:
    assert killed(name, deterministic, 200) > 40


@BOTH
def test_memory_of_a_stream_recovers(deterministic: bool, kernels_alone: None) -> None:
    """Plans with tiles of several sizes share the stream's."""
    options = {"split_k": 3, "deterministic": deterministic}
    names = SMALL, "gemm_nt_bf16_m32n32k2", "gemm_nt_bf16_m64n32"
    calls = [Call(70, 40, 1024, name, options, with_bias=False) for name in names]
    for seed in range(1, 13):
        plan = calls[seed % 3].plan()
        parts = plan.new_workspace()
        regions = {
            region.name: zero_at_rest.of_stream(runtime.get(), 0, region.name, region.nbytes)
            if region.init == "zero_at_rest"
            else parts.address
            for region in plan.workspace.regions
        }
        abort(calls[seed % 3], regions, 100 * seed, seed)
        for call in calls:
            a, b = call.inputs()
            out = call.plan().run(amdattn.asarray(a), amdattn.asarray(b))
            call.hold(out.numpy(), a, b)


@BOTH
def test_streams_and_threads(deterministic: bool) -> None:
    """Two threads with four streams each, counters of the streams' own."""
    device = runtime.get()
    options = {"split_k": 4, "deterministic": deterministic}
    call = Call(3, 48, 1024, SMALL, options, with_bias=False)
    plan = call.plan()
    a, b = call.inputs()
    device_a, device_b = amdattn.asarray(a), amdattn.asarray(b)
    expected = plan.run(device_a, device_b).numpy()
    call.hold(expected, a, b)
    bound = 0.0 if deterministic else 0.01  # of what roundings to bfloat16 may differ
    wrong: list[str] = []

    def work() -> None:
        streams = [
            int(device.check("hipStreamCreate", device.hip.hipStreamCreate())) for _ in range(4)
        ]
        outs = [plan.run(device_a, device_b, stream=streams[i % 4]) for i in range(24)]
        for out in outs:
            apart = np.abs(out.numpy().astype(float) - expected.astype(float))
            if (apart > bound * np.abs(expected.astype(float)) + bound).any():
                wrong.append(f"differs by {apart.max()}")
        for stream in streams:
            device.synchronize(stream)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@BOTH
def test_a_graph_is_replayed(deterministic: bool) -> None:
    device = runtime.get()
    hip, call = device.hip, device.check
    stream = int(call("hipStreamCreate", hip.hipStreamCreate()))
    options = {"split_k": 2, "deterministic": deterministic}
    product = Call(4, 32, 512, SMALL, options, with_bias=False)
    plan = product.plan()
    a, b = product.inputs()
    device_a, device_b = amdattn.asarray(a), amdattn.asarray(b)
    out, workspace = amdattn.empty((4, 32)), plan.new_workspace()
    plan.run(device_a, device_b, out, workspace=workspace)  # loads the kernel: a capture must not
    amdattn.synchronize()
    out.stream = workspace.stream = None
    mode = hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
    call("hipStreamBeginCapture", hip.hipStreamBeginCapture(stream, mode))
    plan.run(device_a, device_b, out, workspace=workspace, stream=stream)
    with pytest.raises(ValueError, match="pass workspace="):
        plan.run(device_a, device_b, out, stream=stream)
    graph = call("hipStreamEndCapture", hip.hipStreamEndCapture(stream))
    executable = call("hipGraphInstantiate", hip.hipGraphInstantiateWithFlags(graph, 0))
    for seed in range(3):
        fresh = operands(4, 32, 512 + 8 * seed)[0][:, :512]
        upload = np.ascontiguousarray(fresh)
        device.upload(device_a.address, upload.ctypes.data, upload.nbytes)
        amdattn.synchronize()
        call("hipGraphLaunch", hip.hipGraphLaunch(executable, stream))
        device.synchronize(stream)
        product.hold(out.numpy(), fresh, b)
    call("hipGraphExecDestroy", hip.hipGraphExecDestroy(executable))
    call("hipGraphDestroy", hip.hipGraphDestroy(graph))
