"""Figures of products as AMD's data sheets have them, typed in here a second time."""

from __future__ import annotations

import dataclasses

import pytest

import amdattn
from amdattn.arch import products as chips
from amdattn.arch.props import KNOWN_DEVICES, KNOWN_PARTITIONS
from amdattn.device.manifest import KernelSpec

# GB (2^30), TB/s, CUs, XCDs, PCI ids. Sources: docs/real-gpu.md.
SHEETS = {
    "MI300X": (192, 5.3, 304, 8, {0x74A1, 0x74A9, 0x74B5, 0x74BD}),
    "MI325X": (256, 6.0, 304, 8, {0x74A5, 0x74B9}),
    "MI300A": (128, 5.3, 228, 6, {0x74A0}),
    "MI308X": (192, 5.3, 80, 4, {0x74A2, 0x74A8, 0x74B6, 0x74BC}),
    "MI355X": (288, 8.0, 256, 8, {0x75A3, 0x75B3}),
    "MI350X": (288, 8.0, 256, 8, {0x75A0, 0x75B0}),
}
# KiB of LDS, the share of the rate of HBM that reads sustain (measured: 4.2 TB/s of an MI300X, 6.25
# of an MI355X), and sustained TB/s of the last level cache.
CDNA3 = ("gfx942", 64, 4.2 / 5.3, 6.0)
CDNA4 = ("gfx950", 160, 6.25 / 8, 6.565)
ARCHITECTURES = {name: CDNA4 if name.startswith("MI35") else CDNA3 for name in SHEETS}


@pytest.mark.parametrize("name", SHEETS)
def test_chips(name: str) -> None:
    memory, rate, cus, xcds, ids = SHEETS[name]
    arch, lds, sustained, mall = ARCHITECTURES[name]
    chip = chips.by_name(f"AMD Instinct {name}")
    assert chip is not None and (chip.name, chip.arch) == (name, arch)
    assert (chip.num_cus, chip.num_xcds, set(chip.ids)) == (cus, xcds, ids)
    assert chip.memory_bytes == memory * 1024**3
    assert chip.peak_hbm_bytes_per_ns == rate * 1000
    assert all(chips.by_id(i) is chip for i in ids)
    whole = KNOWN_DEVICES[name]
    assert whole.hbm_bytes_per_ns == pytest.approx(rate * 1000 * sustained)
    assert whole.mall_bytes_per_ns == pytest.approx(mall * 1000)
    assert (whole.name, whole.target, whole.chip) == (f"AMD Instinct {name}", arch, name)
    assert whole.lds_bytes == lds * 1024


def test_every_chip_has_a_sheet() -> None:
    assert [chip.name for chip in chips.CHIPS] == list(SHEETS) == list(KNOWN_DEVICES)


@pytest.mark.parametrize("name", KNOWN_PARTITIONS)
def test_partitions_share_the_memory(name: str) -> None:
    part, chip = KNOWN_PARTITIONS[name], name.partition(":")[0]
    memory, _, cus, xcds, _ = SHEETS[chip]
    share = {"DPX": 2, "TPX": 3, "QPX": 4, "CPX": xcds}[name.partition(":")[2]]
    assert part.memory_bytes == memory * 1024**3 // share
    assert (part.num_cus, part.num_xcds) == (cus // share, xcds // share)


def test_kernels_are_equal_by_symbol_and_contents() -> None:
    row = amdattn.kernels()[0]
    for field in dataclasses.fields(KernelSpec):
        other = dataclasses.replace(row, **{field.name: object()})
        same = field.name not in ("symbol", "sha256")
        assert (other == row) is same, field.name
        assert (hash(other) == hash(row)) is same, field.name
    assert repr(row) == f"<KernelSpec {row.name} gfx942 sha256 {row.sha256[:16]}>"
