"""Feeds mutated code objects to the virtual device; run in a process of its own, which may crash.

usage: drive.py LIBRARY FOLDER SEED COUNT CHECKED PRODUCT

Every image is written to FOLDER/current before it is loaded, so that a crash leaves its cause.
Prints one JSON object: how many images were refused, launched, completed.
"""

from __future__ import annotations

import ctypes
import io
import json
import random
import sys
from ctypes import byref, c_char_p, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

Range = tuple[int, int]  # file offset, bytes
MASK = (1 << 64) - 1
ODD = (0, 1, 3, 255, 4095, 4096, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 47, 1 << 63, MASK)
# s_getpc_b64 s[40:41]; v_mov_b32 v1, 0; global_store_dwordx4 v1, v[0:3], s[40:41]
STORE_INTO_TEXT = (0xBEA81C00, 0x7E020280, 0xDC7C8000, 0x00280001)


def parts(image: bytes) -> dict[str, Range]:
    """The parts of a code object that mutations aim at."""
    elf = ELFFile(io.BytesIO(image))
    found = {
        "elf header": (16, 48),
        "program headers": (elf["e_phoff"], elf["e_phnum"] * 56),
        "section headers": (elf["e_shoff"], elf["e_shnum"] * 64),
    }
    for section in elf.iter_sections():
        name = {"SHT_DYNSYM": "symbols", "SHT_NOTE": "metadata", "SHT_RELA": "relocations"}.get(
            section["sh_type"]
        )
        if name and section["sh_size"]:
            found[name] = (section["sh_offset"], section["sh_size"])
    for segment in elf.iter_segments():
        if segment["p_type"] == "PT_LOAD" and segment["p_flags"] & 1:
            found["text"] = (segment["p_offset"], segment["p_filesz"])
    table = elf.get_section_by_name(".rodata")
    if table is not None:
        found["descriptors"] = (table["sh_offset"], table["sh_size"])
    return found


def mutate(image: bytes, where: dict[str, Range], rng: random.Random) -> bytes:
    """One to three changes, each in one part of the image."""
    out = bytearray(image)
    for _ in range(rng.randint(1, 3)):
        kind = rng.choice([*where, "text", "text", "truncation"])
        if kind == "truncation":
            if rng.random() < 0.3:
                del out[rng.randrange(len(out) + 1) :]
            continue
        first, size = where[kind]
        width = rng.choice((4, 8)) if kind != "metadata" else rng.choice((1, 1, 4))
        at = first + rng.randrange(max(1, size // width)) * width
        if at + 16 > len(out):
            continue
        if kind == "text" and rng.random() < 0.15:
            for i, word in enumerate(STORE_INTO_TEXT):
                out[at + 4 * i : at + 4 * i + 4] = word.to_bytes(4, "little")
            continue
        old = int.from_bytes(out[at : at + width], "little")
        new = rng.choice((rng.choice(ODD), rng.getrandbits(64), old ^ 1 << rng.randrange(32)))
        out[at : at + width] = (new & MASK >> 64 - 8 * width).to_bytes(width, "little")
    return bytes(out)


class Device:
    """The calls that a program makes of somebody else's code object."""

    def __init__(self, library: str, checked: bool) -> None:
        self.hip: Any = ctypes.CDLL(library)
        self.hip.amdattn_vdev_take_findings.restype = c_char_p
        self.option("threads", 1)
        self.option("max_instructions", 20_000)
        self.option("max_total_instructions", 200_000)
        self.option("check", int(checked))
        self.checked = checked
        buffer = c_void_p()
        assert self.hip.hipMalloc(byref(buffer), c_size_t(1 << 16)) == 0
        self.hip.hipMemset(buffer, 0, c_size_t(1 << 16))
        self.arguments = (c_uint64 * 512)(*[buffer.value or 0] * 512)
        self.counts = {"refused": 0, "launched": 0, "completed": 0, "reported": 0}

    def option(self, key: str, value: int) -> None:
        assert self.hip.amdattn_vdev_set_option(key.encode(), str(value).encode()) == 1, key

    def try_image(self, image: bytes, kernels: list[str]) -> None:
        module, function = c_void_p(), c_void_p()
        if self.hip.hipModuleLoadData(byref(module), image) != 0:
            self.counts["refused"] += 1
            return
        for name in kernels:
            if self.hip.hipModuleGetFunction(byref(function), module, name.encode()) == 0:
                self.launch(function)
        assert self.hip.hipModuleUnload(module) == 0
        self.collect()

    def collect(self) -> None:
        """Read the findings of checked mode."""
        if self.checked:
            found = json.loads(self.hip.amdattn_vdev_take_findings())
            self.counts["reported"] += any(launch["findings"] for launch in found["launches"])

    def launch(self, function: c_void_p) -> None:
        size = c_size_t(ctypes.sizeof(self.arguments))
        extra = (c_void_p * 5)(1, ctypes.addressof(self.arguments), 2, ctypes.addressof(size), 3)
        shape = [c_uint(n) for n in (2, 1, 1, 64, 1, 1, 0)]
        queued = self.hip.hipModuleLaunchKernel(function, *shape, None, None, extra)
        finished = self.hip.hipDeviceSynchronize()
        self.counts["launched"] += 1
        self.counts["completed"] += queued == 0 and finished == 0


def kernel_names(image: bytes) -> list[str]:
    table = ELFFile(io.BytesIO(image)).get_section_by_name(".dynsym")
    return [s.name[:-3] for s in table.iter_symbols() if s.name.endswith(".kd")]


def main() -> None:
    library, folder = sys.argv[1], Path(sys.argv[2])
    seed, count, checked = (int(a) for a in sys.argv[3:6])
    product = sys.argv[6].encode()
    assert ctypes.CDLL(library).amdattn_vdev_play(product) == 1, product
    device = Device(library, bool(checked))
    images = [p.read_bytes() for p in sorted((folder / "seeds").iterdir())]
    subjects = [(image, parts(image), kernel_names(image)) for image in images]
    rng = random.Random(seed)

    for _ in range(count):
        image, where, names = rng.choice(subjects)
        mutant = mutate(image, where, rng)
        (folder / "current").write_bytes(mutant)
        device.try_image(mutant, rng.sample(names, min(2, len(names))))
    print(json.dumps(device.counts))


if __name__ == "__main__":
    main()
