"""Probes of the runtime: launch forms, streams, events, graphs, ids and clocks."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from amdattn.bench.kernels import Launch
from amdattn.bench.micro import REFERENCE_GHZ
from amdattn.bench.micro_launch import Micro
from amdattn.bench.micro_table import CLK
from amdattn.device import runtime
from amdattn.device.kernarg import KernargBuffer
from amdattn.report.facts import device as device_facts
from amdattn.report.rows import INFO, Row, verdict

_WORKGROUPS, _WAVES = 7, 2
_LANES = 64 * _WAVES * _WORKGROUPS
_NODES = 300
_POISON = 0xA5A5A5A5
_FUNCTIONAL = "functional only: the virtual device counts instructions"
Words = NDArray[np.uint32]


def device() -> Iterator[Row]:
    """Facts of the bound device."""
    bound = runtime.get()
    for name, value in device_facts(bound).items():
        yield Row(name, INFO, value)


def _is_virtual() -> bool:
    return runtime.get().choice.kind == "virtual"


class Buffer:
    """Words in device memory, with equally many of poison on each side, in a `with` block."""

    def __init__(self, stack: ExitStack, count: int, fill: int = 0) -> None:
        self._device, self._count = runtime.get(), count
        self._host = np.full(3 * count, _POISON, np.uint32)
        self._host[count : 2 * count] = fill
        self._base = self._device.malloc(self._host.nbytes)
        stack.callback(self._device.free, self._base)
        self.reset()

    @property
    def address(self) -> int:
        """Address of the words inside."""
        return self._base + 4 * self._count

    def reset(self) -> None:
        """Restore the initial contents; waits."""
        self._device.upload(self._base, self._host.ctypes.data, self._host.nbytes)
        self._device.synchronize(0)

    def words(self) -> tuple[Words, str]:
        """The contents, and the damage around them; waits for the device."""
        runtime.synchronize()
        after = np.empty_like(self._host)
        self._device.download(after.ctypes.data, self._base, after.nbytes)
        self._device.synchronize(0)
        inside = after[self._count : 2 * self._count].copy()
        after[self._count : 2 * self._count] = _POISON
        changed = int(np.count_nonzero(after != _POISON))
        return inside, f"{changed} words around the result were written" if changed else ""


def _filled(words: Words, value: int) -> str:
    expected = np.arange(len(words), dtype=np.uint32) + np.uint32(value)
    wrong = int(np.count_nonzero(words != expected))
    if not wrong:
        return ""
    first = int(np.argmax(words != expected))
    return f"{wrong} of {len(words)} words differ, word {first} is {words[first]:#x}"


def _submit(micro: Micro, launch: Launch, stream: int = 0) -> None:
    """Launch as the package launches its own kernels."""
    bound = runtime.get()
    kernargs = KernargBuffer(len(launch.kernarg), bound.launch_types)
    kernargs.block[:] = launch.kernarg
    bound.launch(micro.function(launch), launch.grid, launch.workgroup, kernargs, stream)


def _fill(micro: Micro, buffer: Buffer, value: int) -> Launch:
    """Launch a kernel that writes its lanes' numbers plus `value`, to which every argument adds."""
    parts = {"stride": 0x1000, "array": 0x200, "apart": 0x30, "mask": 0x4}
    rest = value ^ 0x1000 ^ 0x200 ^ 0x30 ^ 0x4
    symbol = "amdattn_micro_fill"
    return micro.launch(symbol, _WORKGROUPS, _WAVES, passes=rest, results=buffer.address, **parts)


# -- launch forms ----------------------------------------------------------------------------------


def launch_forms() -> Iterator[Row]:
    """The same kernel with its arguments in one block (`extra`) and one by one."""
    with ExitStack() as stack:
        micro = stack.enter_context(Micro())
        buffer = Buffer(stack, _LANES)
        forms = (("launch by `extra`", _submit_extra), ("launch by kernelParams", _submit_params))
        for i, (what, form) in enumerate(forms):
            buffer.reset()
            value = 0x7000 + i
            form(micro, _fill(micro, buffer, value))
            words, around = buffer.words()
            unwritten = "nothing was written" if not words.any() else _filled(words, value)
            yield verdict(what, unwritten or around, f"{_LANES} lanes wrote what they should")


def _submit_extra(micro: Micro, launch: Launch) -> None:
    """Launch through hip-python with a block and its size."""
    bound = runtime.get()
    kernargs = KernargBuffer(len(launch.kernarg), bound.launch_types)
    kernargs.block[:] = launch.kernarg
    status = bound.hip.hipModuleLaunchKernel(
        *(micro.function(launch), *launch.grid, *launch.workgroup, 0, 0),
        *(kernargs.params, kernargs.extra),
    )
    bound.check("hipModuleLaunchKernel", status)


