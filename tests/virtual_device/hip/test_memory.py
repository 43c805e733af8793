"""Allocation, copies, fills, pointer attributes and pools."""

from __future__ import annotations

import ctypes
import random
from typing import Any

import numpy as np
import pytest

from tests.support.hip_runtime import HipError, code_object

RNG = np.random.default_rng(20240611)


def noise(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def upload(hip: Any, array: np.ndarray) -> Any:
    pointer = hip.hipMalloc(array.nbytes)
    hip.hipMemcpy(
        pointer, address(array), array.nbytes, hip.hip.hipMemcpyKind.hipMemcpyHostToDevice
    )
    return pointer


def download(hip: Any, pointer: Any, *shape: int) -> np.ndarray:
    array = np.zeros(shape, np.uint8)
    hip.hipMemcpy(
        address(array), pointer, array.nbytes, hip.hip.hipMemcpyKind.hipMemcpyDeviceToHost
    )
    return array


@pytest.mark.parametrize("size", [1, 63, 4096, 100003])
def test_round_trip(hip: Any, size: int) -> None:
    data = noise(size)
    pointer = upload(hip, data)
    assert (download(hip, pointer, size) == data).all()
    hip.hipFree(pointer)


@pytest.mark.usefixtures("nothing_else_is_freed")
def test_allocation_is_counted(hip: Any) -> None:
    free, total = hip.hipMemGetInfo()
    before = hip.counter("bytes_allocated")
    pointer = hip.hipMalloc(1 << 20)
    assert hip.hipMemGetInfo() == (free - (1 << 20), total)
    assert hip.counter("bytes_allocated") == before + (1 << 20)
    hip.hipFree(pointer)
    assert hip.hipMemGetInfo() == (free, total)


def test_allocation_limits(hip: Any) -> None:
    assert hip.hipMalloc(0) is None
    hip.hipFree(None)
    with pytest.raises(HipError, match="OutOfMemory"):
        hip.hipMalloc(1 << 40)


def test_free_refuses_what_is_not_a_base(hip: Any) -> None:
    pointer = int(hip.hipMalloc(4096))
    for wrong in (pointer + (1 << 30), 0x1234):
        with pytest.raises(HipError, match="InvalidValue"):
            hip.hipFree(wrong)
    hip.hipFree(pointer)
    with pytest.raises(HipError, match="InvalidValue"):
        hip.hipFree(pointer)


def test_copy_refuses_out_of_bounds(hip: Any) -> None:
    kind = hip.hip.hipMemcpyKind
    pointer = int(hip.hipMalloc(1000))
    data = noise(2000)
    hip.hipMemcpy(pointer + 990, address(data), 10, kind.hipMemcpyHostToDevice)
    for target, size in ((pointer, 1001), (pointer + 991, 10), (pointer - 1, 8)):
        with pytest.raises(HipError, match="InvalidValue"):
            hip.hipMemcpy(target, address(data), size, kind.hipMemcpyHostToDevice)
    assert hip.says(f"{pointer:#x}")
    hip.hipFree(pointer)
    with pytest.raises(HipError, match="InvalidValue"):
        hip.hipMemcpy(pointer, address(data), 8, kind.hipMemcpyHostToDevice)


def test_copy_refuses_wrong_direction_and_null(hip: Any) -> None:
    kind = hip.hip.hipMemcpyKind
    data, pointer = noise(64), hip.hipMalloc(64)
    with pytest.raises(HipError, match="InvalidValue"):
        hip.hipMemcpy(address(data), address(noise(64)), 64, kind.hipMemcpyHostToDevice)
    with pytest.raises(HipError, match="InvalidValue"):
        hip.hipMemcpy(None, address(data), 64, kind.hipMemcpyDefault)
    hip.hipMemcpy(None, None, 0, kind.hipMemcpyDefault)
    code = hip.lib.hipMemcpy(ctypes.c_void_p(int(pointer)), data.ctypes, ctypes.c_size_t(64), 77)
    assert code == hip.errors.hipErrorInvalidMemcpyDirection


@pytest.mark.parametrize("variant", ["DtoD", "DtoDAsync", "Peer", "PeerAsync", "Default", "spt"])
def test_device_to_device(hip: Any, variant: str) -> None:
    data = noise(5000)
    source, target = upload(hip, data), upload(hip, noise(5000))
    match variant:
        case "DtoD":
            hip.hipMemcpyDtoD(target, source, 5000)
        case "DtoDAsync":
            hip.hipMemcpyDtoDAsync(target, source, 5000, None)
        case "Peer":
            hip.hipMemcpyPeer(target, 0, source, 0, 5000)
        case "PeerAsync":
            hip.hipMemcpyPeerAsync(target, 0, source, 0, 5000, None)
        case "Default":
            hip.hipMemcpyAsync(target, source, 5000, hip.hip.hipMemcpyKind.hipMemcpyDefault, None)
        case "spt":
            hip.hipMemcpy_spt(target, source, 5000, hip.hip.hipMemcpyKind.hipMemcpyDefault)
    assert (download(hip, target, 5000) == data).all()


def test_overlapping_copy(hip: Any) -> None:
    data = noise(4096)
    pointer = int(upload(hip, data))
    hip.hipMemcpyDtoD(pointer + 100, pointer, 3000)
    assert (download(hip, pointer, 4096)[100:3100] == data[:3000]).all()


def test_pitched_copies(hip: Any) -> None:
    kind = hip.hip.hipMemcpyKind
    data = noise(13, 37)
    pointer, pitch = hip.hipMallocPitch(37, 13)
    assert pitch % 256 == 0
    hip.hipMemcpy2D(pointer, pitch, address(data), 37, 37, 13, kind.hipMemcpyHostToDevice)
    back = np.zeros((13, 50), np.uint8)
    hip.hipMemcpy2DAsync(
        address(back), 50, pointer, pitch, 37, 13, kind.hipMemcpyDeviceToHost, None
    )
    assert (back[:, :37] == data).all()
    assert (back[:, 37:] == 0).all()
    with pytest.raises(HipError, match="InvalidPitchValue"):
        hip.hipMemcpy2D(pointer, pitch, address(data), 36, 37, 13, kind.hipMemcpyHostToDevice)


def test_copy_3d(hip: Any) -> None:
    data = noise(5, 6, 7)
    pointer = upload(hip, noise(5, 8, 16))
    before = download(hip, pointer, 5, 8, 16)
    p = hip.hip.hipMemcpy3DParms()
    p.srcPtr.ptr, p.srcPtr.pitch, p.srcPtr.xsize, p.srcPtr.ysize = address(data), 7, 7, 6
    p.dstPtr.ptr, p.dstPtr.pitch, p.dstPtr.xsize, p.dstPtr.ysize = int(pointer), 16, 16, 8
    p.dstPos.x, p.dstPos.y, p.dstPos.z = 3, 1, 2
    p.extent.width, p.extent.height, p.extent.depth = 7, 6, 3
    p.kind = hip.hip.hipMemcpyKind.hipMemcpyHostToDevice
    hip.hipMemcpy3D(p)
    before[2:5, 1:7, 3:10] = data[:3]
    assert (download(hip, pointer, 5, 8, 16) == before).all()


@pytest.mark.parametrize(("bits", "dtype"), [(8, np.uint8), (16, np.uint16), (32, np.uint32)])
@pytest.mark.parametrize("suffix", ["", "Async"])
def test_fill(hip: Any, bits: int, dtype: Any, suffix: str) -> None:
    before = noise(4000)
    pointer = int(upload(hip, before))
    value = 0x1234A5B7 & (2**bits - 1)
    stream = (None,) if suffix else ()
    getattr(hip, f"hipMemsetD{bits}{suffix}")(pointer + 40, value, 99, *stream)
    expected = before.copy()
    expected[40 : 40 + 99 * bits // 8] = np.full(99, value, dtype).view(np.uint8)
    assert (download(hip, pointer, 4000) == expected).all()


def test_fill_2d_and_bounds(hip: Any) -> None:
    before = noise(10, 64)
    pointer = upload(hip, before)
    hip.hipMemset2D(int(pointer) + 5, 64, 0x1AB, 20, 9)  # only the low byte counts
    before[:9, 5:25] = 0xAB
    assert (download(hip, pointer, 10, 64) == before).all()
    with pytest.raises(HipError, match="InvalidValue"):
        hip.hipMemset(pointer, 0, 641)
    with pytest.raises(HipError, match="InvalidValue"):
        hip.hipMemset(address(before), 0, 8)


def test_managed_and_pinned_memory(hip: Any) -> None:
    kinds = hip.hip.hipMemoryType
    managed = hip.hipMallocManaged(4096, 1)
    pinned = hip.hipHostMalloc(4096, 0)
    for pointer, kind in ((managed, kinds.hipMemoryTypeManaged), (pinned, kinds.hipMemoryTypeHost)):
        ctypes.memset(int(pointer), 0x5A, 4096)  # the host may write it
        assert (download(hip, pointer, 4096) == 0x5A).all()
        attributes = hip.pointer_attributes(int(pointer) + 8)
        assert attributes.type == kind
        assert attributes.isManaged == (kind == kinds.hipMemoryTypeManaged)
        _, fill = hip.kernel("fill")
        hip.launch(fill, pointer, 7)
        hip.hipDeviceSynchronize()
        assert ctypes.c_uint32.from_address(int(pointer)).value == 7
    assert int(hip.hipHostGetDevicePointer(pinned, 0)) == int(pinned)
    assert hip.hipHostGetFlags(pinned) == 0
    hip.hipHostFree(pinned)
    hip.hipFree(managed)
    with pytest.raises(HipError, match="InvalidValue"):
        hip.hipMallocManaged(16, 4)


def test_registered_memory(hip: Any) -> None:
    data = np.zeros(1 << 14, np.uint32)
    with pytest.raises(HipError, match="HostMemoryNotRegistered"):
        hip.hipHostUnregister(address(data))
    hip.hipHostRegister(address(data), data.nbytes, 0)
    _, fill = hip.kernel("fill")
    hip.launch(fill, hip.hipHostGetDevicePointer(address(data), 0), 0xABCD)
    hip.hipDeviceSynchronize()
    assert (data[:64] == 0xABCD).all()
    assert (data[64:] == 0).all()
    hip.hipHostUnregister(address(data))


def test_pointer_attributes(hip: Any) -> None:
    pointer = int(hip.hipMalloc(5000))
    attributes = hip.pointer_attributes(pointer + 100)
    assert attributes.type == hip.hip.hipMemoryType.hipMemoryTypeDevice
    assert attributes.device == 0
    assert int(attributes.devicePointer) == pointer + 100
    base, size = hip.hipMemGetAddressRange(pointer + 4999)
    assert (int(base), size) == (pointer, 5000)
    assert hip.hipMemPtrGetInfo(pointer) == 5000
    with pytest.raises(HipError, match="NotFound"):
        hip.hipMemGetAddressRange(pointer + 5000)
    host = hip.pointer_attributes(address(noise(8)))
    assert host.type == hip.hip.hipMemoryType.hipMemoryTypeUnregistered
    start = ctypes.c_uint64()
    attribute = hip.hip.hipPointer_attribute.HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR
    hip.hipPointerGetAttribute(ctypes.addressof(start), attribute, pointer + 17)
    assert start.value == pointer


def test_stream_ordered_allocation(hip: Any) -> None:
    stream = hip.hipStreamCreate()
    pool = hip.hipDeviceGetDefaultMemPool(0)
    used = ctypes.c_uint64()

    def in_use() -> int:
        attribute = hip.hip.hipMemPoolAttr.hipMemPoolAttrUsedMemCurrent
        hip.hipMemPoolGetAttribute(pool, attribute, ctypes.addressof(used))
        return used.value

    before = in_use()
    _, spin = hip.kernel("spin")
    _, fill = hip.kernel("fill")
    pointer = hip.hipMallocAsync(4096, stream)
    assert in_use() == before + 4096
    hip.launch(spin, value=100000, stream=stream)
    hip.launch(fill, pointer, 3, stream=stream)  # still allocated when it runs
    hip.hipFreeAsync(pointer, stream)
    hip.hipStreamSynchronize(stream)
    assert in_use() == before
    own = hip.hipMemPoolCreate(pool_props(hip))
    from_own = hip.hipMallocFromPoolAsync(100, own, stream)
    hip.hipFree(from_own)
    hip.hipMemPoolDestroy(own)
    hip.hipStreamDestroy(stream)


def test_what_a_new_pool_reuses(hip: Any) -> None:
    pool = hip.hipMemPoolCreate(pool_props(hip))
    attributes = hip.hip.hipMemPoolAttr
    for name in ("FollowEventDependencies", "AllowOpportunistic", "AllowInternalDependencies"):
        attribute = getattr(attributes, f"hipMemPoolReuse{name}")
        value = ctypes.c_int(7)
        hip.hipMemPoolGetAttribute(pool, attribute, ctypes.addressof(value))
        assert value.value == 1, name
        zero = ctypes.c_int(0)
        hip.hipMemPoolSetAttribute(pool, attribute, ctypes.addressof(zero))
        hip.hipMemPoolGetAttribute(pool, attribute, ctypes.addressof(value))
        assert value.value == 0, name
    hip.hipMemPoolDestroy(pool)


def test_access_of_a_pool(hip: Any) -> None:
    """The only device has it for good; whatever else is asked for is refused."""
    pool = hip.hipMemPoolCreate(pool_props(hip))
    flags = hip.hip.hipMemAccessFlags
    access = hip.hip.hipMemAccessDesc()
    access.location.type = hip.hip.hipMemLocationType.hipMemLocationTypeDevice
    access.flags = flags.hipMemAccessFlagsProtReadWrite
    hip.hipMemPoolSetAccess(pool, access, 1)
    for count in (0, 1):
        with pytest.raises(HipError, match="InvalidValue"):
            hip.hipMemPoolSetAccess(pool, None, count)
    access.location.id = 1
    with pytest.raises(HipError, match="InvalidDevice"):
        hip.hipMemPoolSetAccess(pool, access, 1)
    access.location.id = 0
    access.location.type = hip.hip.hipMemLocationType.hipMemLocationTypeInvalid
    with pytest.raises(HipError, match="InvalidValue"):
        hip.hipMemPoolSetAccess(pool, access, 1)
    hip.hipMemPoolDestroy(pool)
    with pytest.raises(HipError, match="InvalidValue"):
        hip.hipMemPoolSetAccess(pool, None, 0)


def test_pools_that_are_refused(hip: Any) -> None:
    """Pinned memory of the only device, shared with no other process, is all that a pool has."""
    names, locations = hip.hip.hipMemAllocationType, hip.hip.hipMemLocationType
    for change, error in (
        (lambda p: setattr(p, "allocType", names.hipMemAllocationTypeInvalid), "InvalidValue"),
        (lambda p: setattr(p.location, "type", locations.hipMemLocationTypeInvalid), "InvalidV"),
        (lambda p: setattr(p.location, "id", 1), "InvalidValue"),
    ):
        props = pool_props(hip)
        change(props)
        with pytest.raises(HipError, match=error):
            hip.hipMemPoolCreate(props)


def pool_props(hip: Any) -> Any:
    props = hip.hip.hipMemPoolProps()
    props.allocType = hip.hip.hipMemAllocationType.hipMemAllocationTypePinned
    props.location.type = hip.hip.hipMemLocationType.hipMemLocationTypeDevice
    return props


def test_symbols(hip: Any) -> None:
    """A variable is named by its address; the image's `table` is 64 bytes of data."""
    module = hip.hipModuleLoadData(code_object())
    table, size = hip.hipModuleGetGlobal(module, b"table")
    assert size == 64
    data = noise(16)
    hip.hipMemcpyToSymbol(table, address(data), 16, 8, hip.hip.hipMemcpyKind.hipMemcpyHostToDevice)
    back = np.zeros(64, np.uint8)
    kind = hip.hip.hipMemcpyKind.hipMemcpyDeviceToHost
    hip.hipMemcpyFromSymbol(address(back), table, 64, 0, kind)
    expected = np.arange(64, dtype=np.uint8)
    expected[8:24] = data
    assert (back == expected).all()
    with pytest.raises(HipError, match="InvalidValue"):
        hip.hipMemcpyFromSymbol(address(back), table, 64, 1, kind)
    with pytest.raises(HipError, match="InvalidSymbol"):
        hip.hipMemcpyFromSymbol(address(back), int(table) + 4, 4, 0, kind)


def test_random_transfers_against_a_model(hip: Any) -> None:
    """Interleaved fills and copies on two ordered streams leave what numpy computes."""
    random.seed(7)
    size = 1 << 12
    model = [noise(size) for _ in range(3)]
    device = [int(upload(hip, m)) for m in model]
    stream = hip.hipStreamCreate()  # a blocking stream is ordered with the null stream
    for _ in range(200):
        a, b = random.randrange(3), random.randrange(3)
        n = random.randrange(1, 300)
        i, j = random.randrange(size - n), random.randrange(size - n)
        where = random.choice((None, stream))
        if random.random() < 0.4:
            value = random.randrange(256)
            hip.hipMemsetAsync(device[a] + i, value, n, where)
            model[a][i : i + n] = value
        else:
            hip.hipMemcpyDtoDAsync(device[a] + i, device[b] + j, n, where)
            model[a][i : i + n] = model[b][j : j + n].copy()
    hip.hipDeviceSynchronize()
    for pointer, expected in zip(device, model, strict=True):
        assert (download(hip, pointer, size) == expected).all()
    hip.hipStreamDestroy(stream)
