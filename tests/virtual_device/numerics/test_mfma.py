"""Matrix instructions: layout against AMD's calculator, arithmetic against MMA-Sim.

Both know gfx942 only; `test_mfma_gfx950.py` has gfx950's layouts. `mfma_reference.json` holds, for
each instruction, a digest of all element places as AMD's matrix instruction calculator prints them,
and single steps of the published CDNA3 arithmetic.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.support.vdev_library import DEFAULT_CPU

REFERENCE = json.loads(Path(__file__).with_name("mfma_reference.json").read_text())
UINT: dict[int, type] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
MXCSR = 0x1F80
MXCSR_FLUSH = 0x9FC0
MXCSR_FLUSH_UP = 0xDFC0
Array = npt.NDArray[np.generic]
Words = npt.NDArray[np.uint32]
Places = npt.NDArray[np.int64]
TYPES: dict[str, type] = {
    "f64": np.float64, "f32": np.float32, "xf32": np.float32, "f16": np.float16,
    "bf16": ml_dtypes.bfloat16, "i8": np.int8, "i32": np.int32,
    "fp8": ml_dtypes.float8_e4m3fnuz, "bf8": ml_dtypes.float8_e5m2fnuz,
    "fp8 ocp": ml_dtypes.float8_e4m3fn, "bf8 ocp": ml_dtypes.float8_e5m2,
}  # fmt: skip
# What gfx950 has beyond gfx942, but for f8f6f4.
_FP8 = [f"{a}_{b}" for a in ("bf8", "fp8") for b in ("bf8", "fp8")]
GFX950 = tuple(
    f"gfx950 v_{name}_{kind}"
    for name, kinds in {
        "mfma_f32_16x16x32": ("bf16", "f16"),
        "mfma_f32_32x32x16": ("bf16", "f16"),
        "mfma_i32_16x16x64": ("i8",),
        "mfma_i32_32x32x32": ("i8",),
        "smfmac_f32_16x16x64": ("bf16", "f16"),
        "smfmac_f32_32x32x32": ("bf16", "f16"),
        "smfmac_i32_16x16x128": ("i8",),
        "smfmac_i32_32x32x64": ("i8",),
        "smfmac_f32_16x16x128": _FP8,
        "smfmac_f32_32x32x64": _FP8,
    }.items()
    for kind in kinds
)


@dataclass(frozen=True)
class Shape:
    """One instruction, as the library describes it."""

    name: str
    opcode: int
    m: int
    n: int
    k: int
    blocks: int
    a_regs: int
    b_regs: int
    c_regs: int
    d_regs: int
    passes: int
    has_cbsz_abid: bool
    has_blgp: bool

    @property
    def sparse(self) -> bool:
        return "smfmac" in self.name

    @property
    def a_type(self) -> str:
        kinds = self.name.split("_")[4 if self.blocks > 1 else 3 :]
        return self.source(next(kind for kind in kinds if kind in TYPES))

    @property
    def b_type(self) -> str:
        return self.source(self.name.split("_")[-1])

    def source(self, kind: str) -> str:
        return f"{kind} ocp" if kind in ("fp8", "bf8") and " " in self.name else kind

    @property
    def d_type(self) -> str:
        return self.name.split("_")[2]

    @property
    def small_float(self) -> bool:
        return self.a_type.split()[0] in ("xf32", "f16", "bf16", "fp8", "bf8")

    @property
    def index_sets(self) -> int:
        """How many sets of indices, two bits for each of a lane's elements, a register holds."""
        return 32 // (2 * (self.k // 2 * self.m // 64))

    # Places: (register, lowest bit, lane), registers counting pairs for 64 bits.

    def a_places(self, block: int, cbsz: int = 0, abid: int = 0) -> Places:
        """Of the stored matrix, (m, stored k, 3)."""
        columns = range(self.k // 2 if self.sparse else self.k)
        return np.array(
            [[self.a_place(block, i, k, cbsz, abid) for k in columns] for i in range(self.m)]
        )

    def b_places(self, block: int, blgp: int = 0) -> Places:
        """(k, n, 3)."""
        rows, columns = range(self.k), range(self.n)
        return np.array([[self.b_place(block, k, j, blgp) for j in columns] for k in rows])

    def d_places(self, block: int) -> Places:
        """(m, n, 3)."""
        return np.array([[self.d_place(block, i, j) for j in range(self.n)] for i in range(self.m)])

    def a_place(self, block: int, i: int, k: int, cbsz: int = 0, abid: int = 0) -> tuple[int, ...]:
        """Of stored column k, the half of the matrix column when sparse."""
        columns = self.k // 2 if self.sparse else self.k
        block = block if self.sparse else (block >> cbsz << cbsz) + abid
        return packed(self.m, columns, self.blocks, block, i, k, bits(self.a_type))

    def b_place(self, block: int, k: int, j: int, blgp: int = 0) -> tuple[int, ...]:
        reg, bit, lane = packed(self.n, self.k, self.blocks, block, j, k, bits(self.b_type))
        group = lane // 16
        group = [group, group % 2, group | 2, (group + 1) % 4, 0, 1, 2, 3][blgp]
        return reg, bit, group * 16 + lane % 16

    def d_place(self, block: int, i: int, j: int) -> tuple[int, ...]:
        height = 1 if self.d_type == "f64" else 4
        per_reg = 64 // self.n
        shared = max(1, per_reg * height // self.m)  # blocks side by side in a register
        row, tile = i % height, i // height
        reg = block * (self.m * self.n // 64) + tile // per_reg * height + row
        return reg, 0, ((tile % per_reg) * shared + block % shared) * self.n + j

    def index_place(self, i: int, k: int, cbsz: int, abid: int) -> tuple[int, ...]:
        """Place of the 4 index bits of columns k to k + 3."""
        reg, bit, lane = self.a_place(0, i, k // 2)
        element = (32 * reg + bit) // bits(self.a_type)
        return 0, 2 * element + (0 if cbsz else abid * 32 // self.index_sets), lane


def packed(rows: int, columns: int, blocks: int, block: int, i: int, k: int, size: int) -> (
    tuple[int, ...]
):  # fmt: skip
    """A lane has runs of consecutive k of 16 bytes, which go round the groups of lanes."""
    per_lane = columns * rows * blocks // 64
    run, groups = min(per_lane, 128 // size), columns // per_lane
    element = k // run // groups * run + k % run
    lane = (k // run % groups * blocks + block) * rows + i
    bit = element * size
    return (element, 0, lane) if size == 64 else (bit // 32, bit % 32, lane)


def bits(kind: str) -> int:
    return int(re.sub(r"\D", "", kind))


def load_shapes(lib: ctypes.CDLL, cpu: str = DEFAULT_CPU) -> dict[str, Shape]:
    """By mnemonic. What another CPU has the library finds by both names, as "CPU MNEMONIC"."""
    prefix = "" if cpu == DEFAULT_CPU else f"{cpu} "
    names = list(Shape.__dataclass_fields__)[1:]
    fields = [("name", ctypes.c_char_p)] + [(field, ctypes.c_int) for field in names]
    raw = type("Raw", (ctypes.Structure,), {"_fields_": fields})()
    shapes: dict[str, Shape] = {}
    for position in itertools.count():
        if lib.vdev_test_mfma_shape(cpu.encode(), position, ctypes.byref(raw)) != 0:
            return shapes
        name = raw.name.decode()
        shapes[name] = Shape(prefix + name, *(getattr(raw, f) for f in names))
    raise AssertionError


@pytest.fixture(scope="session")
def shapes(vdev_lib: ctypes.CDLL) -> dict[str, Shape]:
    return load_shapes(vdev_lib)


@pytest.fixture(scope="session")
def shapes_of_950(vdev_lib: ctypes.CDLL) -> dict[str, Shape]:
    return {f"gfx950 {name}": s for name, s in load_shapes(vdev_lib, "gfx950").items()}


@pytest.fixture(params=[*sorted(REFERENCE["layout_sha256"]), *GFX950])
def shape(
    request: pytest.FixtureRequest, shapes: dict[str, Shape], shapes_of_950: dict[str, Shape]
) -> Shape:
    return (shapes | shapes_of_950)[request.param]


def pointer(array: Array) -> ctypes.c_void_p:
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


def run(
    lib: ctypes.CDLL,
    shape: Shape,
    a: Words,
    b: Words,
    c: Words,
    d: Words | None = None,
    *,
    cbsz: int = 0,
    abid: int = 0,
    blgp: int = 0,
    flush: bool = False,
    mxcsr: int = MXCSR,
    exact: bool = False,
) -> Words:
    """Runs len(a) instructions on uint32 registers of shape (count, registers, 64)."""
    out = np.zeros((len(a), shape.d_regs, 64), np.uint32) if d is None else d.copy()
    for array, regs in (
        (a, shape.a_regs),
        (b, shape.b_regs),
        (c, shape.c_regs),
        (out, shape.d_regs),
    ):
        assert array.shape == (len(a), regs, 64) and array.dtype == np.uint32
    status = lib.vdev_test_mfma(
        shape.name.encode(), len(a), pointer(a), pointer(b), pointer(c), pointer(out),
        cbsz, abid, blgp, int(flush), mxcsr, int(exact),
    )  # fmt: skip
    assert status == 0
    return out


def read(registers: Words, kind: str, places: Places) -> Array:
    """Elements of every instruction: registers (count, registers, 64), places (..., 3)."""
    reg, bit, lane = (places[..., n] for n in range(3))
    if bits(kind) == 64:
        low, high = registers[:, 2 * reg, lane], registers[:, 2 * reg + 1, lane]
        return (low | high.astype(np.uint64) << np.uint64(32)).view(np.float64)
    raw: Array = (registers[:, reg, lane] >> bit.astype(np.uint32)).astype(UINT[bits(kind)])
    return raw.view(TYPES[kind])


def write(registers: Words, kind: str, places: Places, values: Array) -> None:
    """Ors 8 to 32 bit elements, shaped like places, into every instruction."""
    reg, bit, lane = (places[..., n] for n in range(3))
    raw = np.asarray(values).view(UINT[bits(kind)]).astype(np.uint32) << bit.astype(np.uint32)
    flat = registers.reshape(len(registers), -1)
    for instruction in flat:
        np.bitwise_or.at(instruction, reg * 64 + lane, raw)


def as_registers(values: Array, regs: int) -> Words:
    """Elements in lane order, (count, 64, elements of a lane), as (count, regs, 64)."""
    words = np.ascontiguousarray(values).view(np.uint32).reshape(len(values), 64, regs)
    return np.ascontiguousarray(words.transpose(0, 2, 1))


def random_values(rng: np.random.Generator, mode: str, kind: str, shape: tuple[int, ...]) -> Array:
    dtype = TYPES[kind]
    if mode == "bits" or kind.startswith("i"):
        return rng.integers(0, 2 ** bits(kind), shape, dtype=UINT[bits(kind)]).view(dtype)
    x = rng.standard_normal(shape)
    if mode == "pv":
        x = np.exp2(-12 * rng.random(shape)) * (rng.random(shape) > 0.2)
    elif mode == "wide":
        x = x * np.exp2(rng.integers(-14, 8, shape)) * (rng.random(shape) > 0.1)
    elif mode == "huge":
        x = x * np.exp2(rng.integers(-60, 62, shape).astype(np.float64))
    with np.errstate(over="ignore"):
        return x.astype(dtype)


def random_addend(rng: np.random.Generator, mode: str, shape: tuple[int, ...]) -> Words:
    if mode == "bits":
        return rng.integers(0, 2**32, shape, dtype=np.uint32)
    scale = np.exp2(rng.integers(-40, 30, shape) * (rng.random(shape) < 0.3))
    x = rng.standard_normal(shape) * scale * (1e3 if mode == "pv" else 1.0)
    x = np.where(rng.random(shape) < 0.05, -1e-42, np.where(rng.random(shape) < 0.05, -0.0, x))
    return x.astype(np.float32).view(np.uint32)


def random_operands(
    rng: np.random.Generator, shape: Shape, mode: str, count: int
) -> tuple[Words, Words, Words, Words]:
    """a, b, c and what d holds before."""

    def source(kind: str, regs: int) -> Words:
        values = random_values(rng, mode, kind, (count, 64, regs * 32 // bits(kind)))
        return as_registers(values, regs)

    if shape.d_type == "f64":
        d = source("f64", shape.d_regs)
    else:
        d = random_addend(rng, mode, (count, shape.d_regs, 64))
    index = rng.integers(0, 2**32, (count, 1, 64), dtype=np.uint32)
    c = index if shape.sparse else d
    return source(shape.a_type, shape.a_regs), source(shape.b_type, shape.b_regs), c, d


def layout_lines(s: Shape) -> Iterator[str]:
    def line(tag: str, place: tuple[int, ...], *index: int) -> str:
        reg, bit, lane = place
        reg *= 2 if bits(s.b_type if tag == "b" else s.d_type) == 64 else 1
        return f"{tag} {' '.join(map(str, index))}: {reg} {bit} {lane}\n"

    for b, i, j in itertools.product(range(s.blocks), range(s.m), range(s.n)):
        yield line("d", s.d_place(b, i, j), i, j, 0, b, 0, 0, 0)
    pairs = [(0, 0)]
    if s.has_cbsz_abid and not s.sparse:
        pairs = [(x, y) for x in range(s.blocks.bit_length()) for y in range(1 << x)]
    for (cbsz, abid), b, i, k in itertools.product(
        pairs, range(s.blocks), range(s.m), range(0, s.k, 4 if s.sparse else 1)
    ):
        place: tuple[int, ...]
        if s.sparse:  # the calculator names the register half that holds two of four elements
            reg, bit, lane = s.a_place(b, i, k // 2)
            place = (reg, bit, lane) if bits(s.a_type) == 8 else (reg, 0, lane)
        else:
            place = s.a_place(b, i, k, cbsz, abid)
        yield line("a", place, i, 0, k, b, cbsz, abid, 0)
    if s.sparse:
        for cbsz, abid in [(0, n) for n in range(s.index_sets)] + [(1, 0)]:
            for i, k in itertools.product(range(s.m), range(0, s.k, 4)):
                yield line("k", s.index_place(i, k, cbsz, abid), i, 0, k, 0, cbsz, abid, 0)
    permutations = range(8 if s.has_blgp and s.d_type != "f64" else 1)
    for blgp, b, k, j in itertools.product(permutations, range(s.blocks), range(s.k), range(s.n)):
        yield line("b", s.b_place(b, k, j, blgp), 0, j, k, b, 0, 0, blgp)


@pytest.mark.parametrize("name", sorted(REFERENCE["layout_sha256"]))
def test_layout_is_that_of_the_calculator(shapes: dict[str, Shape], name: str) -> None:
    digest = hashlib.sha256("".join(layout_lines(shapes[name])).encode()).hexdigest()
    assert digest[:16] == REFERENCE["layout_sha256"][name]


def controls(s: Shape, rng: np.random.Generator) -> list[dict[str, int]]:
    found: list[dict[str, int]] = [{}]
    if s.sparse:
        found += [{"abid": n} for n in range(1, s.index_sets)] + [{"cbsz": 1, "abid": 1}]
    elif s.has_cbsz_abid:
        for _ in range(4):
            cbsz = int(rng.integers(s.blocks.bit_length()))
            found.append({"cbsz": cbsz, "abid": int(rng.integers(1 << cbsz))})
    if s.has_blgp:
        found += [{"blgp": n} for n in range(1, 8)]
    return found


def test_matrix_product(vdev_lib: ctypes.CDLL, shape: Shape) -> None:
    """Small integers, exact in every format: the product that NumPy computes, in place."""
    s, rng = shape, np.random.default_rng(1)

    def integers(kind: str, regs: int, bound: int) -> Words:
        x = rng.integers(-bound, bound + 1, (1, 64, regs * 32 // bits(kind)))
        return as_registers(x.astype(np.float64).astype(TYPES[kind]), regs)

    for control in controls(s, rng):
        cbsz, abid, blgp = (control.get(f, 0) for f in ("cbsz", "abid", "blgp"))
        a, b = integers(s.a_type, s.a_regs, 3), integers(s.b_type, s.b_regs, 3)
        d = integers(s.d_type, s.d_regs, 50)
        index = rng.integers(0, 2**32, (1, 1, 64), dtype=np.uint32)
        signs = [-1 if s.d_type == "f64" and blgp >> n & 1 else 1 for n in range(3)]
        permutation = 0 if s.d_type == "f64" else blgp
        got = run(vdev_lib, s, a, b, index if s.sparse else d, d, cbsz=cbsz, abid=abid, blgp=blgp)
        for block in range(s.blocks):
            stored = read(a, s.a_type, s.a_places(block, cbsz, abid))[0].astype(np.float64)
            lhs = stored
            if s.sparse:
                lhs = np.zeros((s.m, s.k))
                for i, k in itertools.product(range(s.m), range(s.k // 2)):
                    _, bit, lane = s.index_place(i, k // 2 * 4, cbsz, abid)
                    selected = int(index[0, 0, lane]) >> (bit + 2 * (k % 2)) & 3
                    lhs[i, k // 2 * 4 + selected] += stored[i, k]
            rhs = read(b, s.b_type, s.b_places(block, permutation))[0].astype(np.float64)
            addend = read(d, s.d_type, s.d_places(block))[0].astype(np.float64)
            expected = signs[0] * signs[1] * (lhs @ rhs) + signs[2] * addend
            result = read(got, s.d_type, s.d_places(block))[0]
            np.testing.assert_array_equal(result, expected, str(control))


STEP_SHAPES = {
    "bf16_step8": "v_mfma_f32_32x32x8_bf16",
    "f16_step8": "v_mfma_f32_32x32x8_f16",
    "fp8fnuz_step16": "v_mfma_f32_32x32x16_fp8_fp8",
    "bf8fnuz_step16": "v_mfma_f32_32x32x16_bf8_bf8",
    "fp8bf8fnuz_step16": "v_mfma_f32_32x32x16_fp8_bf8",
}


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "fast"])
@pytest.mark.parametrize("kind", STEP_SHAPES)
def test_published_steps(
    vdev_lib: ctypes.CDLL, shapes: dict[str, Shape], kind: str, exact: bool
) -> None:
    """32 vectors at a time: vector n is row n, column n."""
    s = shapes[STEP_SHAPES[kind]]
    vectors = [v[1:] for v in REFERENCE["steps"] if v[0] == kind]
    assert len(vectors) == 220
    for first in range(0, len(vectors), 32):
        batch = vectors[first : first + 32]
        a, b, c = (np.zeros((1, r, 64), np.uint32) for r in (s.a_regs, s.b_regs, s.c_regs))
        element, count = UINT[bits(s.a_type)], len(batch)
        diagonal = s.d_places(0)[range(count), range(count)]
        rows: Array = np.array([v[0] for v in batch], element)
        columns: Array = np.array([v[1] for v in batch], element)
        write(a, s.a_type, s.a_places(0)[:count], rows)
        write(b, s.b_type, s.b_places(0)[:, :count], np.ascontiguousarray(columns.T))
        write(c, "f32", diagonal, np.array([v[2] for v in batch], np.uint32))
        got = read(run(vdev_lib, s, a, b, c, exact=exact), "f32", diagonal)[0].view(np.uint32)
        expected = [0x7FC00000 if v[3] == "nan" else v[3] for v in batch]
        np.testing.assert_array_equal(got, np.array(expected, np.uint32))


MODES = ["normal", "pv", "wide", "huge", "bits"]


def test_builds_agree(builds: tuple[ctypes.CDLL, ctypes.CDLL], shape: Shape) -> None:
    """The AVX2 and the portable build give the same bits."""
    a, b, c, d = random_operands(np.random.default_rng(9), shape, "bits", 16)
    portable, avx2 = (run(lib, shape, a, b, c, d) for lib in builds)
    np.testing.assert_array_equal(avx2, portable)


@pytest.mark.parametrize("mode", MODES)
def test_fast_equals_exact(vdev_lib: ctypes.CDLL, shape: Shape, mode: str) -> None:
    rng = np.random.default_rng(MODES.index(mode))
    count = max(1, 6000 // (shape.m * shape.n * shape.blocks))
    a, b, c, d = random_operands(rng, shape, mode, count)
    if mode == "normal":  # one special value must not spoil its neighbours
        a[0, 0, 5] |= np.uint32(0x7F807F80)
        d[-1, 0, 7] = np.uint32(0xFF800000)
    expected = run(vdev_lib, shape, a, b, c, d, exact=True)
    for mxcsr in (MXCSR, MXCSR_FLUSH, MXCSR_FLUSH_UP):
        got = run(vdev_lib, shape, a, b, c, d, mxcsr=mxcsr)
        np.testing.assert_array_equal(got, expected)
    if shape.d_type == "f32":
        values = expected.view(np.float32)
        assert (expected[np.isnan(values)] == 0x7FC00000).all()


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "fast"])
@pytest.mark.parametrize(
    "name",
    ["v_mfma_f32_16x16x16_bf16", "v_mfma_f32_32x32x8_f16", "v_mfma_f32_16x16x8_xf32",
     "v_mfma_f32_16x16x32_fp8_fp8"],
)  # fmt: skip
def test_tiny_negative_addend_costs_a_unit(
    vdev_lib: ctypes.CDLL, shapes: dict[str, Shape], name: str, exact: bool
) -> None:
    """C is rounded down, even a subnormal one that scaling would lose; 8-bit types drop it."""
    s = shapes[name]
    a, b = (np.zeros((1, regs, 64), np.uint32) for regs in (s.a_regs, s.b_regs))
    write(a, s.a_type, s.a_places(0)[:, 0], np.ones(s.m, TYPES[s.a_type]))
    write(b, s.b_type, s.b_places(0)[0], np.ones(s.n, TYPES[s.b_type]))
    for tiny in (-1e-45, -1e-30, -(2.0**-60)):
        c = np.full((1, s.c_regs, 64), tiny, np.float32).view(np.uint32)
        out = run(vdev_lib, s, a, b, c, exact=exact)
        assert (out == (0x3F800000 if bits(s.a_type) == 8 else 0x3F7FFFFF)).all()


def test_zero_products_return_the_addend(vdev_lib: ctypes.CDLL, shape: Shape) -> None:
    if shape.sparse or not shape.small_float:
        pytest.skip("a chain of FMAs keeps the sign of a zero sum, integers have none")
    rng = np.random.default_rng(3)
    a, b, c, _ = random_operands(rng, shape, "normal", 2)
    a[:] = 0
    expected = np.where(c == 0x80000000, 0, c)
    np.testing.assert_array_equal(run(vdev_lib, shape, a, b, c), expected)


def test_overlapping_operands(vdev_lib: ctypes.CDLL, shape: Shape) -> None:
    """All inputs are read before d is written, wherever it lies."""
    s, rng = shape, np.random.default_rng(4)
    size = 2 * (s.a_regs + s.b_regs + s.c_regs + s.d_regs)
    for _ in range(4):
        rows = [int(rng.integers(size - n)) for n in (s.a_regs, s.b_regs, s.c_regs, s.d_regs)]
        file = as_registers(
            random_values(rng, "normal", s.b_type, (1, 64, size * 32 // bits(s.b_type))), size
        )
        a, b, c, d = (
            file[:, r : r + n].copy()
            for r, n in zip(rows, (s.a_regs, s.b_regs, s.c_regs, s.d_regs), strict=True)
        )
        expected = file.copy()
        expected[:, rows[3] : rows[3] + s.d_regs] = run(vdev_lib, s, a, b, c, d, exact=True)
        status = vdev_lib.vdev_test_mfma_in_place(s.name.encode(), pointer(file), size, *rows, 0)
        assert status == 0
        np.testing.assert_array_equal(file, expected)


def round_f32(x: Fraction) -> np.float32:
    """Nearest even, subnormal results kept."""
    if x == 0:
        return np.float32(0)
    exponent = max(abs(x).numerator.bit_length() - abs(x).denominator.bit_length() - 1, -126) - 23
    while abs(x) >= Fraction(2) ** (exponent + 24):
        exponent += 1
    return np.float32(float(round(x / Fraction(2) ** exponent) * Fraction(2) ** exponent))


@pytest.mark.parametrize("name", ["v_mfma_f32_16x16x4_f32", "v_mfma_f64_16x16x4_f64"])
def test_chain_of_fma(vdev_lib: ctypes.CDLL, shapes: dict[str, Shape], name: str) -> None:
    s, rng = shapes[name], np.random.default_rng(5)
    a, b, c, _ = random_operands(rng, s, "wide", 1)
    out = read(run(vdev_lib, s, a, b, c), s.d_type, s.d_places(0))[0]
    lhs, rhs = read(a, s.a_type, s.a_places(0))[0], read(b, s.b_type, s.b_places(0))[0]
    addend = read(c, s.d_type, s.d_places(0))[0]
    for i, j in itertools.product(range(s.m), range(s.n)):
        value = addend[i, j]
        for x, y in zip(lhs[i], rhs[:, j], strict=True):
            total = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(value))
            value = float(total) if s.d_type == "f64" else round_f32(total)
        assert out[i, j] == value


def test_f32_inputs_follow_mode(vdev_lib: ctypes.CDLL, shapes: dict[str, Shape]) -> None:
    s = shapes["v_mfma_f32_16x16x4_f32"]
    a = np.full((1, 1, 64), 0x80000001, np.uint32)  # -2^-149
    b = np.full((1, 1, 64), 2.0**100, np.float32).view(np.uint32)
    c = np.full((1, 4, 64), 0x00000001, np.uint32)  # subnormal, never flushed
    kept = run(vdev_lib, s, a, b, c).view(np.float32)
    assert (kept == np.float32(-4 * 2.0**-49)).all()
    assert (run(vdev_lib, s, a, b, c, flush=True) == 1).all()
    assert (run(vdev_lib, s, a, b, c, mxcsr=MXCSR_FLUSH).view(np.float32) == kept).all()


def test_i8_wraps(vdev_lib: ctypes.CDLL, shapes: dict[str, Shape]) -> None:
    s = shapes["v_mfma_i32_16x16x32_i8"]
    a = np.full((1, s.a_regs, 64), 0x80808080, np.uint32)
    c = np.full((1, s.c_regs, 64), 0x7FFFFFFF, np.uint32)
    assert (run(vdev_lib, s, a, a, c) == (0x7FFFFFFF + 32 * 128 * 128) % 2**32).all()


@pytest.mark.parametrize("name", [n for n in sorted(REFERENCE["layout_sha256"]) if "smfmac" in n])
def test_sparse_is_dense_of_selected(
    vdev_lib: ctypes.CDLL, shapes: dict[str, Shape], name: str
) -> None:
    """With the same indices in every row, a dense instruction of half the k gives the result."""
    s = shapes[name]
    dense = shapes[
        re.sub(r"x(\d+)_", lambda m: f"x{int(m[1]) // 2}_", name.replace("smfmac", "mfma"))
    ]
    rng = np.random.default_rng(6)
    a, b, _, d = random_operands(rng, s, "normal", 1)
    selection = rng.integers(0, 4, s.k // 2)
    index, selected = np.zeros((1, 1, 64), np.uint32), np.zeros((1, dense.b_regs, 64), np.uint32)
    for i, k in itertools.product(range(s.m), range(s.k // 2)):
        _, bit, lane = s.index_place(i, k // 2 * 4, 0, 0)
        index[0, 0, lane] |= np.uint32(selection[k] << (bit + 2 * (k % 2)))
    columns = np.arange(s.k // 2) // 2 * 4 + selection
    write(selected, s.b_type, dense.b_places(0), read(b, s.b_type, s.b_places(0)[columns])[0])
    got = run(vdev_lib, s, a, b, index, d)
    np.testing.assert_array_equal(got, run(vdev_lib, dense, a, selected, d))


def test_control_errors(vdev_lib: ctypes.CDLL, shapes: dict[str, Shape]) -> None:
    vdev_lib.vdev_test_mfma_control.restype = ctypes.c_char_p

    def error(name: str, cbsz: int, abid: int, blgp: int) -> str:
        return str(vdev_lib.vdev_test_mfma_control(name.encode(), cbsz, abid, blgp).decode())

    for s in shapes.values():
        for control in controls(s, np.random.default_rng(7)):
            if not (s.sparse and control.get("cbsz")):
                values = (control.get(f, 0) for f in ("cbsz", "abid", "blgp"))
                assert error(s.name, *values) == "", (s.name, control)
    assert "blgp" in error("v_mfma_f32_16x16x16_bf16", 0, 0, 1)
    assert "cbsz" in error("v_mfma_f32_16x16x16_bf16", 1, 0, 0)
    assert "cbsz" in error("v_mfma_f32_16x16x4_4b_f16", 3, 0, 0)
    assert "abid" in error("v_mfma_f32_16x16x4_4b_f16", 1, 2, 0)
    assert "abid" in error("v_smfmac_f32_16x16x64_fp8_fp8", 0, 2, 0)
    for name in (s.name for s in shapes.values() if s.sparse):  # any but 0 is the first set
        assert {error(name, cbsz, 0, 0) for cbsz in range(8)} == {""}
        assert "cbsz" in error(name, 8, 0, 0) and "abid" in error(name, 0, 16, 0)
    dense = next(s.name for s in shapes.values() if not s.sparse)
    assert "blgp" in error(dense, 0, 0, 8)


def assemble(lines: list[str]) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", "clang", "-cc1as", "-triple", "amdgcn-amd-amdhsa",
         "-target-cpu", "gfx942", "-show-encoding", "-filetype", "asm", "-o", "-", "-"],
        input="\n".join(lines) + "\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout, done.stderr


def test_every_shape_has_its_passes(shapes: dict[str, Shape]) -> None:
    """The architecture's table knows all: operations of a CU, at most 2048 a clk of 16-bit ones."""
    rate = {"f64": 256, "f32": 256, "xf32": 1024, "f16": 2048, "bf16": 2048}
    for name, shape in shapes.items():
        assert shape.passes in (2, 4, 8, 16), name
        flops = 4 * 2 * shape.m * shape.n * shape.k * shape.blocks / (4 * shape.passes)
        assert flops <= rate.get(shape.a_type, 4096) * (2 if shape.sparse else 1), name


def test_names_and_opcodes_are_those_of_the_assembler(shapes: dict[str, Shape]) -> None:
    pytest.importorskip("ziglang")

    def registers(first: int, count: int) -> str:
        return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"

    lines = [
        f"{s.name} {registers(0, s.d_regs)}, {registers(64, s.a_regs)}, "
        f"{registers(128, s.b_regs)}, {registers(192 if s.sparse else 0, s.c_regs)}"
        for s in shapes.values()
    ]
    out, errors = assemble(lines)
    assert errors == ""
    printed = re.findall(r"^\s+(v_\w+) .*encoding: \[\w+,\w+,0x(\w\w),0xd3", out, re.M)
    assert [(n, int(x, 16) & 0x7F) for n, x in printed] == [
        (s.name, s.opcode) for s in shapes.values()
    ]

    # No other name of this pattern exists on gfx942.
    sizes = ["32x32x1", "16x16x1", "4x4x1", "32x32x2", "16x16x2", "4x4x2", "32x32x4", "16x16x4"]
    sizes += ["4x4x4", "32x32x8", "16x16x8", "32x32x16", "16x16x16", "32x32x32", "16x16x32"]
    sizes += ["32x32x64", "16x16x64", "16x16x128"]
    kinds = ["f32", "xf32", "f16", "bf16", "i8", "f64", "bf8_bf8", "bf8_fp8", "fp8_bf8", "fp8_fp8"]
    names = [
        f"v_{op}_{d}_{size}{blocks}_{kind}"
        for op, d, size, blocks, kind in itertools.product(
            ("mfma", "smfmac"), ("f32", "i32", "f64"), sizes, ("", "_2b", "_4b", "_16b"), kinds
        )
    ]
    _, errors = assemble(names)
    unknown = {
        int(n) - 1
        for n, text in re.findall(r"<stdin>:(\d+):\d+: error: (.*)", errors)
        if "invalid instruction" in text or "not supported on this GPU" in text
    }
    assert {n for at, n in enumerate(names) if at not in unknown} == set(shapes)


@pytest.mark.oracles
@pytest.mark.parametrize("mode", MODES)
def test_against_mmasim(vdev_lib: ctypes.CDLL, shape: Shape, mode: str) -> None:
    """At least 100 000 steps of every type. MMA-Sim knows no smfmac and no integers."""
    # MMA-Sim compiles a part of itself and looks for ninja beside the interpreter.
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    torch = pytest.importorskip("torch")
    mmasim = pytest.importorskip("mmasim.amd")
    s = shape
    if s.sparse or s.d_type == "i32" or s.name in GFX950:
        pytest.skip("not in MMA-Sim")
    rng = np.random.default_rng(8)
    count = max(1, 9000 // (s.m * s.n * s.blocks))
    a, b, c, _ = random_operands(rng, s, mode, count)
    if mode == "bits" and s.name.endswith("bf8_bf8"):
        # With E > 24 MMA-Sim's two-group sum takes a C that is not finite, also one that the step
        # before made, for a small number and drops it.
        c &= np.uint32(0xBFFFFFFF)
        for operand in (a, b):
            codes = operand.view(np.uint8)
            codes[codes == 0x80] = 0
    out = run(vdev_lib, s, a, b, c)
    model = mmasim.MFMA("CDNA3", s.name.removeprefix("v_mfma_"))

    def tensor(values: Array, kind: str) -> Any:
        signed = {8: np.uint8, 16: np.int16, 32: np.int32, 64: np.int64}[bits(kind)]
        dtype = {
            "f64": torch.float64, "f32": torch.float32, "xf32": torch.float32,
            "f16": torch.float16, "bf16": torch.bfloat16,
            "fp8": torch.float8_e4m3fnuz, "bf8": torch.float8_e5m2fnuz,
        }[kind]  # fmt: skip
        return torch.from_numpy(np.ascontiguousarray(values).view(signed)).view(dtype)

    nan = 0x7FF8000000000000 if s.d_type == "f64" else 0x7FC00000
    unsigned = UINT[bits(s.d_type)]
    for block in range(s.blocks):
        lhs = tensor(read(a, s.a_type, s.a_places(block)), s.a_type)
        rhs = tensor(read(b, s.b_type, s.b_places(block)).swapaxes(1, 2), s.b_type)
        addend = tensor(read(c, s.d_type, s.d_places(block)), s.d_type)
        full = (count, s.m, s.n, s.k)
        expected = model.dpa(lhs[:, :, None].expand(full), rhs[:, None].expand(full), addend)
        expected = expected.contiguous().numpy()
        expected_bits = np.where(np.isnan(expected), unsigned(nan), expected.view(unsigned))
        got: Array = read(out, s.d_type, s.d_places(block)).view(unsigned)
        np.testing.assert_array_equal(got, expected_bits)
