"""What `__dlpack__` gives, by its four keywords and by what is exported."""

from __future__ import annotations

import ctypes
import enum
import gc
import weakref
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.arrays import dlpack
from amdattn.arrays.dlpack import HostTensor
from amdattn.arrays.dlpack_import import import_tensor
from amdattn.device import runtime
from tests.support.handmade import FIELDS, HEAD, HEAD_FIELDS, READ_ONLY, TENSOR, tensor_at

CPU, ROCM, PINNED = (1, 0), (10, 0), (11, 0)
IS_COPIED = 2


class Kind(enum.Enum):
    """As the array API standard writes devices: no IntEnum."""

    CPU = 1
    ROCM = 10


class Capsule(NamedTuple):
    """What a capsule holds; no version: a legacy one."""

    version: tuple[int, int] | None
    flags: int
    device: tuple[int, int]
    shape: list[int]
    strides: list[int] | None
    tensor: dict[str, int]


def opened(capsule: object) -> Capsule:
    """Read a capsule as a consumer in C does, and leave it to be returned."""
    handle = id(capsule)
    name = dlpack.VERSIONED if dlpack.is_capsule(handle, dlpack.VERSIONED) else dlpack.LEGACY
    address = dlpack.capsule_pointer(handle, name)
    head: dict[str, int] = {}
    if name is dlpack.VERSIONED:
        packed = ctypes.string_at(address, HEAD.size)
        head = dict(zip(HEAD_FIELDS, HEAD.unpack(packed), strict=True))
        address += HEAD.size
    fields = TENSOR.unpack(ctypes.string_at(address, TENSOR.size))
    tensor = dict(zip(FIELDS, fields, strict=True))

    def axes(of: str) -> list[int] | None:
        if not tensor[of]:
            return None
        return list((ctypes.c_int64 * tensor["ndim"]).from_address(tensor[of]))

    return Capsule(
        (head["major"], head["minor"]) if head else None,
        head.get("flags", 0),
        (tensor["kind"], tensor["ordinal"]),
        axes("shape") or [],
        axes("strides"),
        tensor,
    )


def device_array() -> amdattn.DeviceArray:
    return amdattn.asarray(np.arange(12, dtype=np.float32).reshape(3, 4))


def host_tensor() -> HostTensor:
    return HostTensor(np.arange(12, dtype=np.float32).reshape(3, 4))


PRODUCERS = {"device": device_array, "host": host_tensor}


# -- max_version -----------------------------------------------------------------------------------


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize(
    ("asked", "given"),
    [
        *((None, None), ((0, 0), None), ((0, 8), None), ([0, 9], None)),
        *(((1, 0), (1, 0)), ((1, 1), (1, 1)), ([1, 2], (1, 2))),
        *(
            ((1, 3), (1, 3)),
            ((1, 4), (1, 3)),
            ((1, 99), (1, 3)),
            ((2, 0), (1, 3)),
            ((7, 1), (1, 3)),
        ),
        ((np.int64(1), np.int32(0)), (1, 0)),
    ],
)
def test_the_version_is_one_that_the_consumer_takes(producer: str, asked: Any, given: Any) -> None:
    assert opened(PRODUCERS[producer]().__dlpack__(max_version=asked)).version == given


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("keyword", ["max_version", "dl_device", "copy", "stream"])
@pytest.mark.parametrize("value", [5.5, "ab", (1,), (1, 2, 3), ("1", 0), b"x", {}, 2])
def test_values_that_are_none_are_no_type_errors(producer: str, keyword: str, value: Any) -> None:
    """A consumer takes a TypeError for an older producer, and asks again without the keyword."""
    with pytest.raises(ValueError, match=f"{keyword}="):
        PRODUCERS[producer]().__dlpack__(**{keyword: value})


# -- dl_device, copy and flags ---------------------------------------------------------------------


