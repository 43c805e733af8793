"""Loading code objects, kernels and their attributes, launches and occupancy."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.hip_runtime import ARGS, HipError, code_object
from tests.support.image_builder import bundle


def configuration(payload: bytes, size: int | None = None) -> tuple[Any, ...]:
    """The `extra` array of a launch and the objects it refers to."""
    buffer = ctypes.create_string_buffer(payload, len(payload))
    length = ctypes.c_size_t(len(payload) if size is None else size)
    array = (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(length), 3)
    return array, buffer, length


@pytest.fixture
def word(hip: Any) -> Any:
    pointer = hip.hipHostMalloc(4096, 0)
    ctypes.memset(int(pointer), 0, 4096)
    yield np.ctypeslib.as_array((ctypes.c_uint32 * 1024).from_address(int(pointer)))
    hip.hipHostFree(pointer)


@pytest.mark.parametrize("how", ["data", "file", "fat", "bundle"])
def test_load(hip: Any, tmp_path: Path, word: np.ndarray, how: str) -> None:
    image = code_object("fill")
    if how == "bundle":
        image = bundle(
            [
                ("host-x86_64-unknown-linux--", b""),
                ("hipv4-amdgcn-amd-amdhsa--gfx90a", code_object("illegal")),
                ("hipv4-amdgcn-amd-amdhsa--gfx942", image),
            ]
        )
    if how == "file":
        (tmp_path / "k.hsaco").write_bytes(image)
        module = hip.hipModuleLoad(str(tmp_path / "k.hsaco").encode())
    elif how == "fat":
        module = hip.hipModuleLoadFatBinary(image)
    else:
        module = hip.hipModuleLoadData(image)
    assert hip.hipModuleGetFunctionCount(module) == 1
    function = hip.hipModuleGetFunction(module, b"k")
    assert int(function) == int(hip.hipModuleGetFunction(module, b"k"))
    hip.launch(function, word.ctypes.data, 6)
    hip.hipModuleUnload(module)  # a launch in flight keeps its code
    hip.hipDeviceSynchronize()
    assert (word[:64] == 6).all()
    with pytest.raises(HipError, match="NotFound"):
        hip.hipModuleGetFunction(module, b"k")


@pytest.mark.parametrize(
    ("image", "error"),
    [
        (b"", "InvalidImage"),
        (b"not an image", "InvalidImage"),
        (b"\x7fELF" + bytes(100), "InvalidImage"),
        (b"CCOB" + bytes(60), "InvalidImage"),
        (bundle([("hipv4-amdgcn-amd-amdhsa--gfx90a", code_object())]), "InvalidImage"),
        (code_object()[:5000], "InvalidImage|NoBinaryForGpu"),
    ],
)
def test_refused_images(hip: Any, image: bytes, error: str) -> None:
    with pytest.raises(HipError, match=error):
        hip.hipModuleLoadData(image + bytes(1 << 16))  # behind a part, not what was there before
    assert hip.says("code object refused")


def test_missing_names(hip: Any) -> None:
    module, _ = hip.kernel()
    with pytest.raises(HipError, match="NotFound"):
        hip.hipModuleGetFunction(module, b"no_such_kernel")
    assert hip.says("no_such_kernel")
    with pytest.raises(HipError, match="NotFound"):
        hip.hipModuleGetGlobal(module, b"k")
    with pytest.raises(HipError, match="FileNotFound"):
        hip.hipModuleLoad(b"/nonexistent/k.hsaco")


def test_library_interface(hip: Any) -> None:
    lib, image = hip.lib, code_object("fill")
    library, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    none = [None, None, 0, None, None, 0]
    assert lib.hipLibraryLoadData(ctypes.byref(library), image, *none) == 0
    count = ctypes.c_uint()
    assert lib.hipLibraryGetKernelCount(ctypes.byref(count), library) == 0
    assert count.value == 1
    assert lib.hipLibraryGetKernel(ctypes.byref(kernel), library, b"k") == 0
    name = ctypes.c_char_p()
    assert lib.hipKernelGetName(ctypes.byref(name), kernel) == 0
    assert name.value == b"k"
    assert lib.hipLibraryUnload(library) == 0


def test_kernels_of_libraries(hip: Any, word: np.ndarray) -> None:
    """What AMD's 7.2 does not have."""
    lib, image = hip.lib, code_object("fill")
    library, kernel, function = (ctypes.c_void_p() for _ in range(3))
    assert lib.hipLibraryLoadData(ctypes.byref(library), image, None, None, 0, None, None, 0) == 0
    assert lib.hipLibraryGetKernel(ctypes.byref(kernel), library, b"k") == 0
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    info = [ctypes.byref(offset), ctypes.byref(size)]
    assert lib.hipKernelGetParamInfo(kernel, ctypes.c_size_t(1), *info) == 0
    assert (offset.value, size.value) == (8, 4)
    assert lib.hipKernelGetParamInfo(kernel, ctypes.c_size_t(2), *info) == 1
    assert lib.hipKernelGetFunction(ctypes.byref(function), kernel) == 0
    hip.launch(function.value, word.ctypes.data, 12)
    hip.hipDeviceSynchronize()
    assert (word[:64] == 12).all()
    assert lib.hipLibraryUnload(library) == 0
    assert lib.hipLibraryUnload(library) == hip.errors.hipErrorInvalidHandle


