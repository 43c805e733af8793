"""Extents, streams, devices and rights of inputs at their edges, and what holds them."""

from __future__ import annotations

import functools
import re
from types import SimpleNamespace

import numpy as np
import pytest

import amdattn
from amdattn.arrays import dlpack_import
from amdattn.arrays.allocation import Memory
from amdattn.device import runtime
from amdattn.device.runtime import hip_python, kfd, stream_calls
from amdattn.op import zero_at_rest
from amdattn.ops.attention import varlen as attention_varlen
from tests.support.handmade import READ_ONLY, tensor_at

UINT8, INT64, BFLOAT16 = (1, 8, 1), (0, 64, 1), (4, 16, 1)


def laid_out(
    data: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    element: tuple[int, int, int],
) -> tuple[int, int]:
    def packed(lengths: tuple[int, ...]) -> bytes:
        return np.array(lengths, np.int64).tobytes()

    found = dlpack_import._laid_out(data, offset, element, packed(shape), packed(strides))
    assert found[1:3] == (shape, strides)
    return found[-1]


@pytest.mark.parametrize(
    ("shape", "strides", "element", "before", "behind"),
    [
        ((), (), UINT8, 0, 1),
        ((1,), (7,), UINT8, 0, 1),
        ((2,), (1,), UINT8, 0, 2),
        ((2,), (-1,), UINT8, 1, 1),
        ((3, 2), (2, 1), BFLOAT16, 0, 12),
        ((3, 2), (-4, 1), BFLOAT16, 16, 4),
        ((3, 2, 5), (0, -9, 3), INT64, 72, 8 * 13),
    ],
)
@pytest.mark.parametrize("offset", [0, 1, 64])
def test_extent_of_a_tensor(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    element: tuple[int, int, int],
    before: int,
    behind: int,
    offset: int,
) -> None:
    first = 4096 + offset
    assert laid_out(4096, shape, strides, offset, element) == (first - before, first + behind)


def test_a_tensor_ends_where_the_addresses_end() -> None:
    assert laid_out(2**63 - 3, (2,), (1,), 0, UINT8) == (2**63 - 3, 2**63 - 1)
    with pytest.raises(BufferError, match="leave the address space"):
        laid_out(2**63 - 2, (2,), (1,), 0, UINT8)
    assert laid_out(2, (2,), (-1,), 0, UINT8) == (1, 3)
    with pytest.raises(BufferError, match="leave the address space"):
        laid_out(1, (2,), (-1,), 0, UINT8)


def test_memory_that_is_not_there_is_named_by_its_extent() -> None:
    missing = tensor_at(4096, (3, 5), (1, 0), byte_offset=16)
    with pytest.raises(Exception, match=r"there is no memory of 0x1010\.\.0x102e"):
        amdattn.asarray(missing)


@pytest.mark.parametrize("ordinal", [-1, 1, 7])
def test_memory_of_another_device_is_refused(ordinal: int) -> None:
    array = amdattn.empty((3, 5))
    elsewhere = tensor_at(array.address, (3, 5), (10, ordinal))
    with pytest.raises(ValueError, match=f"device {ordinal} must be in 0..0"):
        amdattn.asarray(elsewhere)


@pytest.mark.parametrize("flags", [None, 0, READ_ONLY])
def test_imports_may_be_written_unless_they_say_otherwise(flags: int | None) -> None:
    array = amdattn.empty((3, 5))
    imported = amdattn.from_dlpack(tensor_at(array.address, (3, 5), (10, 0), flags=flags))
    assert imported.view().read_only is (flags == READ_ONLY)
    assert Memory(runtime.get()).read_only is False and array.view().read_only is False


# -- lengths and memory that is 0 ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("longest", "bounds"), [((0, 0), (1, 1)), ((3, 0), (3, 1)), ((0, 5), (1, 5)), ((7, 2), (7, 2))]
)
def test_bounds_of_lengths(longest: tuple[int, int], bounds: tuple[int, int]) -> None:
    assert attention_varlen.at_least_one(longest) == bounds


def test_counters_have_their_own_bytes_and_grow() -> None:
    streams = zero_at_rest._Streams()
    device = runtime.get()
    counters = streams.of(device, 0, "counters", 8)
    assert streams.of(device, 0, "counters", 4096) == counters
    assert streams.of(device, 0, "counters", 1) == counters
    more = streams.of(device, 0, "counters", 4097)
    sums = streams.of(device, 0, "sums", 1)
    assert len({counters, more, sums, streams.of(device, 1, "sums", 1)}) == 4
    memory = list(streams._held.values())
    assert sorted(one.nbytes for one in memory) == [4096, 4096, 8192]
    assert not any(one.numpy().any() for one in memory)


# -- the driver's nodes, bindings, caches ----------------------------------------------------------


def nodes_of(monkeypatch: pytest.MonkeyPatch, *cus: int) -> list[kfd.Node]:
    found = [kfd.Node(0x74A1, 0, 0x0C00, count, i + 1) for i, count in enumerate(cus)]
    monkeypatch.setattr(kfd, "nodes", lambda: (*found, kfd.Node(1, 1, 0x0C00, 38, 1)))
    return found


