"""The registers that an instruction is said to read and write, against what it does.

For random encodings of every row: registers that are not written keep their bits, and registers
that are not read may hold anything without changing what is written. Of gfx950, rows that gfx942
has too are left to the slow tier.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.isa.disassembler import Disassembler, Row
from tests.support.isa.machine import EXEC, M0, Machine, MachineFault
from tests.support.isa.random_words import WordGenerator

ENCODINGS = 6
# Rows whose effect is not on registers, or which leave the straight line.
SKIPPED = (
    "s_barrier", "s_cbranch", "s_branch", "s_call", "s_endpgm", "s_setpc", "s_swappc", "s_rfe",
    "s_setvskip", "s_set_gpr_idx", "s_setreg", "s_getpc", "s_memtime", "s_memrealtime",
    "s_movrel", "s_cmovrel", "s_getreg",
)  # fmt: skip
MEMORY = ("SMEM", "DS", "FLAT", "SCRATCH", "GLOBAL", "MUBUF", "MTBUF")
# Lane exchanges work without memory.
CROSS_LANE = ("ds_permute_b32", "ds_bpermute_b32", "ds_swizzle_b32")


def state(machine: Machine) -> npt.NDArray[np.uint32]:
    """Every register, as (640 + 1, 64): vector, then scalar ones, then SCC."""
    scalar = np.broadcast_to(machine.s[:, None], (128, 64))
    scc = np.full((1, 64), machine.scc, np.uint32)
    return np.concatenate([machine.v, scalar, scc])


def rows_of(uses: frozenset[tuple[str, int]]) -> list[int]:
    return [index if file == "v" else 512 + index for file, index in uses]


def check_rows(disassembler: Disassembler, rows: Iterable[Row], seed: int) -> int:
    """How many encodings were tried."""
    generator = WordGenerator(seed)
    rng = np.random.default_rng(seed)
    tried = 0
    for row in rows:
        if row.name.startswith(SKIPPED):
            continue
        if row.format in MEMORY and row.name not in CROSS_LANE:
            continue
        for form in generator.forms(row):
            words = generator.windows(row, form, 60)
            decoded = disassembler.decode(words)
            valid = [w[: d.size] for w, d in zip(words, decoded, strict=True) if d.size]
            for window in valid[:ENCODINGS]:
                tried += check(window, rng, row.name, disassembler.cpu)
    return tried


@pytest.mark.device  # launches nothing, but takes long
@pytest.mark.parametrize("chunk", range(8))
def test_uses_hold(chunk: int, disassembler: Disassembler) -> None:
    assert check_rows(disassembler, disassembler.rows()[chunk::8], chunk) > 300


@pytest.mark.device
def test_uses_of_rows_that_are_new_on_gfx950(
    disassembler: Disassembler, disassembler950: Disassembler
) -> None:
    old = set(disassembler.rows())
    new = [row for row in disassembler950.rows() if row not in old]
    assert check_rows(disassembler950, new, 20) > 300


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(8))
def test_uses_of_all_rows_of_gfx950(chunk: int, disassembler950: Disassembler) -> None:
    assert check_rows(disassembler950, disassembler950.rows()[chunk::8], 30 + chunk) > 300


def check(words: npt.NDArray[np.uint32], rng: np.random.Generator, name: str, cpu: str) -> bool:
    machine = Machine(int(rng.integers(1 << 30)), cpu=cpu)
    machine.s[104:108] = machine.random_u32(4)
    machine.exec = int(rng.integers(1, 1 << 63)) | 1
    machine.s[M0] = 5
    machine.scc = int(rng.integers(2))
    before = state(machine)
    use = machine.inspect(words)
    try:
        machine.run(words)
    except MachineFault:
        return False  # traps
    after = state(machine)
    written = rows_of(use.writes)
    kept = np.ones(len(before), bool)
    kept[written] = False
    changed = np.flatnonzero((before != after).any(axis=1) & kept)
    assert not changed.size, f"{name} {words}: writes {changed}, not said"

    # Again, with other bits in everything that it does not read. Lanes that it does not write show
    # the old contents of what it writes; EXEC tells which.
    other = Machine(int(rng.integers(1 << 30)), cpu=cpu)
    read = np.zeros(len(before), bool)
    read[rows_of(use.reads)] = True
    read[512 + EXEC : 512 + EXEC + 2] = True
    partial = np.zeros(len(before), bool)
    partial[written] = True
    keep = read | partial
    other.v[keep[:512]] = before[:512][keep[:512]]
    fresh = other.random_u32(128)
    scalar = before[512:640, 0]
    other.s[:] = np.where(keep[512:640], scalar, fresh)
    other.mode = machine.mode
    other.scc = int(before[640, 0]) if keep[640] else 1 - int(before[640, 0])
    other.run(words)
    again = state(other)
    differing = np.flatnonzero((after != again).any(axis=1) & partial)
    assert not differing.size, f"{name} {words}: {differing} depend on what is not read"
    return True
