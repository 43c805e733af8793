"""AMDATTN_KERNARG_PRELOAD=0: kernels load what others have in SGPRs, and compute the same bits."""

from __future__ import annotations

import os
import struct
import subprocess
import sys

import pytest

import amdattn
from amdattn.device import elf, kernarg_preload
from amdattn.errors import BindingError
from amdattn.ops.registry import operations

PRELOADING = [
    row
    for row in amdattn.kernels()
    if kernarg_preload.length(row.read_code_object(), row.symbol) > 0
]
PROLOGUE_BYTES = 256
USES_SEGMENT_POINTER = 1 << 3  # of kernel_code_properties

# Cases of some kernels, with preloaded arguments and without; what differs.
COMPARE = """
import sys
from amdattn.report import preload
rows = preload.preloading()
ran = set()
for one in preload.cases(rows[::int(sys.argv[1])]):
    ran.add(one[2].name)
    if wrong := preload.compare(one):
        print(one[2].name, one[1].title, wrong)
assert ran == {row.name for row in rows[::int(sys.argv[1])]}
print("compared", len(ran))
"""
STATE = """
import amdattn
from amdattn.device import kernarg_preload, runtime
device = runtime.get()
row = next(row for row in amdattn.kernels() if row.op == "gemm_nt" and row.arch == "gfx942")
device.function(row)
(loaded,) = device._kernels.values()
print(device.kernarg_preload, kernarg_preload.length(loaded.kept[0], row.symbol))
"""


def run(code: str, *arguments: str, device: str = "gfx942", value: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={
            **os.environ,
            "AMDATTN_DEVICE": f"virtual:{device}",
            kernarg_preload.VARIABLE: value,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.fast
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_every_such_kernel_can_do_without(arch: str) -> None:
    """The segment's address is in SGPRs, and the first 256 bytes of code load and branch."""
    rows = [row for row in PRELOADING if row.arch == arch]
    assert len(rows) > 100
    for row in rows:
        image = row.read_code_object()
        descriptor = elf.place_of(image, f"{row.symbol}.kd").offset
        (properties,) = struct.unpack_from("<H", image, descriptor + 56)
        assert properties & USES_SEGMENT_POINTER, row
        begin = elf.place_of(image, row.symbol).offset
        words = struct.unpack_from(f"<{PROLOGUE_BYTES // 4}I", image, begin)
        branches = [i for i, word in enumerate(words) if word >> 16 == 0xBF82]  # s_branch
        assert branches, row
        assert 4 * (branches[0] + 1 + (words[branches[0]] & 0xFFFF)) == PROLOGUE_BYTES, row
        loads = [word for word in words[: branches[0]] if word >> 26 == 0b110000]  # SMEM
        assert loads and 0xBF8CC07F in words[: branches[0]], row  # s_waitcnt lgkmcnt(0)


@pytest.mark.fast
def test_only_the_length_is_changed() -> None:
    for row in PRELOADING[::20]:
        image = row.read_code_object()
        changed = kernarg_preload.without(image, row.symbol)
        differing = [i for i, (a, b) in enumerate(zip(image, changed, strict=True)) if a != b]
        assert differing == [elf.place_of(image, f"{row.symbol}.kd").offset + 58]
        assert kernarg_preload.length(changed, row.symbol) == 0
        assert kernarg_preload.without(changed, row.symbol) == changed


@pytest.mark.fast
def test_what_is_no_code_object() -> None:
    image = PRELOADING[0].read_code_object()
    for wrong, text in (
        (b"", "is no ELF file"),
        (b"\x7fELF\x01\x01" + image[6:], "is no ELF file of 64 bits"),
        (image[:70], "ends too early"),
        (image, "has no symbol other"),
    ):
        with pytest.raises(ValueError, match=text):
            kernarg_preload.length(wrong, "other")


@pytest.mark.fast
@pytest.mark.parametrize("value", ["off", "2", "00", " 0"])
def test_other_values_are_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(kernarg_preload.VARIABLE, value)
    with pytest.raises(BindingError, match=f"AMDATTN_KERNARG_PRELOAD='{value}' must be 1.* or 0"):
        kernarg_preload.wanted()


def test_what_is_loaded_follows_the_variable() -> None:
    assert run(STATE, value="0") == "False 0\n"
    assert run(STATE, value="1") == run(STATE) == "True 14\n"


# Those that operations choose among; others run beside them.
CHOSEN = [row for row in PRELOADING if row.op in {one.kernel_ops[0] for one in operations()}]


@pytest.mark.parametrize("device", ["gfx942", "gfx950"])
def test_some_kernels_compute_the_same_bits(device: str) -> None:
    some = [row for row in CHOSEN if row.arch == device][::12]
    assert run(COMPARE, "12", device=device) == f"compared {len(some)}\n"


@pytest.mark.slow
@pytest.mark.parametrize("device", ["gfx942", "gfx950"])
def test_all_kernels_compute_the_same_bits(device: str) -> None:
    count = sum(row.arch == device for row in CHOSEN)
    assert run(COMPARE, "1", device=device) == f"compared {count}\n"