def test_function_attributes(hip: Any) -> None:
    _, function = hip.kernel(
        group_segment_fixed_size=1024, private_segment_fixed_size=48, max_flat_workgroup_size=512
    )
    attribute = hip.hip.hipFunction_attribute
    expected = {
        "MAX_THREADS_PER_BLOCK": 512,
        "SHARED_SIZE_BYTES": 1024,
        "LOCAL_SIZE_BYTES": 48,
        "NUM_REGS": 8,
        "BINARY_VERSION": 94,
        "PTX_VERSION": 94,
        "MAX_DYNAMIC_SHARED_SIZE_BYTES": 65536 - 1024,
    }
    for name, value in expected.items():
        asked = attribute[f"HIP_FUNC_ATTRIBUTE_{name}"]
        assert hip.hipFuncGetAttribute(asked, function) == value
    dynamic = hip.hip.hipFuncAttribute.hipFuncAttributeMaxDynamicSharedMemorySize
    for allowed in (0, 64512):
        hip.hipFuncSetAttribute(function, dynamic, allowed)
    for refused in (-1, 64513):
        with pytest.raises(HipError, match="InvalidValue"):
            hip.hipFuncSetAttribute(function, dynamic, refused)
    with pytest.raises(HipError, match="InvalidDeviceFunction"):
        hip.hipFuncSetAttribute(0x5000, dynamic, 1)


def test_all_function_attributes(hip: Any) -> None:
    _, function = hip.kernel(
        group_segment_fixed_size=1024, private_segment_fixed_size=48, max_flat_workgroup_size=512
    )
    whole = hip.filled("hipFuncGetAttributes", "hipFuncAttributes", function)
    found = (whole.maxThreadsPerBlock, whole.sharedSizeBytes, whole.localSizeBytes)
    assert found == (512, 1024, 48)


@pytest.mark.parametrize(
    ("grid", "group", "lds", "error"),
    [
        ((0, 1, 1), (64, 1, 1), 0, "InvalidValue"),
        ((1, 1, 1), (64, 0, 1), 0, "InvalidValue"),
        ((1, 1, 1), (32, 32, 2), 0, "InvalidValue"),
        ((1, 1, 1), (1 << 16, 1 << 16, 1), 0, "InvalidValue"),
        ((1 << 31, 1, 1), (1, 1, 1), 0, "InvalidValue"),
        ((1, 65537, 1), (1, 1, 1), 0, "InvalidValue"),
        ((1 << 26, 1, 1), (64, 1, 1), 0, "InvalidValue"),
        ((1, 1, 1), (64, 1, 1), 65537, "InvalidValue"),
        ((1, 1, 1), (512, 1, 1), 0, "LaunchFailure"),
    ],
)
def test_launch_validation(
    hip: Any, grid: tuple[int, ...], group: tuple[int, ...], lds: int, error: str
) -> None:
    _, function = hip.kernel(group_segment_fixed_size=512)
    extra, *_keep = configuration(bytes(16))
    with pytest.raises(HipError, match=error):
        hip.hipModuleLaunchKernel(function, *grid, *group, lds, None, None, ctypes.addressof(extra))
    assert hip.says("launch of k: ")


