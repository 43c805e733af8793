"""Counters of the decode GEMM after launches that ended half-way: seen, and set right."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.arrays.allocation import Memory
from amdattn.arrays.buffers import DeviceArray
from amdattn.device import runtime
from amdattn.op import zero_at_rest
from amdattn.op.launch import PreparedLaunch
from amdattn.op.plan import Operand
from amdattn.ops.gemm.problem import GemmProblem
from tests.support.gemm_family import SMALL, operands, planned

BOTH = pytest.mark.parametrize("deterministic", [True, False], ids=["in_order", "adding"])
K = 1024
# Elements of the last row of b that are not there when a launch is to be ended half-way.
CUTS = (1, 200, 900, 1000, 1020)
Waits = tuple[Callable[[int], None], ...]  # for a stream; the first one sees the error


class HostMemory(Memory):
    """Pages of the host that the device sees: all of their bytes, or all but the last ones."""

    def __init__(self, contents: bytes) -> None:
        super().__init__(runtime.get())
        self._pages = mmap.mmap(-1, len(contents))
        self._pages.write(contents)
        self._nbytes = len(contents)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        self._register(self._nbytes)

    def _register(self, nbytes: int) -> None:
        device = runtime.get()
        device.check("hipHostRegister", device.hip.hipHostRegister(self.address, nbytes, 0))

    def unregister(self) -> None:
        """The device sees nothing of them."""
        device = runtime.get()
        device.check("hipHostUnregister", device.hip.hipHostUnregister(self.address))

    @contextlib.contextmanager
    def without(self, nbytes: int) -> Iterator[None]:
        """Inside the block, launches that read the last bytes end in a fault."""
        self.unregister()
        self._register(self._nbytes - nbytes)
        try:
            yield
        finally:
            self.unregister()
            self._register(self._nbytes)


class Product:
    """A product in parts along k, whose a is another one for every launch that is to be right."""

    def __init__(self, deterministic: bool, m: int = 19, n: int = 40) -> None:
        problem = GemmProblem(m, n, K, split_k=3, deterministic=deterministic)
        self.plan = planned(problem, SMALL)
        a, b, _ = operands(m, n, K)
        self.host_a, self.host_b = a, b
        self.a, self.b = amdattn.asarray(a), amdattn.asarray(b)
        self.out = amdattn.empty((m, n))
        self.workspace = self.plan.new_workspace()

    def run(self, stream: Any = None, workspace: Any = None) -> None:
        given = self.workspace if workspace is None else workspace
        self.plan.run(self.a, self.b, self.out, workspace=given, stream=stream)

    def refresh(self) -> None:
        """Other rows of a, and no result."""
        device = runtime.get()
        self.host_a = np.roll(self.host_a, 1, axis=0)
        device.upload(self.a.address, self.host_a.ctypes.data, self.a.nbytes)
        device.clear(self.out.address, self.out.nbytes)
        device.synchronize(0)  # which sets nothing right but what was used on it

    def holds(self) -> bool:
        """Whether the result is right."""
        expected = self.host_a.astype(np.float32) @ self.host_b.astype(np.float32).T
        error = np.abs(self.out.numpy().astype(np.float32) - expected)
        return bool((error < 0.01 * np.abs(expected) + 0.02).all())

    def is_at_rest(self) -> bool:
        zero = self.plan.workspace["counters"].nbytes if self.plan.problem.deterministic else None
        return not self.workspace[:zero].numpy().any()


@pytest.fixture
def product(deterministic: bool) -> Iterator[Product]:
    """One of which b can be cut."""
    made = Product(deterministic)
    made.memory = HostMemory(made.host_b.tobytes())
    made.b = DeviceArray(made.memory.address, (40, K), (K, 1), made.b.view().dtype, made.memory)
    yield made
    amdattn.synchronize()
    made.memory.unregister()


@contextlib.contextmanager
def ended_half_way(product: Product, cut: int) -> Iterator[None]:
    """Launches inside the block are; the block waits for them and sees the error."""
    amdattn.synchronize()
    amdattn.virtual.set_option("seed", cut)
    fault = pytest.raises(amdattn.HipError, match="hipErrorIllegalAddress")
    with product.memory.without(2 * cut), fault:
        yield
    amdattn.virtual.set_option("seed", 0)


def captured(product: Product, stream: int) -> int:
    """A graph of one run."""
    hip, call = runtime.get().hip, runtime.get().check
    product.run()  # loads the kernel: a capture must not
    amdattn.synchronize()
    for array in (product.out, product.workspace):
        array.stream = None
    mode = hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
    call("hipStreamBeginCapture", hip.hipStreamBeginCapture(stream, mode))
    product.run(stream)
    graph = call("hipStreamEndCapture", hip.hipStreamEndCapture(stream))
    return int(call("hipGraphInstantiate", hip.hipGraphInstantiateWithFlags(graph, 0)))


@pytest.fixture
def stream() -> Iterator[int]:
    hip, call = runtime.get().hip, runtime.get().check
    made = call("hipStreamCreate", hip.hipStreamCreate())
    yield int(made)
    amdattn.synchronize()
    call("hipStreamDestroy", hip.hipStreamDestroy(made))


def replays(product: Product, stream: int, waits: Waits) -> list[bool]:
    """Whether each replay is right that follows one which ended half-way."""
    hip = runtime.get().hip
    graph = captured(product, stream)
    held = []
    for cut in CUTS:
        with ended_half_way(product, cut):
            hip.hipGraphLaunch(graph, stream)
            waits[0](stream)
        for wait in waits[1:]:
            wait(stream)
        product.refresh()
        hip.hipGraphLaunch(graph, stream)
        runtime.get().synchronize(stream)
        held.append(product.holds())
    return held


def wait_elsewhere(_stream: int) -> None:
    """As profiles and checks wait: the error is counted, and nothing set right."""
    device = runtime.get()
    device.check("hipDeviceSynchronize", device.hip.hipDeviceSynchronize())


WAITS: dict[str, Waits] = {
    "device": (lambda _: amdattn.synchronize(),),
    "stream": (lambda stream: runtime.get().synchronize(stream),),
    "elsewhere": (wait_elsewhere, lambda _: amdattn.synchronize()),
}


@BOTH
@pytest.mark.parametrize("waits", WAITS.values(), ids=WAITS)
def test_replays_of_a_graph_recover(product: Product, waits: Waits, stream: int) -> None:
    """Its launches have the same number every time: nothing in them overrides an older one."""
    assert replays(product, stream, waits) == [True] * len(CUTS)
    assert product.is_at_rest()


@BOTH
def test_without_recovery_replays_are_wrong(product: Product, stream: int) -> None:
    """What the test before is sensitive to."""
    assert False in replays(product, stream, (wait_elsewhere,))


@BOTH
def test_an_error_that_another_library_has_seen(product: Product, stream: int) -> None:
    hip, device = runtime.get().hip, runtime.get()
    graph = captured(product, stream)
    for cut in CUTS:
        amdattn.virtual.set_option("seed", cut)
        with product.memory.without(2 * cut):
            hip.hipGraphLaunch(graph, stream)
            assert hip.hipStreamSynchronize(stream)[0].name == "hipErrorIllegalAddress"
        product.refresh()
        product.plan.clear_workspace(product.workspace, stream)
        hip.hipGraphLaunch(graph, stream)
        device.synchronize(stream)
        assert product.holds() and product.is_at_rest()
    amdattn.virtual.set_option("seed", 0)


class Foreign:
    """Device memory of another library: it speaks DLPack and nothing else."""

    def __init__(self, array: DeviceArray) -> None:
        self._array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)


@BOTH
@pytest.mark.parametrize("kind", [lambda array: array, Foreign], ids=["own", "foreign"])
def test_a_run_sets_right_what_it_gets(product: Product, kind: Any) -> None:
    workspace = kind(product.workspace)
    for cut in CUTS[::2]:
        with ended_half_way(product, cut):
            product.run(workspace=workspace)
            amdattn.synchronize()
        product.refresh()
        product.run(workspace=workspace)
        assert product.holds() and product.is_at_rest()


@pytest.mark.parametrize("deterministic", [True])
def test_what_no_graph_holds_is_left_alone(product: Product) -> None:
    """Whoever has used memory as a workspace may have other data in it now."""
    foreign = amdattn.asarray(np.zeros(product.workspace.nbytes, np.uint8))
    product.run(workspace=Foreign(foreign))
    product.run()
    product.workspace, held = foreign, product.workspace
    amdattn.synchronize()
    for array in (foreign, held):
        runtime.get().upload(array.address, np.ones(16, np.uint8).ctypes.data, 16)
    with ended_half_way(product, 1):
        product.run(workspace=product.plan.new_workspace())
        amdattn.synchronize()
    for array in (foreign, held):
        assert array[:16].numpy().all()


@BOTH
def test_memory_of_a_stream_is_replaced(product: Product) -> None:
    """What was given up may still be running, and count later."""
    counters = "counters", product.plan.workspace["counters"].nbytes
    before = zero_at_rest.of_stream(runtime.get(), 0, *counters)
    assert zero_at_rest.of_stream(runtime.get(), 0, *counters) == before
    with ended_half_way(product, CUTS[-1]):
        product.plan.run(product.a, product.b, product.out)
        amdattn.synchronize()
    assert zero_at_rest.of_stream(runtime.get(), 0, *counters) != before
    product.plan.run(product.a, product.b, product.out)
    assert product.holds()


@pytest.mark.parametrize("deterministic", [True])
def test_failures_are_counted_whoever_reports_them(
    product: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = runtime.get()
    for report in (
        amdattn.synchronize,
        lambda: device.synchronize(0),
        product.out.numpy,
        lambda: device.check("hipDeviceSynchronize", device.hip.hipDeviceSynchronize()),
    ):
        product.run()
        before = device.failures
        with ended_half_way(product, CUTS[-1]):
            product.run()
            report()
        assert device.failures > before
        if report == product.out.numpy:  # copies fail until the thread synchronizes
            with pytest.raises(amdattn.HipError, match="hipErrorIllegalAddress"):
                amdattn.synchronize()
        product.run()
        assert product.holds()
    event = device.record_event(0)
    errors = device.hip.hipError_t
    for error, count in ((errors.hipErrorNotReady, 0), (errors.hipErrorLaunchFailure, 1)):
        before = device.failures
        monkeypatch.setattr(device.hip, "hipEventQuery", lambda _event, error=error: (error,))
        assert not device.event_done(event) and device.failures == before + count
    monkeypatch.undo()
    device.destroy_event(event)
    before = device.failures  # a refusal is none
    with pytest.raises(amdattn.HipError, match="hipErrorOutOfMemory"):
        device.malloc(1 << 62)
    assert device.failures == before


# -- one workspace, several plans ------------------------------------------------------------------


@BOTH
def test_plans_share_a_workspace(deterministic: bool) -> None:
    """Partial results of one lie where another has its counters."""
    small, large = Product(deterministic), Product(deterministic, m=60, n=600)
    assert small.plan.workspace["partials"].offset < large.plan.workspace["partials"].offset
    for product in (large, small, large, large, small):
        product.refresh()
        product.run(workspace=large.workspace)
        assert product.holds()


def test_plans_of_both_kinds_share_a_workspace() -> None:
    in_order, adding = Product(True), Product(False)
    for product in (in_order, adding, in_order, adding):
        product.refresh()
        product.run(workspace=in_order.workspace)
        assert product.holds()


def test_a_workspace_of_a_graph_is_not_shared(stream: int) -> None:
    """Its replays come without a chance to clear it."""
    product, other = Product(True), Product(True, m=60, n=600)
    big = other.plan.new_workspace()
    product.workspace = big
    captured(product, stream)
    with pytest.raises(ValueError, match=r"is part of a graph, .* workspace of its own"):
        other.run(workspace=big)
    product.run(workspace=big)
    assert product.holds()


def test_a_launch_with_an_argument_of_its_own_for_every_run_is_not_bound() -> None:
    props = amdattn.device_props()
    split, whole = (amdattn.plan_gemm(4, 64, 4096, split_k=n, device=props) for n in (4, 1))
    operands = {name: Operand(256, {"row": 64}) for name in ("a", "b", "out", "counters")}
    operands["partials"] = operands["out"]
    with pytest.raises(ValueError, match=r"\['generation'\] differ from run to run"):
        PreparedLaunch(split.launches[0], runtime.get()).bind(operands)
    PreparedLaunch(whole.launches[0], runtime.get()).bind(operands)
