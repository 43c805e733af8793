"""The instructions that only gfx950 has and the kernels use, by a second reading of the ISA text.

Whole registers of NumPy, apart from the tables that the other tests share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from numpy.typing import NDArray

from tests.support.isa.disassembler import Disassembler
from tests.support.isa.machine import LANES, Machine
from tests.support.paths import ROOT
from tests.support.vdev_library import open_library

CPU = "gfx950"
U32 = NDArray[np.uint32]
BF16, FP8 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
# Zeros, the least and greatest denormals and normals, ties, infinities, NaNs; float32.
EDGES = np.array(
    [0, 1, 0x7FFFFF, 0x800000, 0x33000000, 0x33000001, 0x387FC000, 0x387FE000, 0x38800000,
     0x3F808000, 0x3F818000, 0x3F801000, 0x3F803000, 0x477FEFFF, 0x477FF000, 0x7F7F7FFF,
     0x7F7F8000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF],
    np.uint32,
)  # fmt: skip


def words(rng: np.random.Generator, count: int) -> U32:
    """Registers of random bits, then one of edges and of random signs of them."""
    found = rng.integers(0, 1 << 32, (count, LANES), np.uint32)
    found[-1] = rng.choice(EDGES, LANES) | rng.integers(0, 2, LANES, np.uint32) << np.uint32(31)
    return found


def run(text: str, registers: U32, lds: U32 | None = None) -> U32:
    """The vector registers after one instruction."""
    m = Machine(cpu=CPU, lds_bytes=0 if lds is None else lds.nbytes)
    m.v[: len(registers)] = registers
    if lds is not None:
        m.lds[:] = lds.view(np.uint8)
    m.run(text)
    return m.v[:LANES].copy()


def halves(x: NDArray[np.float32], dtype: type) -> NDArray[np.uint16]:
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(dtype).view(np.uint16)


def is_nan(bits: NDArray[np.uint16], dtype: type) -> NDArray[np.bool_]:
    return np.isnan(bits.view(dtype).astype(np.float32))


def check_halves(found: U32, low: U32, high: U32, dtype: type) -> None:
    """Two 16-bit floats of a register; a NaN may be any."""
    both = np.ascontiguousarray(found).view(np.uint16).reshape(LANES, 2)
    for i, wanted in enumerate((low, high)):
        nan = is_nan(wanted.astype(np.uint16), dtype)
        np.testing.assert_array_equal(nan, is_nan(np.ascontiguousarray(both[:, i]), dtype))
        np.testing.assert_array_equal(both[~nan, i], wanted[~nan])


def permlane32_swap(rng: np.random.Generator) -> None:
    """Lanes 32 to 63 of the first are exchanged with lanes 0 to 31 of the second."""
    before = words(rng, 2)
    after = run("v_permlane32_swap_b32_e32 v0, v1", before)
    np.testing.assert_array_equal(after[0], np.r_[before[0, :32], before[1, :32]])
    np.testing.assert_array_equal(after[1], np.r_[before[0, 32:], before[1, 32:]])


def bitop3(rng: np.random.Generator) -> None:
    """Bit i of the table is the result where the sources' bits spell i, the first the highest."""
    before = words(rng, 3)
    for table in (0x78, 0xE8, 0x01, 0x80, *rng.integers(0, 256, 8).tolist()):
        bits = np.unpackbits(before.view(np.uint8).reshape(3, -1), axis=1, bitorder="little")
        picked = (table >> (4 * bits[0] + 2 * bits[1] + bits[2]) & 1).astype(np.uint8)
        wanted = np.packbits(picked, bitorder="little").view(np.uint32)
        after = run(f"v_bitop3_b32 v4, v0, v1, v2 bitop3:{table:#x}", before)
        np.testing.assert_array_equal(after[4], wanted)


def cvt_pk(name: str, dtype: type) -> Callable[[np.random.Generator], None]:
    def check(rng: np.random.Generator) -> None:
        """To nearest even, the first source in the lower half."""
        before = words(rng, 2)
        after = run(f"v_cvt_pk_{name}_f32 v4, v0, v1", before)
        low, high = (halves(x.view(np.float32), dtype).astype(np.uint32) for x in before)
        check_halves(after[4], low, high, dtype)

    return check


def scaled_pair(name: str, dtype: type) -> Callable[[np.random.Generator], None]:
    def check(rng: np.random.Generator) -> None:
        """Two bytes of the half that op_sel names, times the power of two of the scale."""
        codes = rng.integers(0, 1 << 32, LANES, np.uint32)
        exponent = rng.integers(100, 150, LANES).astype(np.uint32)
        scale = exponent << np.uint32(23) | rng.integers(0, 1 << 23, LANES, np.uint32)
        factor = np.exp2(exponent.astype(np.float64) - 127)
        values = codes.view(FP8).reshape(LANES, 4).astype(np.float64) * factor[:, None]
        for half, op_sel in enumerate(("", " op_sel:[1,0,0]")):
            after = run(
                f"v_cvt_scalef32_pk_{name}_fp8 v4, v0, v1{op_sel}", np.stack([codes, scale])
            )
            pair = values[:, 2 * half : 2 * half + 2].astype(np.float32)
            low, high = (halves(x, dtype).astype(np.uint32) for x in pair.T)
            check_halves(after[4], low, high, dtype)

    return check


