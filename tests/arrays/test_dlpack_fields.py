"""Fields of DLPack tensors that numpy leaves 0, and the streams that exports are ordered on."""

from __future__ import annotations

import time
from ctypes import c_int, c_uint64

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.arrays.dlpack import HostTensor
from amdattn.device import runtime
from tests.support.gpu import compiled
from tests.support.handmade import READ_ONLY, tensor_at

CPU = (1, 0)


def rocm():
    return (10, runtime.get().ordinal)


@pytest.mark.parametrize("flags", [None, 0], ids=["legacy", "versioned"])
@pytest.mark.parametrize("offset", [0, 2, 256, 1006])
def test_byte_offset_of_host_memory(flags, offset):
    memory = np.arange(1024, dtype=np.float32).astype(ml_dtypes.bfloat16)
    first = offset // 2
    given = tensor_at(memory.ctypes.data, (3, 5), CPU, byte_offset=offset, flags=flags)
    found = amdattn.asarray(given).numpy()
    np.testing.assert_array_equal(found, memory[first : first + 15].reshape(3, 5))


@pytest.mark.parametrize("flags", [None, 0], ids=["legacy", "versioned"])
def test_byte_offset_of_device_memory(flags):
    whole = amdattn.asarray(np.arange(1024, dtype=np.float32).astype(ml_dtypes.bfloat16))
    given = tensor_at(whole.address, (3, 5), rocm(), strides=(10, 2), byte_offset=258, flags=flags)
    part = amdattn.from_dlpack(given)
    assert part.address == whole.address + 258 and part.strides == (10, 2)
    expected = whole.numpy()[129:159].reshape(3, 10)[:, ::2]
    np.testing.assert_array_equal(part.numpy(), expected)


# -- read-only memory ------------------------------------------------------------------------------


def inputs():
    rng = np.random.default_rng(3)
    return [rng.standard_normal((1, 8, 1, 128)).astype(ml_dtypes.bfloat16) for _ in range(3)]


def test_read_only_host_memory_is_not_written(launches):
    memory = np.zeros((1, 8, 1, 128), ml_dtypes.bfloat16)
    out = tensor_at(memory.ctypes.data, memory.shape, CPU, flags=READ_ONLY)
    with pytest.raises(ValueError, match="out is read-only"):
        amdattn.flash_attn_func(*inputs(), out=out)
    assert launches == [] and not memory.any()


def test_read_only_device_memory_is_not_written(launches):
    q, k, v = map(amdattn.asarray, inputs())
    out = amdattn.asarray(np.zeros(q.shape, ml_dtypes.bfloat16))
    given = tensor_at(out.address, out.shape, rocm(), flags=READ_ONLY)
    for read_only in (given, amdattn.from_dlpack(given), amdattn.asarray(given)[:, ::1]):
        with pytest.raises(ValueError, match="out is read-only"):
            amdattn.flash_attn_func(q, k, v, out=read_only)
    assert launches == []
    writable = tensor_at(out.address, out.shape, rocm(), flags=0)
    amdattn.flash_attn_func(q, k, v, out=amdattn.from_dlpack(writable))
    amdattn.synchronize()
    assert out.numpy().any()


def test_read_only_memory_is_read():
    q, k, v = inputs()
    expected = amdattn.flash_attn_func(q, k, v)
    on_device = [amdattn.asarray(x) for x in (q, k, v)]
    for place, held in ((CPU, [x.ctypes.data for x in (q, k, v)]), (rocm(), on_device)):
        addresses = [x if isinstance(x, int) else x.address for x in held]
        given = [tensor_at(a, q.shape, place, flags=READ_ONLY) for a in addresses]
        found = amdattn.flash_attn_func(*given)
        found = found if isinstance(found, np.ndarray) else found.numpy()
        assert found.tobytes() == expected.tobytes()