def test_a_partition_is_told_by_its_cus(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = nodes_of(monkeypatch, 38, 304)
    assert kfd.at("0000:0c:00.0", 38) == small
    assert kfd.at(" 0000:0C:00.7 ", 304) == large
    assert kfd.at("0000:0c:00.0", 100) is kfd.at("0000:0c:00.0", 400) is None
    assert kfd.at("0000:0d:00.0", 38) is kfd.at("0000:0c:01.0", 38) is kfd.at("", 38) is None
    (only,) = nodes_of(monkeypatch, 76)
    assert kfd.at("0000:0c:00.0", 38) == only  # all that is there
    nodes_of(monkeypatch, 38, 38)
    assert kfd.at("0000:0c:00.0", 38) is None


def test_only_hip_itself_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    util = pytest.importorskip("rocm.bindings.util")
    asked = []

    def original(name: str, bundled: object = None) -> bytes:
        asked.append((name, bundled))
        return name.encode()

    monkeypatch.setattr(util.paths, "get_library_path", original)
    found = hip_python._import_rocm_bindings()
    restore = found.pin("/a.so")
    assert util.paths.get_library_path("amdhip64") == b"/a.so" and not asked
    for name in ("amd_comgr", "MIOpen", "amdhip", "amdhip640", "hiprtc", "rccl"):
        assert util.paths.get_library_path(name, "here") == name.encode()
    assert len(asked) == 6 and asked[0] == ("amd_comgr", "here")
    restore()
    assert util.paths.get_library_path is original and found.default_library() == "amdhip64"


def test_twice_the_last_level_cache_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    device = runtime.get()
    device.flush_caches()  # the virtual device has none
    calls: list[tuple[object, ...]] = []
    fake = SimpleNamespace(
        choice=SimpleNamespace(kind="gpu"),
        _flush_address=None,
        malloc=lambda nbytes: calls.append(("malloc", nbytes)) or 64,
        clear=lambda *given: calls.append(given),
    )
    for stream in (0, 5):
        runtime.Runtime.flush_caches(fake, stream)  # type: ignore[arg-type]
    assert calls == [("malloc", 2**29), (64, 2**29, 0), (64, 2**29, 5)]


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ((0, 0, 0), "3 indices for 2 dimensions"),
        ((0, 0, ..., 0), "3 indices for 2 dimensions"),
        ((..., ...), "an index can hold only one ellipsis"),
        (3, "index 3 is out of range for an axis of 3"),
        ((0, -6), "index -6 is out of range for an axis of 5"),
    ],
)
def test_indices_that_are_not_there(key: object, why: str) -> None:
    with pytest.raises(IndexError, match=f"^{re.escape(why)}$"):
        amdattn.empty((3, 5))[key]


def test_indices_are_those_of_numpy() -> None:
    host = np.arange(3 * 5 * 2, dtype=np.float32).reshape(3, 5, 2)
    array = amdattn.asarray(host)
    for key in (
        *(0, -3, 2, ..., slice(None, None, -1), slice(4, 0, -2), slice(5, 9), (1, ..., 1)),
        *((slice(1, 3), -5), (..., slice(None, 1)), (..., 0, 1), (0, 1, 1, ...), (2, slice(3, 3))),
    ):
        expected = host[key]
        found = array[key]
        assert found.shape == expected.shape, key
        np.testing.assert_array_equal(found.numpy(), expected)


GONE = 7  # a stream that was destroyed, as hipStreamGetDevice says


@pytest.mark.parametrize(
    ("answers", "capturing", "left"),
    [
        ({}, False, set()),
        ({3: (0, 0)}, False, {3}),
        ({3: (0, 1)}, True, {3}),
        ({3: (0, 2), 5: (0, 0)}, True, {3, 5}),  # invalidated, and not ended yet
        ({3: (400, 1), 5: (0, 0)}, False, {5}),  # destroyed
        ({3: ValueError, 5: (0, 0)}, False, {5}),
        ({3: ValueError, 5: (0, 1)}, True, {5}),
        ({GONE: (0, 1), 5: (0, 0)}, False, {5}),  # AMD's runtime would read what it was
    ],
)
def test_streams_that_are_captured_and_that_are_gone(
    monkeypatch: pytest.MonkeyPatch,
    answers: dict[int, object],
    capturing: bool,
    left: set[int],
) -> None:
    forgotten: list[int] = []

    def status(stream: int) -> object:
        found = answers[stream]
        if found is ValueError:
            raise ValueError("no such enumerator")
        return found

    hip = SimpleNamespace(
        hipStreamCaptureStatus=SimpleNamespace(hipStreamCaptureStatusNone=0),
        hipStreamIsCapturing=status,
        hipGetLastError=lambda: forgotten.append(1),
    )
    streams = set(answers)
    monkeypatch.setattr(stream_calls, "_streams", streams)
    hip.hipStreamGetDevice = lambda stream: (709 if stream == GONE else 0, 0)
    asked = SimpleNamespace(hip=hip)
    asked.is_gone = functools.partial(runtime.Runtime.is_gone, asked)
    assert runtime.Runtime.any_capturing(asked) is capturing  # type: ignore[arg-type]
    if not capturing:
        assert streams == left and len(forgotten) == len(answers) - len(left)
    assert streams >= left