def transpose(rng: np.random.Generator) -> None:
    """16 lanes load 4 rows of 16 halves, 4 lanes a row; each gets the column of its number."""
    lds = rng.integers(0, 1 << 32, 1024, np.uint32)
    rows = rng.permutation(LANES // 4 * 8)[: LANES // 4]  # of 32 bytes, anywhere
    lanes = np.arange(LANES)
    address = 32 * rows[lanes // 4] + 8 * (lanes % 4)
    after = run("ds_read_b64_tr_b16 v[4:5], v0", address[None].astype(np.uint32), lds)
    found = np.stack([after[4], after[5]], 1).copy().view(np.uint16).reshape(LANES, 4)
    memory = lds.view(np.uint16).reshape(-1, 16)
    for lane in lanes:
        wanted = [memory[rows[4 * (lane // 16) + row], lane % 16] for row in range(4)]
        np.testing.assert_array_equal(found[lane], wanted)


def mfma(rows: int, depth: int, name: str, dtype: type) -> Callable[[np.random.Generator], None]:
    def check(rng: np.random.Generator) -> None:
        """Lane l has row l % rows of A, column l % rows of B, 8 steps of k from 8 (l / rows) on."""
        a, b = (rng.integers(-8, 9, (rows, depth)) for _ in range(2))
        c = rng.integers(-99, 99, (rows, rows))
        lane = np.arange(LANES)
        before = np.zeros((40, LANES), np.uint32)
        for first, x in ((0, a), (4, b)):
            k = 8 * (lane // rows)[:, None] + np.arange(8)
            part = np.ascontiguousarray(x[lane[:, None] % rows, k].astype(dtype))
            before[first : first + 4] = part.view(np.uint32).T
        count = rows * rows // LANES
        step = np.arange(count)
        row = (8 * (step // 4) if rows == 32 else 0 * step)[:, None] + (step % 4)[:, None]
        row = row + 4 * (lane // rows)
        before[8 : 8 + count] = c[row, lane % rows].astype(np.float32).view(np.uint32)
        text = f"v_mfma_f32_{rows}x{rows}x{depth}_{name} v[8:{7 + count}], v[0:3], v[4:7]"
        after = run(f"{text}, v[8:{7 + count}]", before)
        wanted = (a @ b.T + c).astype(np.float32)[row, lane % rows]
        np.testing.assert_array_equal(after[8 : 8 + count].view(np.float32), wanted)

    return check


VECTORS: dict[str, Callable[[np.random.Generator], None]] = {
    "v_permlane32_swap_b32": permlane32_swap,
    "v_bitop3_b32": bitop3,
    "v_cvt_pk_bf16_f32": cvt_pk("bf16", BF16),
    "v_cvt_pk_f16_f32": cvt_pk("f16", np.float16),
    "v_cvt_scalef32_pk_bf16_fp8": scaled_pair("bf16", BF16),
    "v_cvt_scalef32_pk_f16_fp8": scaled_pair("f16", np.float16),
    "ds_read_b64_tr_b16": transpose,
    "v_mfma_f32_16x16x32_bf16": mfma(16, 32, "bf16", BF16),
    "v_mfma_f32_16x16x32_f16": mfma(16, 32, "f16", np.float16),
    "v_mfma_f32_32x32x16_bf16": mfma(32, 16, "bf16", BF16),
    "v_mfma_f32_32x32x16_f16": mfma(32, 16, "f16", np.float16),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vectors(name: str) -> None:
    for seed in range(4):
        VECTORS[name](np.random.default_rng(seed))


def mnemonics(path: Path, disassembler: Disassembler) -> Iterator[str]:
    with path.open("rb") as file:
        text = ELFFile(file).get_section_by_name(".text")
        assert text is not None
        code = np.frombuffer(text.data(), np.uint32)
    for decoded in disassembler.disassemble(code):
        yield decoded.text.partition(" ")[0].removesuffix("_e32").removesuffix("_e64")


@pytest.mark.slow
def test_every_one_in_use_has_vectors() -> None:
    library = open_library()
    older = {row.name for row in Disassembler(library, "gfx942").rows()}
    disassembler = Disassembler(library, CPU)
    new = {row.name for row in disassembler.rows()} - older
    paths = sorted((ROOT / "hsaco" / CPU).glob("*.hsaco"))
    used = {name for path in paths for name in mnemonics(path, disassembler)} & new
    assert used == VECTORS.keys()