@pytest.mark.parametrize(
    ("grid", "group"),
    [
        ((2**31 - 1, 1, 1), (1, 1, 1)),
        ((1, 65536, 65536), (1, 1, 1)),
        ((2**22 - 1, 1, 1), (1024, 1, 1)),
        ((1, 1, 1), (1, 1024, 1)),
        ((1, 1, 1), (1, 1, 1024)),
    ],
)
def test_the_greatest_shapes_pass(hip: Any, grid: tuple[int, ...], group: tuple[int, ...]) -> None:
    """They would run for hours: the next check refuses the launch."""
    _, function = hip.kernel()
    extra, *_keep = configuration(bytes(16))
    at = ctypes.addressof(extra)
    with pytest.raises(HipError, match="InvalidValue"):
        hip.hipModuleLaunchKernel(function, *grid, *group, 65537, None, None, at)
    assert hip.says("65537 bytes of dynamic LDS exceed 65536")


def test_argument_validation(hip: Any) -> None:
    _, function = hip.kernel()
    extra, *_keep = configuration(bytes(16))
    launch = hip.lib.hipModuleLaunchKernel
    handle = ctypes.c_void_p(int(function))
    shape = (1, 1, 1, 64, 1, 1, 0, None)
    params = (ctypes.c_void_p * 2)(*(ctypes.addressof(_keep[0]) for _ in range(2)))
    bad = (ctypes.c_void_p * 5)(1, 0, 7, 0, 3)
    invalid = hip.errors.hipErrorInvalidValue
    assert launch(handle, *shape, params, extra) == invalid
    assert launch(handle, *shape, None, None) == invalid
    assert launch(handle, *shape, None, bad) == invalid
    assert launch(None, *shape, params, None) == hip.errors.hipErrorInvalidHandle
    _, undeclared = hip.kernel(args=[])
    code = launch(ctypes.c_void_p(int(undeclared)), *shape, None, extra)
    assert code == hip.errors.hipErrorLaunchOutOfResources


def test_arguments_that_cannot_be_read(hip: Any) -> None:
    _, function = hip.kernel()
    good = ctypes.create_string_buffer(8)
    missing = (ctypes.c_void_p * 2)(ctypes.addressof(good), None)
    arguments = (ctypes.c_void_p(int(function)), 1, 1, 1, 64, 1, 1, 0, None, missing, None)
    assert hip.lib.hipModuleLaunchKernel(*arguments) == hip.errors.hipErrorInvalidValue
    assert hip.says("kernelParams[1] is null")
    missing[1] = 64  # nothing is mapped there
    assert hip.lib.hipModuleLaunchKernel(*arguments) == hip.errors.hipErrorInvalidValue
    assert hip.says("kernelParams[1] at 0x40 cannot be read")


def test_both_forms_of_arguments(hip: Any, word: np.ndarray) -> None:
    _, fill = hip.kernel("fill")
    out, value = ctypes.c_uint64(word.ctypes.data), ctypes.c_uint32(77)
    params = (ctypes.c_void_p * 2)(ctypes.addressof(out), ctypes.addressof(value))
    hip.hipModuleLaunchKernel(fill, 1, 1, 1, 64, 1, 1, 0, None, ctypes.addressof(params), None)
    value.value = 1  # copied by the call
    hip.hipDeviceSynchronize()
    assert (word[:64] == 77).all()
    hip.launch(fill, word.ctypes.data, 78)
    hip.hipDeviceSynchronize()
    assert (word[:64] == 78).all()


def test_argument_beyond_the_buffer_reads_as_zero(hip: Any, word: np.ndarray) -> None:
    _, fill = hip.kernel("fill")
    word[:64] = 1
    payload = struct.pack("<QI4x", word.ctypes.data, 99)
    extra, *_keep = configuration(payload, size=11)
    hip.hipModuleLaunchKernel(fill, 1, 1, 1, 64, 1, 1, 0, None, None, ctypes.addressof(extra))
    hip.hipDeviceSynchronize()
    assert (word[:64] == 0).all()


