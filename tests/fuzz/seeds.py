"""The images that fuzzing starts from: small code objects of every kind that the loader takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgpack
from image_builder import DATA_AT, Image, bundle, kernel_metadata

from build_scripts.toolchain import LLVM22, compile_hip

TESTS = Path(__file__).resolve().parents[1]
# Loads, stores, LDS, MFMA, atomics, waits; compiled ones and assembly.
SOURCES = (
    *("tile/vector_add", "tile/lds_reduce", "tile/mma", "tile/buffer_range", "tile/handshake"),
    *("check/planted/waits", "check/planted/control", "check/planted/memory"),
    *("check/planted/hazards", "check/planted/races", "check/planted/order"),
)


def built_image() -> bytes:
    """An image with a variable, relocations and two kernels, none of which a compiler made."""
    kernels = [kernel_metadata(), kernel_metadata(name="k2")]
    image = Image(note=msgpack.packb({"amdhsa.version": [1, 1], "amdhsa.kernels": kernels}))
    index = image.symbol("variable", DATA_AT, 16)
    kinds = (3, 13, 5, 4)
    image.relocations = [(DATA_AT + 8 * i, kind, index, 4) for i, kind in enumerate(kinds)]
    return bytes(image.build())


def compiled() -> Iterator[tuple[str, bytes]]:
    """Names and images of compiled kernels."""
    for source in SOURCES:
        code = compile_hip(TESTS / f"{source}.hip", LLVM22).code_object
        yield source.rpartition("/")[2], code


def seeds() -> Iterator[tuple[str, bytes]]:
    """Names and images, of every kind."""
    image = built_image()
    yield "built", image
    names = ("host-x86_64-unknown-linux-gnu-", "hipv4-amdgcn-amd-amdhsa--gfx942")
    yield "bundle", bytes(bundle([(name, image) for name in names]))
    yield from compiled()


def write(folder: Path) -> None:
    """Fill a folder with the seeds."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, image in seeds():
        (folder / name).write_bytes(image)