def test_exports_of_read_only_memory_say_so():
    """numpy shows the flag of what it imports."""
    memory = amdattn.asarray(np.ones((4,), np.float32))
    given = tensor_at(memory.address, (4,), rocm(), code=2, bits=32, flags=READ_ONLY)
    for again in (amdattn.from_dlpack(given), amdattn.from_dlpack(amdattn.from_dlpack(given))):
        with pytest.raises(BufferError):  # a legacy capsule could not say it
            again.__dlpack__()
        assert amdattn.from_dlpack(again).view().read_only
    assert not amdattn.from_dlpack(memory).view().read_only
    host = np.ones(4, np.float32)
    assert np.from_dlpack(HostTensor(host)).flags.writeable
    host.flags.writeable = False
    assert not np.from_dlpack(HostTensor(host)).flags.writeable


# -- streams ---------------------------------------------------------------------------------------


@pytest.fixture
def held_stream():
    """A stream whose work ends when the fixture's function is called."""
    device = runtime.get()
    hip, call = device.hip, device.check
    stream = call("hipStreamCreate", hip.hipStreamCreate())
    flag = int(call("hipHostMalloc", hip.hipHostMalloc(4, 0)))
    word = c_int.from_address(flag)
    word.value = 0
    image = compiled("infinite_loop")
    function, module = device.load(image, "infinite_loop")
    call(
        "hipModuleLaunchKernel",
        hip.hipModuleLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, stream, None, (c_uint64(flag),)),
    )

    def release():
        word.value = 1

    yield int(stream), release
    release()
    device.synchronize(int(stream))
    call("hipStreamDestroy", hip.hipStreamDestroy(stream))
    call("hipModuleUnload", hip.hipModuleUnload(module))
    call("hipHostFree", hip.hipHostFree(flag))


def test_an_export_is_ordered_on_the_consumers_stream(held_stream, hip_stream):
    """What the consumer does there next comes after the last write; -1 makes no stream wait."""
    device = runtime.get()
    producer, release = held_stream
    consumer = int(hip_stream)
    x = amdattn.empty((4,), "float32")
    x.stream = producer
    x.__dlpack__(stream=-1)
    device.synchronize(consumer)
    x.__dlpack__(stream=consumer)
    event = device.record_event(consumer)
    time.sleep(0.1)  # without the producer's work it is done in far less
    assert not device.event_done(event)
    release()
    device.synchronize(consumer)
    assert device.event_done(event)
    device.destroy_event(event)


@pytest.mark.parametrize("copy", [None, False, True])
@pytest.mark.parametrize(("asked", "waits"), [(None, 0), (0, 0), (-1, None), ("own", "own")])
def test_whom_an_export_makes_wait(monkeypatch, hip_stream, asked, waits, copy):
    """None is the default stream, -1 asks for nothing; a copy is ordered like the original."""
    consumer = int(hip_stream)
    asked, waits = (consumer if x == "own" else x for x in (asked, waits))
    x = amdattn.empty((4,), "float32")
    x.stream = 0
    seen = []
    monkeypatch.setattr(runtime.get(), "wait_for", lambda *pair: seen.append(pair))
    x.__dlpack__(stream=asked, copy=copy)
    if copy:  # the next write to x waits for the copy in turn
        expected = [] if waits in (None, 0) else [(waits, 0), (0, waits)]
        seen = [pair for pair in seen if pair[0] != pair[1]]
    else:
        expected = [] if waits is None else [(waits, 0)]
    assert seen == expected
    x.stream = None
    if not copy:  # a copy is a write of its own
        x.__dlpack__(stream=asked, copy=copy)
        assert len(seen) == (waits is not None)


def test_an_export_is_in_use_on_the_consumers_stream(hip_stream):
    for asked, used in ((None, 0), (0, 0), (int(hip_stream), int(hip_stream)), (-1, -1)):
        x = amdattn.empty((4,), "float32")
        x._memory.streams.clear()
        x.__dlpack__(stream=asked)
        assert x._memory.streams == {used}
