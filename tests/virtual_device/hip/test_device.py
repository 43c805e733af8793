"""Device, properties, attributes, limits, contexts and error reporting."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest

from tests.support.hip_runtime import Gate, HipError

# Of a real MI300X: rocminfo, rocm-smi and the logs of frameworks.
MI300X = {
    "name": "AMD Instinct MI300X",
    "gcnArchName": "gfx942:sramecc+:xnack-",
    "totalGlobalMem": 206141652992,
    "sharedMemPerBlock": 65536,
    "sharedMemPerMultiprocessor": 65536,
    "maxSharedMemoryPerMultiProcessor": 65536,
    "regsPerBlock": 131072,
    "regsPerMultiprocessor": 131072,
    "warpSize": 64,
    "maxThreadsPerBlock": 1024,
    "clockRate": 2100000,
    "memoryClockRate": 1300000,
    "memoryBusWidth": 8192,
    "major": 9,
    "minor": 4,
    "multiProcessorCount": 304,
    "l2CacheSize": 4194304,
    "maxThreadsPerMultiProcessor": 2048,
    "maxBlocksPerMultiProcessor": 32,
    "clockInstructionRate": 1000000,
    "totalConstMem": 2147483647,
    "concurrentKernels": 1,
    "cooperativeLaunch": 1,
    "memoryPoolsSupported": 1,
    "asicRevision": 1,
}


# Properties that no attribute has.
REFUSED = {"ClockInstructionRate", "SingleToDoublePrecisionPerfRatio", "TccDriver"} | {
    "MaxSurfaceCubemap"
}
OTHERWISE = {"UnifiedAddressing"}  # 1, of which AMD's properties have 0


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def test_properties(hip: Any) -> None:
    properties = hip.properties()
    for field, expected in MI300X.items():
        value = getattr(properties, field)
        assert (field, text(value) if isinstance(expected, str) else value) == (field, expected)
    for field in ("textureAlignment", "texturePitchAlignment", "surfaceAlignment"):
        value = getattr(properties, field)
        assert value > 0 and value.bit_count() == 1, field


def test_attributes_agree_with_properties(hip: Any) -> None:
    """hipDeviceAttributeXyz is the property xyz, clamped to an int; renamed ones are listed."""
    properties = hip.properties()
    renamed = {
        "ComputeCapabilityMajor": "major",
        "ComputeCapabilityMinor": "minor",
        "MultiprocessorCount": "multiProcessorCount",
        "MaxSharedMemoryPerBlock": "sharedMemPerBlock",
        "MaxRegistersPerBlock": "regsPerBlock",
        "MaxRegistersPerMultiprocessor": "regsPerMultiprocessor",
        "TotalConstantMemory": "totalConstMem",
        "MaxSharedMemoryPerMultiprocessor": "maxSharedMemoryPerMultiProcessor",
        "EccEnabled": "ECCEnabled",
        "PciBusId": "pciBusID",
        "KernelExecTimeout": "kernelExecTimeoutEnabled",
        "MaxPitch": "memPitch",
    }
    compared = 0
    for name, attribute in hip.hip.hipDeviceAttribute_t.__members__.items():
        short = name.removeprefix("hipDeviceAttribute")
        field = renamed.get(short, short[0].lower() + short[1:])
        expected = getattr(properties, field, None)
        if isinstance(expected, int) and short not in REFUSED | OTHERWISE:
            assert hip.hipDeviceGetAttribute(attribute, 0) == min(expected, 2**31 - 1)
            compared += 1
    assert compared >= 50


def test_attributes_without_property(hip: Any) -> None:
    attribute = hip.hip.hipDeviceAttribute_t
    assert hip.hipDeviceGetAttribute(attribute.hipDeviceAttributeNumberOfXccs, 0) == 8
    assert hip.hipDeviceGetAttribute(attribute.hipDeviceAttributeMaxGridDimX, 0) == 2**31 - 1
    assert hip.hipDeviceGetAttribute(attribute.hipDeviceAttributeMaxBlockDimZ, 0) == 1024
    assert (
        hip.hipDeviceGetAttribute(attribute.hipDeviceAttributePhysicalMultiProcessorCount, 0) == 304
    )
    for name in ("Unused1", "MaxSurface2D", "MaxTexture3DAlt", "MaxThreadsDim", *REFUSED):
        with pytest.raises(HipError, match="InvalidValue"):
            hip.hipDeviceGetAttribute(getattr(attribute, f"hipDeviceAttribute{name}"), 0)


def test_one_device(hip: Any) -> None:
    hip.hipInit(0)
    assert hip.hipGetDeviceCount() == 1
    hip.hipSetDevice(0)
    assert hip.hipGetDevice() == 0
    assert hip.hipDeviceGet(0) == 0
    for call in (hip.hipSetDevice, hip.hipDeviceGet, hip.properties):
        for device in (1, -1):
            with pytest.raises(HipError, match="InvalidDevice"):
                call(device)
    with pytest.raises(HipError, match="InvalidValue"):
        hip.hipInit(1)
    assert hip.hipDeviceComputeCapability(0) == (9, 4)
    assert hip.hipDeviceTotalMem(0) == MI300X["totalGlobalMem"]
    assert hip.hipDriverGetVersion() == hip.hipRuntimeGetVersion() >= 70000000


def test_names(hip: Any) -> None:
    assert text(hip.hipDeviceGetName(64, 0)) == MI300X["name"]
    assert text(hip.hipDeviceGetName(4, 0)) == "AMD"
    bus_id = text(hip.hipDeviceGetPCIBusId(32, 0))
    assert hip.hipDeviceGetByPCIBusId(bus_id.encode()) == 0
    with pytest.raises(HipError, match="InvalidValue"):
        hip.hipDeviceGetPCIBusId(5, 0)
    with pytest.raises(HipError, match="InvalidValue"):
        hip.hipDeviceGetByPCIBusId(b"ffff:ff:1f.0")
    uuid, properties = (ctypes.create_string_buffer(16) for _ in range(2))
    hip.lib.hipDeviceGetUuid(uuid, 0)
    whole = ctypes.create_string_buffer(1472)
    hip.lib.hipGetDevicePropertiesR0600(whole, 0)
    properties.raw = whole.raw[256:272]
    assert uuid.raw == properties.raw != bytes(16)


def test_limits_and_flags(hip: Any) -> None:
    limit = hip.hip.hipLimit_t
    before = hip.hipDeviceGetLimit(limit.hipLimitMallocHeapSize)
    hip.hipDeviceSetLimit(limit.hipLimitMallocHeapSize, 12345)
    assert hip.hipDeviceGetLimit(limit.hipLimitMallocHeapSize) == 12345
    hip.hipDeviceSetLimit(limit.hipLimitMallocHeapSize, before)
    for refused, error in (
        (limit.hipLimitRange, "InvalidValue"),
        (limit.hipLimitPrintfFifoSize, "UnsupportedLimit"),
    ):
        with pytest.raises(HipError, match=error):
            hip.hipDeviceGetLimit(refused)
        with pytest.raises(HipError, match=error):
            hip.hipDeviceSetLimit(refused, 4096)
    assert hip.hipDeviceGetLimit(limit.hipExtLimitScratchMax) == 4 << 30
    with pytest.raises(HipError, match="UnsupportedLimit"):
        hip.hipDeviceSetLimit(limit.hipExtLimitScratchMax, 4096)
    hip.hipSetDeviceFlags(4)
    assert hip.hipGetDeviceFlags() == 4
    hip.hipSetDeviceFlags(0)
    with pytest.raises(HipError, match="InvalidValue"):
        hip.hipSetDeviceFlags(3)


def test_no_peers(hip: Any) -> None:
    assert hip.hipDeviceCanAccessPeer(0, 0) == 0
    with pytest.raises(HipError, match="InvalidDevice"):
        hip.hipDeviceCanAccessPeer(0, 1)
    with pytest.raises(HipError, match="InvalidDevice"):
        hip.hipDeviceEnablePeerAccess(0, 0)


def test_primary_context(hip: Any) -> None:
    primary = hip.hipDevicePrimaryCtxRetain(0)
    assert int(hip.hipCtxGetCurrent()) == int(primary)
    hip.hipCtxSetCurrent(primary)
    assert hip.hipCtxGetDevice() == 0
    with pytest.raises(HipError, match="NotSupported"):
        hip.hipCtxSynchronize()
    hip.hipDevicePrimaryCtxRelease(0)


def test_last_error_is_sticky_and_per_thread(hip: Any) -> None:
    success, invalid = hip.errors.hipSuccess, hip.errors.hipErrorInvalidDevice
    hip.hip.hipGetLastError()
    assert hip.hip.hipSetDevice(7)[0] == invalid
    hip.hipGetDevice()  # a later success does not clear it
    seen = []
    thread = threading.Thread(target=lambda: seen.append(hip.hip.hipPeekAtLastError()[0]))
    thread.start()
    thread.join()
    assert seen == [success]
    assert hip.hip.hipPeekAtLastError()[0] == invalid
    assert hip.hip.hipGetLastError()[0] == invalid
    assert hip.hip.hipGetLastError()[0] == success


def test_not_ready_is_no_error(hip: Any) -> None:
    event = hip.hipEventCreate()
    gate = Gate(hip)
    hip.hipEventRecord(event, None)
    assert hip.hip.hipEventQuery(event)[0] == hip.errors.hipErrorNotReady
    assert hip.hip.hipGetLastError()[0] == hip.errors.hipSuccess
    # This one is about the latest call instead.
    assert hip.hip.hipExtGetLastError()[0] == hip.errors.hipErrorNotReady
    assert hip.hip.hipExtGetLastError()[0] == hip.errors.hipSuccess
    gate.close()


def test_error_names_and_texts(hip: Any) -> None:
    texts = set()
    for name, code in hip.errors.__members__.items():
        if name == "hipErrorTbd":  # moved with every addition
            continue
        found = hip.lib.hipGetErrorName(int(code)).decode()
        assert hip.errors[found] == code  # aliases have one name
        assert text(hip.hipDrvGetErrorName(code)) == found
        texts.add(hip.lib.hipGetErrorString(int(code)))
    assert len(texts) >= 74
    assert b"" not in texts
    assert hip.lib.hipGetErrorName(12345) == b"hipErrorUnknown"
    pointer = ctypes.c_char_p()
    assert (
        hip.lib.hipDrvGetErrorName(12345, ctypes.byref(pointer)) == hip.errors.hipErrorInvalidValue
    )


def test_own_exports(hip: Any) -> None:
    assert hip.device.amdattn_vdev_abi() == 3
    assert hip.hip.has_symbol("amdattn_vdev_abi") if hasattr(hip.hip, "has_symbol") else True
    assert hip.set_option("quantum", 4)
    assert hip.set_option("quantum", 8)
    for key, value in [
        ("quantum", 0),
        ("quantum", 17),
        ("quantum", "8x"),
        ("quantum", ""),
        ("threads", -1),
        ("threads", 1025),
        ("colour", 1),
        ("max_instructions", 0),
    ]:
        assert not hip.set_option(key, value)
    before = hip.counter("launches")
    _, nothing = hip.kernel("nothing")
    hip.launch(nothing)
    hip.hipDeviceSynchronize()
    assert hip.counter("launches") == before + 1
    assert hip.counter("no such counter") == 0


def test_get_proc_address(hip: Any) -> None:
    address = ctypes.c_void_p()
    status = ctypes.c_int()
    out = ctypes.byref(address), 0, ctypes.c_uint64(0), ctypes.byref(status)
    assert hip.lib.hipGetProcAddress(b"hipMalloc", *out) == 0
    assert address.value == ctypes.cast(hip.lib.hipMalloc, ctypes.c_void_p).value
    assert hip.lib.hipGetProcAddress(b"hipNoSuch", *out) == hip.errors.hipErrorInvalidValue
    assert (address.value, status.value) == (None, 1)
