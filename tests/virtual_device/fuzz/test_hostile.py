"""Hostile code objects that once did harm, built field by field."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_uint64, c_void_p
from typing import Any

import msgpack
import pytest

from amdattn.device.virtual_library import library_path
from tests.support.fuzz.drive import Device
from tests.support.image_builder import TEXT_AT, Image, descriptor, kernel_metadata

S_ENDPGM, S_NOP, S_BRANCH = 0xBF810000, 0xBF800000, 0xBF820000
NOTE = msgpack.packb({"amdhsa.version": [1, 1], "amdhsa.kernels": [kernel_metadata()]})


def code(*words: int) -> bytes:
    """A text of 1024 bytes that begins with these dwords."""
    words = (*words, *[S_ENDPGM] * (256 - len(words)))
    return b"".join(word.to_bytes(4, "little") for word in words)


@pytest.fixture(params=[False, True], ids=["fast", "checked"])
def device(request: Any) -> Iterator[Device]:
    found = Device(str(library_path()), request.param)
    found.hip.amdattn_vdev_last_report.restype = c_char_p
    found.hip.amdattn_vdev_listing.restype = c_char_p
    yield found
    for key, value in (("check", 0), ("threads", 0), ("max_instructions", 1 << 30)):
        found.option(key, value)
    found.option("max_total_instructions", 0)


def launch(device: Device, image: Image) -> str:
    """Load, launch, wait; the last report."""
    device.try_image(image.build(), ["k"])
    return str(device.hip.amdattn_vdev_last_report().decode())


@pytest.mark.parametrize("fields", [{"preload": 127}, {"rsrc2": 31 << 1}, {"preload": 15 | 1 << 7}])
def test_more_user_sgprs_than_there_are(device: Device, fields: dict[str, int]) -> None:
    # Kernels with preloaded arguments start 256 bytes later.
    properties = 0x7F
    image = Image(
        note=NOTE, text=code(), descriptor=descriptor(properties=properties, rsrc1=1, **fields)
    )
    assert "user SGPRs, there are 16" in launch(device, image)
    assert device.counts["completed"] == 0


def test_an_endless_loop_that_keeps_changing_memory(device: Device) -> None:
    # s_load_dwordx2 s[4:5], s[0:1], 0; s_waitcnt lgkmcnt(0); v_mov_b32 v1, 0;
    # loop: v_add_u32 v2, 1, v2; global_store_dword v1, v2, s[4:5]; s_branch loop
    loop = (0xC0060100, 0, 0xBF8CC07F, 0x7E020280, 0x68040481, 0xDC708000, 0x00040201)
    text = code(*loop, S_BRANCH | (-4 & 0xFFFF))
    kernel = descriptor(properties=8, rsrc2=2 << 1, rsrc1=1)
    report = launch(device, Image(note=NOTE, text=text, descriptor=kernel))
    assert "max_total_instructions = 200000" in report


def test_functions_far_outside_the_code(device: Device) -> None:
    image = Image(note=NOTE, text=code(S_NOP))
    image.symbol("far", TEXT_AT + (1 << 60), kind=2)
    image.symbol("before", 0, kind=2)
    launch(device, image)
    for identity in range(8):
        listing = device.hip.amdattn_vdev_listing(c_uint64(identity), b"k")
        assert listing is None or len(listing.splitlines()) <= 256


@pytest.mark.parametrize("at", [32, 40])  # e_phoff, e_shoff
def test_an_image_that_claims_gigabytes(device: Device, at: int) -> None:
    image = bytearray(Image(note=NOTE, text=code()).build())
    image[at : at + 8] = ((4 << 30) - 4096).to_bytes(8, "little")
    module = c_void_p()
    buffer = ctypes.create_string_buffer(bytes(image), len(image))
    assert device.hip.hipModuleLoadData(byref(module), buffer) == 200  # hipErrorInvalidImage


def test_names_that_are_no_text(device: Device) -> None:
    kernel = kernel_metadata(name='\x01"\\é')
    note = msgpack.packb({"amdhsa.version": [1, 1], "amdhsa.kernels": [kernel]})
    raw = note.replace("é".encode(), b"\xff\xfe")
    device.try_image(Image(note=raw, text=code()).build(), [])
    module, function = c_void_p(), c_void_p()
    image = Image(note=raw, text=code()).build()
    assert device.hip.hipModuleLoadData(byref(module), image) == 0
    assert device.hip.hipModuleGetFunction(byref(function), module, b'\x01"\\\xff\xfe') == 0
    device.launch(function)
    device.collect()