def _submit_params(micro: Micro, launch: Launch) -> None:
    """Launch through hip-python with an array of pointers to the arguments."""
    bound = runtime.get()
    values = micro.arguments(launch)
    pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
    params = bound.launch_types.params(ctypes.addressof(pointers))
    status = bound.hip.hipModuleLaunchKernel(
        micro.function(launch), *launch.grid, *launch.workgroup, 0, 0, params, None
    )
    bound.check("hipModuleLaunchKernel", status)


# -- streams, events, graphs -----------------------------------------------------------------------


def _stream(stack: ExitStack) -> int:
    bound = runtime.get()
    stream = bound.check("hipStreamCreateWithFlags", bound.hip.hipStreamCreateWithFlags(1))
    stack.callback(bound.hip.hipStreamDestroy, stream)
    return int(stream)


def streams() -> Iterator[Row]:
    """Check the order on one stream, and across two streams by an event."""
    bound = runtime.get()
    with ExitStack() as stack:
        micro = stack.enter_context(Micro())
        buffer = Buffer(stack, _LANES)
        one, two = _stream(stack), _stream(stack)
        for step in range(16):
            _submit(micro, _fill(micro, buffer, 0x100 * step), one)
        words, around = buffer.words()
        yield verdict("16 launches on one stream", _filled(words, 0xF00) or around, "in order")
        for step in range(16):
            here, there = (one, two) if step % 2 else (two, one)
            bound.wait_for(here, there)
            _submit(micro, _fill(micro, buffer, 0x300 + step), here)
        words, around = buffer.words()
        wrong = _filled(words, 0x30F) or around
        yield verdict("16 launches on two streams, by events", wrong, "in order")


def events() -> Iterator[Row]:
    """Check that events complete, and that the time between two is that of the work between."""
    bound, hip = runtime.get(), runtime.get().hip
    with ExitStack() as stack:
        micro = stack.enter_context(Micro())
        buffer = Buffer(stack, _LANES)
        made = [bound.check("hipEventCreate", hip.hipEventCreate()) for _ in range(2)]
        for event in made:
            stack.callback(hip.hipEventDestroy, event)
        bound.check("hipEventRecord", hip.hipEventRecord(made[0], 0))
        for _ in range(10):
            _submit(micro, _fill(micro, buffer, 1))
        bound.check("hipEventRecord", hip.hipEventRecord(made[1], 0))
        begin = time.monotonic()
        while not bound.event_done(made[1]) and time.monotonic() - begin < 10:
            time.sleep(0.001)
        done = bound.event_done(made[1])
        yield verdict("an event completes", "" if done else "it did not within 10 s", "it did")
        if done:
            ms = float(bound.check("hipEventElapsedTime", hip.hipEventElapsedTime(*made)))
            wrong = "" if 0 < ms < 10_000 else f"{ms:g} ms between events around 10 launches"
            yield verdict("time between events", wrong, _stated(f"{ms:.3f} ms for 10 launches"))


def _stated(text: str) -> str:
    """A time, unless it is this CPU's."""
    return _FUNCTIONAL if _is_virtual() else text


def graph() -> Iterator[Row]:
    """Check 300 launches with different arguments, captured through the same block."""
    bound, hip = runtime.get(), runtime.get().hip
    with ExitStack() as stack:
        micro = stack.enter_context(Micro())
        buffer = Buffer(stack, _LANES)
        stream = _stream(stack)
        symbol = "amdattn_micro_add"
        mode = hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
        bound.check("hipStreamBeginCapture", hip.hipStreamBeginCapture(stream, mode))
        for i in range(1, _NODES + 1):
            launch = micro.launch(symbol, _WORKGROUPS, _WAVES, passes=i, results=buffer.address)
            _submit(micro, launch, stream)
        captured = bound.check("hipStreamEndCapture", hip.hipStreamEndCapture(stream))
        stack.callback(hip.hipGraphDestroy, captured)
        found = hip.hipGraphInstantiateWithFlags(captured, 0)
        executable = bound.check("hipGraphInstantiateWithFlags", found)
        stack.callback(hip.hipGraphExecDestroy, executable)
        words, around = buffer.words()
        wrong = "the capture ran its launches" if words.any() else around
        yield verdict(f"capture of {_NODES} launches", wrong, "nothing ran")
        each = _NODES * (_NODES + 1) // 2
        for replay in (1, 2):
            bound.check("hipGraphLaunch", hip.hipGraphLaunch(executable, stream))
            words, around = buffer.words()
            off = int(np.count_nonzero(words != replay * each))
            wrong = f"{off} of {len(words)} words are not {replay * each}" if off else around
            yield verdict(f"replay {replay} of the graph", wrong, "every node had its arguments")


