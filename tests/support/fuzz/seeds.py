"""The images that fuzzing starts from: small code objects of every kind that the loader takes."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
from elftools.elf.elffile import ELFFile

from amdattn.compiler import DEFAULT_ARCH
from build_scripts.toolchain import LLVM22, compile_hip
from tests.support.image_builder import DATA_AT, Image, bundle, descriptor, kernel_metadata
from tests.support.paths import TESTS

# Loads, stores, LDS, MFMA, atomics, waits; compiled ones and assembly.
SOURCES = (
    *("tile/vector_add", "tile/lds_reduce", "tile/mma", "tile/buffer_range", "tile/handshake"),
    *(
        "virtual_device/check/planted/waits",
        "virtual_device/check/planted/control",
        "virtual_device/check/planted/memory",
    ),
    *(
        "virtual_device/check/planted/hazards",
        "virtual_device/check/planted/races",
        "virtual_device/check/planted/order",
    ),
)

# By architecture: what only it has.
OF_ARCH = {"gfx942": (), "gfx950": ("virtual_device/check/planted/cdna4",)}


def wide(value: Any) -> bytes:
    """MessagePack in which every integer has 32 bits, so that any other fits its place."""
    if isinstance(value, dict):
        items = b"".join(wide(k) + wide(v) for k, v in value.items())
        return struct.pack(">BH", 0xDE, len(value)) + items
    if isinstance(value, list):
        return struct.pack(">BH", 0xDC, len(value)) + b"".join(map(wide, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return struct.pack(">BI", 0xCE, value)
    return bytes(msgpack.packb(value))


def built_image(flags: int) -> bytes:
    """An image with a variable, relocations and two kernels, none of which a compiler made."""
    kernels = [kernel_metadata(), kernel_metadata(name="k2")]
    note = wide({"amdhsa.version": [1, 1], "amdhsa.kernels": kernels})
    image = Image(note=note, flags=flags)
    index = image.symbol("variable", DATA_AT, 16)
    kinds = (3, 13, 5, 4)
    image.relocations = [(DATA_AT + 8 * i, kind, index, 4) for i, kind in enumerate(kinds)]
    return bytes(image.build())


def compiled(arch: str = DEFAULT_ARCH) -> Iterator[tuple[str, bytes]]:
    """Names and images of compiled kernels."""
    for source in (*SOURCES, *OF_ARCH[arch]):
        code = compile_hip(TESTS / f"{source}.hip", LLVM22, arch).code_object
        yield source.rpartition("/")[2], code


def rebuilt(image: bytes) -> bytes:
    """The first kernel of a compiled image, built anew with wide() metadata."""
    elf = ELFFile(io.BytesIO(image))
    notes = elf.get_section_by_name(".note").data()
    name_bytes, size, _ = struct.unpack_from("<III", notes)
    first = 12 + -(-name_bytes // 4) * 4
    (kernel, *_) = msgpack.unpackb(notes[first : first + size])["amdhsa.kernels"]
    symbols = {s.name: s for s in elf.get_section_by_name(".dynsym").iter_symbols()}
    text = elf.get_section_by_name(".text")
    code = text.data()[symbols[kernel[".name"]]["st_value"] - text["sh_addr"] :]
    rodata = elf.get_section_by_name(".rodata")
    at = symbols[kernel[".symbol"]]["st_value"] - rodata["sh_addr"]
    words = bytearray(rodata.data()[at : at + 64])
    words[16:24] = descriptor()[16:24]  # the entry point
    kernel |= {".name": "k", ".symbol": "k.kd"}
    note = wide({"amdhsa.version": [1, 1], "amdhsa.kernels": [kernel]})
    flags = elf["e_flags"]
    return bytes(Image(note=note, descriptor=bytes(words), text=code, flags=flags).build())


def seeds(arch: str) -> Iterator[tuple[str, bytes]]:
    """Names and images, of every kind."""
    images = dict(compiled(arch))
    (flags,) = {ELFFile(io.BytesIO(code))["e_flags"] for code in images.values()}
    image = built_image(flags)
    yield "built", image
    names = ("host-x86_64-unknown-linux-gnu-", f"hipv4-amdgcn-amd-amdhsa--{arch}")
    yield "bundle", bytes(bundle([(name, image) for name in names]))
    for name, code in images.items():
        yield name, code
        yield f"{name}-rebuilt", rebuilt(code)


def write(folder: Path, arch: str) -> None:
    """Fill a folder with the seeds."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, image in seeds(arch):
        (folder / name).write_bytes(image)