def test_bytes_outside_the_metadata_do_not_reach_the_kernel(hip: Any, word: np.ndarray) -> None:
    _, fill = hip.kernel("fill", args=ARGS[:1])
    hip.launch(fill, word.ctypes.data, 99)
    hip.hipDeviceSynchronize()
    assert (word[:64] != 99).all()


class Dim3(ctypes.Structure):
    _fields_ = tuple((c, ctypes.c_uint32) for c in "xyz")


class Config(ctypes.Structure):
    _fields_ = (
        ("grid", Dim3),
        ("group", Dim3),
        ("lds", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
        ("attrs", ctypes.c_void_p),
        ("n", ctypes.c_uint),
    )


class NodeParams(ctypes.Structure):
    _fields_ = (
        ("group", Dim3),
        ("extra", ctypes.c_void_p),
        ("function", ctypes.c_void_p),
        ("grid", Dim3),
        ("params", ctypes.c_void_p),
        ("lds", ctypes.c_uint),
    )


def test_other_launch_calls(hip: Any, word: np.ndarray) -> None:
    _, fill = hip.kernel("fill")
    lib, handle = hip.lib, ctypes.c_void_p(int(fill))
    out, value = ctypes.c_uint64(word.ctypes.data), ctypes.c_uint32()
    params = (ctypes.c_void_p * 2)(ctypes.addressof(out), ctypes.addressof(value))

    class DrvConfig(ctypes.Structure):
        _fields_ = [
            ("dims", ctypes.c_uint * 7),
            ("stream", ctypes.c_void_p),
            ("attrs", ctypes.c_void_p),
            ("n", ctypes.c_uint),
        ]

    one, lanes, no_lds = Dim3(1, 1, 1), Dim3(64, 1, 1), ctypes.c_size_t(0)
    config = Config(one, lanes, 0, None, None, 0)
    drv = DrvConfig((ctypes.c_uint * 7)(1, 1, 1, 64, 1, 1, 0), None, None, 0)
    start, stop = (ctypes.c_void_p(int(hip.hipEventCreate())) for _ in range(2))
    calls = [
        lambda: lib.hipLaunchKernel(handle, one, lanes, params, no_lds, None),
        lambda: lib.hipLaunchKernel_spt(handle, one, lanes, params, no_lds, None),
        lambda: lib.hipLaunchKernelExC(ctypes.byref(config), handle, params),
        lambda: lib.hipDrvLaunchKernelEx(ctypes.byref(drv), handle, params, None),
        lambda: lib.hipExtLaunchKernel(handle, one, lanes, params, no_lds, None, start, stop, 0),
        lambda: lib.hipModuleLaunchCooperativeKernel(handle, 1, 1, 1, 64, 1, 1, 0, None, params),
    ]
    for i, call in enumerate(calls):
        value.value = 100 + i
        assert call() == 0, i
        hip.hipDeviceSynchronize()
        assert (word[:64] == 100 + i).all(), i
    ms = ctypes.c_float()
    assert lib.hipEventElapsedTime(ctypes.byref(ms), start, stop) == 0
    assert ms.value > 0


def test_cooperative_launch_of_a_function(hip: Any, word: np.ndarray) -> None:
    _, fill = hip.kernel("fill")
    out, value = ctypes.c_uint64(word.ctypes.data), ctypes.c_uint32(8)
    params = (ctypes.c_void_p * 2)(ctypes.addressof(out), ctypes.addressof(value))
    shape, function = (Dim3(1, 1, 1), Dim3(64, 1, 1)), ctypes.c_void_p(int(fill))
    assert hip.lib.hipLaunchCooperativeKernel(function, *shape, params, 0, None) == 0
    hip.hipDeviceSynchronize()
    assert (word[:64] == 8).all()


def test_occupancy_and_cooperative_limit(hip: Any) -> None:
    _, function = hip.kernel(group_segment_fixed_size=16384, max_flat_workgroup_size=1024)
    occupancy = hip.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor
    assert occupancy(function, 256, 0) == 4  # LDS: 4 x 16 KiB
    assert occupancy(function, 256, 16384) == 2
    assert occupancy(function, 1024, 0) == 2  # waves: 32 of 16 each
    assert occupancy(function, 256, 65536) == 0
    groups, lanes = hip.hipModuleOccupancyMaxPotentialBlockSize(function, 0, 0)
    assert (groups, lanes) == (2 * 304, 1024)
    params = (ctypes.c_void_p * 2)(*(ctypes.addressof(ctypes.create_string_buffer(8)),) * 2)
    launch = hip.lib.hipModuleLaunchCooperativeKernel
    handle = ctypes.c_void_p(int(function))
    assert launch(handle, 4 * 304 + 1, 1, 1, 256, 1, 1, 0, None, params) == 720
    assert hip.says("1217")
    assert launch(handle, 2 * 304 + 1, 1, 1, 1024, 1, 1, 0, None, params) == 720
    assert launch(handle, 2, 2, 1, 256, 1, 1, 0, None, params) == 0
    hip.hipDeviceSynchronize()


def test_dynamic_lds_that_is_left(hip: Any) -> None:
    _, function = hip.kernel(group_segment_fixed_size=16384, max_flat_workgroup_size=1024)
    handle = ctypes.c_void_p(int(function))
    available = ctypes.c_size_t()
    ask = hip.lib.hipOccupancyAvailableDynamicSMemPerBlock
    assert ask(ctypes.byref(available), handle, 2, 256) == 0
    assert available.value == 32768 - 16384


def test_grids_of_more_lanes_than_32_bits_count(hip: Any) -> None:
    """Along an axis, as CLR refuses them: each form of a launch, and graphs' nodes; not in all."""
    _, function = hip.kernel("nothing")
    handle, lib = ctypes.c_void_p(int(function)), hip.lib
    zero = ctypes.c_uint64(0)
    params = (ctypes.c_void_p * 2)(*[ctypes.addressof(zero)] * 2)
    start, stop = (ctypes.c_void_p(int(hip.hipEventCreate())) for _ in range(2))
    nothing = ctypes.c_size_t(0)
    value, config = hip.errors.hipErrorInvalidValue, hip.errors.hipErrorInvalidConfiguration

    def check(groups: tuple[int, int, int], lanes: tuple[int, int, int], too_long: bool) -> None:
        grid, group = Dim3(*groups), Dim3(*lanes)
        ex = Config(grid, group, 0, None, None, 0)
        forms = (
            (
                lambda: lib.hipModuleLaunchKernel(handle, *groups, *lanes, 0, None, params, None),
                value,
            ),
            (lambda: lib.hipLaunchKernel(handle, grid, group, params, nothing, None), config),
            (lambda: lib.hipLaunchKernel_spt(handle, grid, group, params, nothing, None), config),
            (
                lambda: lib.hipExtLaunchKernel(
                    handle, grid, group, params, nothing, None, start, stop, 0
                ),
                config,
            ),
            (lambda: lib.hipLaunchKernelExC(ctypes.byref(ex), handle, params), config),
        )
        for form, code in forms:
            assert form() == (code if too_long else hip.errors.hipSuccess)
            assert not too_long or hip.says("exceeds 2^32-1 lanes along an axis")

    assert hip.set_option("null", 1)
    try:
        check((2**24, 1, 1), (256, 1, 1), True)
        check((2**25 + 1, 1, 1), (128, 1, 1), True)
        check((2**24 - 1, 1, 1), (256, 1, 1), False)
        check((2**16, 2**16, 2), (4, 2, 2), False)  # 2^37 in all
        hip.hipDeviceSynchronize()
    finally:
        assert hip.set_option("null", 0)
    graph, node = ctypes.c_void_p(), ctypes.c_void_p()
    assert lib.hipGraphCreate(ctypes.byref(graph), 0) == 0
    words = NodeParams(
        *(Dim3(256, 1, 1), None, handle, Dim3(2**24, 1, 1), ctypes.addressof(params), 0)
    )
    code = lib.hipGraphAddKernelNode(ctypes.byref(node), graph, None, nothing, ctypes.byref(words))
    assert code == config and lib.hipGraphDestroy(graph) == 0
