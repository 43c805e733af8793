"""What a code object claims: sizes are capped, and registers end where its allocation ends."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_int, c_void_p
from typing import Any

import msgpack
import pytest

from amdattn.device.virtual_library import library_path
from tests.support.fuzz.drive import Device
from tests.support.image_builder import Image, descriptor, kernel_metadata
from tests.virtual_device.fuzz.test_hostile import S_ENDPGM, code, launch

INVALID_IMAGE, TOO_LARGE = 200, 720
MAX_SCRATCH, MAX_KERNARG = 131056, 65536


@pytest.fixture(params=[False, True], ids=["fast", "checked"])
def device(request: Any) -> Iterator[Device]:
    found = Device(str(library_path()), request.param)
    found.hip.amdattn_vdev_last_report.restype = c_char_p
    yield found
    for key, value in (("check", 0), ("threads", 0), ("max_instructions", 1 << 30)):
        found.option(key, value)
    found.option("max_total_instructions", 0)


def image_of(text: bytes = code(), words: dict[str, int] | None = None, **metadata: Any) -> Image:
    note = {"amdhsa.version": [1, 1], "amdhsa.kernels": [kernel_metadata(**metadata)]}
    return Image(note=msgpack.packb(note), text=text, descriptor=descriptor(**(words or {})))


def load(device: Device, image: Image) -> tuple[int, str]:
    module = c_void_p()
    error = device.hip.hipModuleLoadData(byref(module), image.build())
    return error, device.hip.amdattn_vdev_last_report().decode()


# Every lane writes its number behind a scratch of so many bytes, reads it back and compares:
# v_mbcnt v1; scratch_store_byte off, v1; s_waitcnt; scratch_load_ubyte v2, off; s_waitcnt;
# v_cmp_ne_u32 vcc, v1, v2; s_cbranch_vccz +1; an illegal instruction.
MBCNT = (0xD28C0001, 0x000100C1, 0xD28D0001, 0x000202C1)
STORE_BYTE, LOAD_BYTE, WAIT = (0xDC604000, 0x007F0100), (0xDC404000, 0x027F0000), 0xBF8C0000
CHECK = (0x7D9A0501, 0xBF860001, 0xFFFFFFFF, S_ENDPGM)


def scratch_program(offset: int) -> bytes:
    store, load = (STORE_BYTE[0] | offset, STORE_BYTE[1]), (LOAD_BYTE[0] | offset, LOAD_BYTE[1])
    return code(*MBCNT, *store, WAIT, *load, WAIT, *CHECK)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64, 4093])
def test_scratch_of_any_size_is_there(device: Device, size: int) -> None:
    for offset, fits in ((size - 1, True), (size, False)):
        image = image_of(
            scratch_program(offset), {"scratch": size}, private_segment_fixed_size=size
        )
        before = device.counts["completed"]
        report = launch(device, image)
        assert device.counts["completed"] == before + fits, report
        assert fits or f"beyond the {size} bytes per lane" in report


@pytest.mark.parametrize("size", [MAX_SCRATCH + 1, 8 << 20, 1 << 28, 2**32 - 1])
def test_scratch_is_capped(device: Device, size: int) -> None:
    image = image_of(words={"scratch": size}, private_segment_fixed_size=size)
    assert f"{size} bytes of scratch per lane, at most {MAX_SCRATCH}" in launch(device, image)
    assert device.counts["completed"] == 0


def test_the_largest_scratch(device: Device) -> None:
    """So many workgroups of it are resident at a time as 4 GiB have room for."""
    size = MAX_SCRATCH
    sizes = {"private_segment_fixed_size": size, "max_flat_workgroup_size": 1024}
    image = image_of(words={"scratch": size}, **sizes)
    launch(device, image)
    assert device.counts["completed"] == 1
    module, function = c_void_p(), c_void_p()
    assert device.hip.hipModuleLoadData(byref(module), image.build()) == 0
    assert device.hip.hipModuleGetFunction(byref(function), module, b"k") == 0
    grid = (33, 1, 1, 1024, 1, 1, 0)
    arguments = (c_void_p * 1)(ctypes.addressof(device.arguments))
    together = device.hip.hipModuleLaunchCooperativeKernel(function, *grid, None, arguments)
    assert together == TOO_LARGE
    assert b"33 workgroups, 32 fit" in device.hip.amdattn_vdev_last_report()


@pytest.mark.parametrize("size", [MAX_KERNARG + 1, 1 << 28, 2**32 - 1])
def test_kernel_arguments_are_capped(device: Device, size: int) -> None:
    for of_descriptor in (0, size):
        image = image_of(words={"kernarg": of_descriptor}, kernarg_segment_size=size)
        report = launch(device, image)
        assert f"{size} bytes of kernel arguments, at most {MAX_KERNARG}" in report
    assert device.counts["completed"] == 0


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("lds", "group_segment_fixed_size"),
        ("scratch", "private_segment_fixed_size"),
        ("kernarg", "kernarg_segment_size"),
    ],
)
def test_metadata_and_descriptor_agree(device: Device, word: str, key: str) -> None:
    error, report = load(device, image_of(words={word: 48}, **{key: 64}))
    assert error == INVALID_IMAGE
    assert f".{key} is 64 in the metadata and 48 in the kernel descriptor" in report


def test_lds_beyond_the_device(device: Device) -> None:
    for size in (65537, 2**32 - 1):
        image = image_of(words={"lds": size}, group_segment_fixed_size=size)
        assert "bytes of LDS exceed 65536" in launch(device, image)
        # What a kernel says of itself is no negative number either.
        module, function, value = c_void_p(), c_void_p(), c_int(0)
        assert device.hip.hipModuleLoadData(byref(module), image.build()) == 0
        assert device.hip.hipModuleGetFunction(byref(function), module, b"k") == 0
        for attribute in range(10):
            assert device.hip.hipFuncGetAttribute(byref(value), attribute, function) == 0
            assert value.value >= 0
    assert device.counts["completed"] == 0


@pytest.mark.parametrize(
    ("words", "metadata", "why"),
    [
        ({}, {"wavefront_size": 32}, "waves of 32 lanes"),
        ({"properties": 1 << 10}, {}, "waves of 32 lanes"),
        ({"rsrc3": 1 << 16}, {}, "split over several CUs"),
        ({"rsrc2": 1 << 24}, {}, "floating point exceptions"),
    ],
)
def test_what_the_hardware_lacks(
    device: Device, words: dict[str, int], metadata: dict[str, int], why: str
) -> None:
    assert why in launch(device, image_of(words=words, **metadata))
    assert device.counts["completed"] == 0


@pytest.mark.parametrize("args", [[{}] * 3, [{".offset": 0, ".size": 8}], [{".size": 8}]])
def test_arguments_that_say_nothing(device: Device, args: list[dict[str, int]]) -> None:
    error, report = load(device, image_of(args=args))
    assert error == INVALID_IMAGE and "an argument lacks .offset, .size or .value_kind" in report


def test_tables_that_repeat_one_another(device: Device) -> None:
    """Ten thousand headers of one part would cost ten thousand times its size."""
    built = image_of().build()
    program_headers, section_headers = (
        int.from_bytes(built[i : i + 8], "little") for i in (32, 40)
    )
    segment = built[program_headers : program_headers + 56]
    symbol_table = built[section_headers + 64 : section_headers + 128]
    for at, count_at, headers, why in (
        (32, 56, segment * 10_000, b"10000 program headers"),
        (40, 60, bytes(64) + symbol_table * 10_000, b"the sections overlap"),
    ):
        image = bytearray(built + headers)
        image[at : at + 8] = len(built).to_bytes(8, "little")
        image[count_at : count_at + 2] = (10_000).to_bytes(2, "little")
        module, buffer = c_void_p(), ctypes.create_string_buffer(bytes(image), len(image))
        assert device.hip.hipModuleLoadData(byref(module), buffer) == INVALID_IMAGE
        assert why in device.hip.amdattn_vdev_last_report()


# -- registers -------------------------------------------------------------------------------------

SRC0, SRC1, SRC2, DST = 1, 2, 4, 8
S_MOV_M0 = 0xBEFC0080  # s_mov_b32 m0, 0 and up


def indexed(index: int, mode: int, *instruction: int) -> bytes:
    """s_movk_i32 s2, INDEX; s_set_gpr_idx_on s2, MODE; the instruction; s_set_gpr_idx_off."""
    return code(0xB0020000 | index, 0xBF110002 | mode << 8, *instruction, 0xBF9C0000)


V_MOV, V_ADD3 = (0x7E000300,), (0xD1FF0000, 0x04000100 | 0x100 << 9 | 0x100 << 18)
V_PK_MOV = (0xD3B34000, 0x18020100)  # v_pk_mov_b32 v[0:1], v[0:1], v[0:1]


@pytest.mark.parametrize("mode", [SRC0, SRC1, SRC2, DST])
@pytest.mark.parametrize("granules", [0, 2, 30])
def test_indexed_vector_registers(device: Device, mode: int, granules: int) -> None:
    total = 8 * (granules + 1)  # half of them, at most 256, are VGPRs: AGPRs follow
    words = {"rsrc1": granules, "rsrc3": granules}
    for index, fits in ((total - 1, True), (total, False), (255, total > 255)):
        before = device.counts["completed"]
        report = launch(device, image_of(indexed(index, mode, *V_ADD3), words))
        assert device.counts["completed"] == before + fits, report
        assert fits or f"to v{index}, beyond the {total} registers that the wave has" in report
        assert fits or ("kernel k, pc 0x" in report and "v_add3_u32" in report)


def test_the_last_register_of_an_indexed_tuple(device: Device) -> None:
    report = launch(device, image_of(indexed(6, DST, *V_PK_MOV)))
    assert device.counts["completed"] == 1, report
    assert "to v8, beyond the 8" in launch(device, image_of(indexed(7, DST, *V_PK_MOV)))


def test_indexed_accumulation_registers(device: Device) -> None:
    """v_accvgpr_read_b32 v0, a0: no manual says what an index does to a0."""
    read = (0xD3D84000, 0x18000100)
    assert "selects an AGPR operand" in launch(device, image_of(indexed(0, SRC0, *read)))
    launch(device, image_of(indexed(3, DST, *read)))
    assert device.counts["completed"] == 1


@pytest.mark.parametrize("field", [0, 1, 4, 12])
def test_scalar_registers(device: Device, field: int) -> None:
    """Named, and moved by M0: s_movrels_b32 s0, s0; s_movreld_b32 s0, s1; the 64-bit forms."""
    count = min(102, 16 * (field // 2 + 1))
    words = {"rsrc1": field << 6}
    m0 = [0xB07C0000 | n for n in (count - 2, count - 1, count)]  # s_movk_i32 m0, N
    wide = 0x100
    programs = [
        (0xBE800080 | (count - 1) << 16,),
        (m0[1], 0xBE802A00),
        (m0[1], 0xBE802C01),
        (m0[0], 0xBE802A00 + wide),
        (m0[0], 0xBE802C02 + wide),
    ]
    for program in programs:
        before = device.counts["completed"]
        report = launch(device, image_of(code(*program), words))
        assert device.counts["completed"] == before + 1, (hex(program[-1]), report)
    beyond = [(m0[2], 0xBE802A00), (m0[2], 0xBE802C01)]
    beyond += [(m0[1], 0xBE802A00 + wide), (m0[1], 0xBE802C02 + wide), (0xB07CFFFF, 0xBE802A00)]
    for program in beyond:
        report = launch(device, image_of(code(*program), words))
        assert f"beyond the {count} that the wave has" in report
    if count < 102:
        report = launch(device, image_of(code(0xBE800080 | count << 16), words))
        assert "names a scalar register beyond the kernel descriptor's allocation" in report
    assert device.counts["completed"] == len(programs)


# A load through v40, and one through a buffer resource that is none (its type field is not 0).
LOAD_FROM_V40 = (0xDC508000, 0x01000028)
LOAD_FROM_NO_BUFFER = (0xB0040000, 0xB0050000, 0xB0060010, 0xB007C000, 0xE0500000, 0x80010100)


@pytest.mark.parametrize("timing", [0, 1], ids=["", "timed"])
@pytest.mark.parametrize(
    ("program", "why"),
    [
        (LOAD_FROM_V40, "names a vector register beyond the kernel descriptor's allocation"),
        (LOAD_FROM_NO_BUFFER, "the resource is not a buffer"),
    ],
    ids=["register", "resource"],
)
def test_who_watches_looks_at_nothing_that_is_not_there(
    device: Device, program: tuple[int, ...], why: str, timing: int
) -> None:
    if timing:
        device.option("check", 0)
        device.checked = False
    device.option("timing", timing)
    try:
        assert why in launch(device, image_of(code(*program)))
    finally:
        device.option("timing", 0)
    assert device.counts["completed"] == 0