@pytest.mark.parametrize("version", [None, (1, 3)])
@pytest.mark.parametrize(
    ("producer", "dl_device", "copy", "device", "copied"),
    [
        *(("device", None, copy, ROCM, bool(copy)) for copy in (None, False, True)),
        *(("device", ROCM, copy, ROCM, bool(copy)) for copy in (None, False, True)),
        *(("device", (Kind.ROCM, 0), copy, ROCM, bool(copy)) for copy in (None, True)),
        *(("device", CPU, copy, CPU, True) for copy in (None, True)),
        ("device", (Kind.CPU, 0), None, CPU, True),
        *(("host", None, copy, CPU, bool(copy)) for copy in (None, False, True)),
        *(("host", [1, 0], copy, CPU, bool(copy)) for copy in (None, False, True)),
    ],
)
def test_where_it_is_and_whether_it_is_a_copy(
    producer: str, dl_device: Any, copy: Any, device: Any, copied: bool, version: Any
) -> None:
    source = PRODUCERS[producer]()
    capsule = source.__dlpack__(max_version=version, dl_device=dl_device, copy=copy)
    found = opened(capsule)
    assert found.device == device
    assert found.flags == (IS_COPIED if copied and version else 0)
    assert found.tensor["byte_offset"] == 0 and found.tensor["lanes"] == 1
    held = source.address if producer == "device" else source._array.ctypes.data
    assert (found.tensor["data"] != held) == copied
    if device == CPU:
        values = np.frombuffer(ctypes.string_at(found.tensor["data"], 48), np.float32)
    else:
        at = tensor_at(found.tensor["data"], (12,), ROCM, code=2, bits=32)
        values = amdattn.from_dlpack(at).numpy()
    np.testing.assert_array_equal(values, np.arange(12))


@pytest.mark.parametrize(
    ("producer", "dl_device", "copy"),
    [
        ("device", CPU, False),
        *(("device", where, None) for where in ((1, 1), (2, 0), PINNED, (10, 1), (-1, 0))),
        *(("host", where, None) for where in (ROCM, PINNED, (1, 1), (2, 0))),
    ],
)
def test_what_cannot_be_is_a_buffer_error(producer: str, dl_device: Any, copy: Any) -> None:
    with pytest.raises(BufferError, match=r"dl_device=|copy="):
        PRODUCERS[producer]().__dlpack__(dl_device=dl_device, copy=copy)


@pytest.mark.parametrize("stream", [-1, 0, 1, 2, 5])
def test_the_host_has_no_streams(stream: Any) -> None:
    for producer, asked in ((host_tensor(), {}), (device_array(), {"dl_device": CPU})):
        with pytest.raises(ValueError, match=f"stream={stream} must be None"):
            producer.__dlpack__(stream=stream, **asked)


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("dl_device", [None, ROCM, CPU])
def test_read_only_memory_needs_a_flag(copy: Any, dl_device: Any) -> None:
    memory = device_array()
    given = tensor_at(memory.address, (3, 4), ROCM, code=2, bits=32, flags=READ_ONLY)
    x = amdattn.from_dlpack(given)
    asked = {"copy": copy, "dl_device": dl_device}
    is_copy = bool(copy) or dl_device == CPU  # which its owner may write
    found = opened(x.__dlpack__(max_version=(1, 0), **asked))
    assert found.flags == (IS_COPIED if is_copy else READ_ONLY)
    if is_copy:
        assert opened(x.__dlpack__(**asked)).version is None
    else:
        with pytest.raises(BufferError, match="read"):
            x.__dlpack__(**asked)


def test_read_only_arrays_of_the_host() -> None:
    host = np.arange(4.0)
    host.flags.writeable = False
    with pytest.raises(BufferError, match="read"):
        HostTensor(host).__dlpack__()
    assert opened(HostTensor(host).__dlpack__(max_version=(1, 0))).flags == READ_ONLY
    assert opened(HostTensor(host).__dlpack__(max_version=(1, 0), copy=True)).flags == IS_COPIED
    assert opened(HostTensor(host).__dlpack__(copy=True)).version is None


# -- what is in the capsule ------------------------------------------------------------------------


@pytest.mark.parametrize("version", [None, (1, 3)])
@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize(
    "key", [(), (slice(None, None, 2),), (..., 1), (0, 0), (slice(0, 0),), (slice(2, 3), 3)]
)
@pytest.mark.parametrize("turned", [False, True])
def test_layouts_are_told_in_full(key: Any, turned: bool, copy: Any, version: Any) -> None:
    """Strides are never NULL where there are axes, as DLPack 1.2 has it; no elements: no data."""
    x = amdattn.asarray(np.arange(60, dtype=np.float32).reshape(3, 4, 5))
    view = (x.transpose() if turned else x)[key]
    capsule = view.__dlpack__(max_version=version, copy=copy)
    found = opened(capsule)
    assert tuple(found.shape) == view.shape and found.tensor["ndim"] == view.ndim
    assert tuple(found.strides or ()) == view.strides and (found.strides is not None) == (
        view.ndim > 0
    )
    assert (found.tensor["data"] == 0) == (view.size == 0)
    if view.size and not copy:
        assert found.tensor["data"] == view.address


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int8", "uint16", "int64"])
def test_element_types_are_named(dtype: str) -> None:
    x = amdattn.empty((2,), dtype)
    codes = {"b": 4, "f": 2, "i": 0, "u": 1}
    for asked in ({}, {"copy": True}, {"dl_device": CPU}):
        found = opened(x.__dlpack__(**asked)).tensor
        assert (found["code"], found["bits"]) == (codes[dtype[0]], 8 * x.dtype.itemsize)