def two_streams() -> Iterator[Row]:
    """Check launches on two independent streams, and whether they overlap."""
    with ExitStack() as stack:
        micro = stack.enter_context(Micro())
        handles = [_stream(stack) for _ in range(2)]
        buffers = [Buffer(stack, 8 * _WORKGROUPS) for _ in handles]
        sleeps = 20 if _is_virtual() else 2000  # bounded, independently of other waves
        for buffer, stream in zip(buffers, handles, strict=True):
            launch = micro.launch(
                "amdattn_micro_ids", _WORKGROUPS, passes=sleeps, results=buffer.address
            )
            _submit(micro, launch, stream)
        spans = []
        for buffer in buffers:
            words, around = buffer.words()
            times = words.view(np.uint64).reshape(_WORKGROUPS, 4)[:, 1:3]
            if not around and (times[:, 1] <= times[:, 0]).any():
                around = "a clock does not go on"
            spans.append((int(times[:, 0].min()), int(times[:, 1].max())))
            yield verdict(f"stream {len(spans)} of two", around, "its launch ran")
        together = min(end for _, end in spans) > max(begin for begin, _ in spans)
        text = "at the same time" if together else "one after the other"
        yield Row("launches on two streams", INFO, _stated(text), {"together": together})


# -- where waves run, and clocks -------------------------------------------------------------------


def ids() -> Iterator[Row]:
    """Report XCC_ID and HW_ID of workgroups that fill a CU, four for every CU."""
    props = runtime.device_props()
    count = 4 * props.num_cus
    with ExitStack() as stack:
        micro = stack.enter_context(Micro())
        buffer = Buffer(stack, 8 * count)
        sleeps = 4 if _is_virtual() else 400  # longer than it takes to start all of them
        launch = micro.launch("amdattn_micro_ids", count, passes=sleeps, results=buffer.address)
        _submit(micro, launch)
        words, around = buffer.words()
    rows = words.reshape(count, 8)
    xccs = rows[:, 1] & 0xF
    places = {(int(xcc), int(hw >> 8 & 0x7F)) for hw, xcc in zip(rows[:, 0], xccs, strict=True)}
    seen = sorted({int(xcc) for xcc in xccs})
    wrong = around
    if len(seen) != props.num_xcds:
        wrong = f"waves saw XCC_ID {seen}, the runtime has {props.num_xcds} XCDs"
    yield verdict("XCC_ID", wrong, f"{len(seen)} XCDs, ids {seen}", ids=seen)
    wrong = ""
    if len(places) > props.num_cus:
        wrong = f"waves were at {len(places)} CUs, the runtime has {props.num_cus}"
    by_xcc = {xcc: sum(place[0] == xcc for place in places) for xcc in seen}
    text = f"{len(places)} of {props.num_cus} CUs seen, by XCC {by_xcc}"
    yield verdict("HW_ID", wrong, text, cus=len(places), by_xcc=by_xcc)
    order = np.array([seen.index(int(xcc)) for xcc in xccs])
    robin = bool((order == (np.arange(count) + order[0]) % len(seen)).all())
    text = "round robin over the XCDs" if robin else "in another order than round robin"
    yield Row("workgroups go", INFO, text, {"round_robin": robin, "first": xccs[:16].tolist()})


def clock() -> Iterator[Row]:
    """Compare the engine's clock with the constant one of 100 MHz, as a wave reads them."""
    (fma,) = (row for row in CLK if row.name == "fma_f32")
    with Micro() as micro:
        launch = micro.launch(fma.symbol(fma.copies), passes=20000 if not _is_virtual() else 50)
        begin = time.perf_counter()
        (times,) = micro.times(launch)
        wall_us = 1e6 * (time.perf_counter() - begin)
    engine, reference = int(times[2] - times[0]), int(times[3] - times[1])
    wrong = (
        "" if engine > 0 and reference > 0 else f"s_memtime +{engine}, s_memrealtime +{reference}"
    )
    if _is_virtual():
        yield verdict("clocks of a wave", wrong, _FUNCTIONAL)
        return
    us = reference / (1000 * REFERENCE_GHZ)
    if not wrong and us > wall_us:
        wrong = f"the clock of 100 MHz says {us:.0f} us of a launch that took {wall_us:.0f} us"
    ghz = engine / max(reference, 1) * REFERENCE_GHZ
    if not wrong and not 0.1 < ghz < 5:
        wrong = f"{ghz:.3f} GHz by s_memtime and s_memrealtime"
    yield verdict("clocks of a wave", wrong, f"{ghz:.3f} GHz by the clock of 100 MHz", ghz=ghz)