def test_what_the_host_cannot_describe() -> None:
    records = np.zeros(4, [("pad", "u1"), ("x", "f4")])["x"]
    with pytest.raises(BufferError, match="byte strides"):
        HostTensor(records).__dlpack__()
    found = opened(HostTensor(records).__dlpack__(copy=True, max_version=(1, 0)))
    assert found.strides == [1] and found.flags == IS_COPIED


def test_copies_keep_element_order() -> None:
    host = np.arange(24, dtype=np.float32).astype(ml_dtypes.bfloat16).reshape(4, 6)
    x = amdattn.asarray(host)
    for view, expected in ((x[1:, ::2], host[1:, ::2]), (x.transpose(), host.T)):
        made = amdattn.from_dlpack(view, copy=True)
        assert not x.address <= made.address < x.address + x.nbytes
        np.testing.assert_array_equal(made.numpy(), expected)


# -- streams of copies -----------------------------------------------------------------------------


def test_a_copy_is_made_on_the_consumers_stream(
    monkeypatch: pytest.MonkeyPatch, hip_stream: Any
) -> None:
    device, stream = runtime.get(), int(hip_stream)
    seen: list[int] = []
    original = device.copy_on_device
    monkeypatch.setattr(
        device, "copy_on_device", lambda *given: (seen.append(given[3]), original(*given))
    )
    x = device_array()
    for asked, used in ((None, 0), (0, 0), (stream, stream), (-1, 0)):
        x.__dlpack__(stream=asked, copy=True)
        assert seen.pop() == used
    x.stream = stream
    x.__dlpack__(stream=-1, copy=True)  # who says so orders its work after the array's own stream
    assert seen == [stream]


# -- what is returned ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [None, (1, 3)])
@pytest.mark.parametrize("fate", ["dropped", "taken", "refused"])
@pytest.mark.parametrize("producer", PRODUCERS)
def test_memory_comes_back(producer: str, fate: str, version: Any) -> None:
    """However a capsule ends: never consumed, consumed and dropped, or by an import that failed."""
    if producer == "device":
        x: Any = device_array()
        memory = weakref.ref(x.memory)
    else:
        array = np.arange(12, dtype=np.float32)
        memory = weakref.ref(array)
        x = HostTensor(array)
        del array
    device = x.__dlpack_device__()
    capsule = x.__dlpack__(max_version=version)
    del x

    class Once:
        def __init__(self, held: object) -> None:
            self._held = held

        def __dlpack__(self, **_: Any) -> Any:
            return self._held

    if fate == "taken":
        stream = 0 if device == ROCM else None
        taken = import_tensor(Once(capsule), stream, device)
        with pytest.raises(BufferError, match="no unused DLPack capsule"):
            import_tensor(Once(capsule), stream, device)
        gc.collect()
        assert memory() is not None
        del taken
    elif fate == "refused":
        with pytest.raises(BufferError, match="__dlpack_device__ said"):
            import_tensor(Once(capsule), 0, (2, 0))
    del capsule
    gc.collect()
    assert memory() is None


@pytest.mark.parametrize("given", ["array", "view", "imported", "result"])
def test_everything_handed_out_says_where_it_is(given: str) -> None:
    x = amdattn.empty((1, 4, 1, 64), "float16")
    handed = {
        "array": lambda: x,
        "view": lambda: x[:, 1:].transpose(0, 2, 1, 3),
        "imported": lambda: amdattn.from_dlpack(x),
        "result": lambda: amdattn.rms_norm(
            amdattn.asarray(np.ones((2, 64), np.float16)), amdattn.asarray(np.ones(64, np.float16))
        ),
    }[given]()
    assert handed.__dlpack_device__() == (10, runtime.get().ordinal)
    assert opened(handed.__dlpack__()).device == handed.__dlpack_device__()
