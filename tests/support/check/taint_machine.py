"""A bare wave with uninitialised bits, and the oracle of their propagation.

The C side is ``vdev_test_taint`` in virtual_device/check/taint_test_api.cc. The oracle runs the
same instruction on many fillings of the uninitialised bits: a result bit that differs must be
marked.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from ctypes import c_char, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tests.support.isa.machine import LANES, FaultKind, Machine, MachineFault, assemble
from tests.support.vdev_library import DEFAULT_CPU, choose_machine, open_library

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
SCC = 128


class TaintState(ctypes.Structure):
    _fields_ = [
        ("vgprs", c_void_p),
        ("vector_bits", c_void_p),
        ("sgprs", c_void_p),
        ("scalar_bits", c_void_p),
        ("lds", c_void_p),
        ("lds_bits", c_void_p),
        ("lds_bytes", c_uint64),
        ("scratch", c_void_p),
        ("scratch_bits", c_void_p),
        ("scratch_lane_bytes", c_uint64),
        ("memory", c_void_p),
        ("memory_bytes", c_uint64),
        ("mode", c_uint32),
        ("scc", c_uint32),
        ("num_findings", c_uint32),
        ("findings", c_char * 4096),
    ]


LIBRARY = open_library(vdev_test_taint=(c_int, [c_void_p, c_size_t, ctypes.POINTER(TaintState)]))


@dataclass(frozen=True)
class Finding:
    """One report; `lane` -1 where it is not of one."""

    kind: str
    lane: int
    where: str
    message: str


@dataclass
class Bits:
    """Uninitialised bits: 1 where nobody wrote.

    Attributes
    ----------
    v : (512, 64) uint32
    s : (129,) uint32
        SCC last, in bit 0.
    lds : (lds_bytes,) uint8
    scratch : (64, scratch_lane_bytes) uint8
    """

    lds_bytes: int = 0
    scratch_lane_bytes: int = 0
    v: U32 = field(default_factory=lambda: np.zeros((512, LANES), np.uint32))
    s: U32 = field(default_factory=lambda: np.zeros(129, np.uint32))

    def __post_init__(self) -> None:
        self.lds: U8 = np.zeros(self.lds_bytes, np.uint8)
        self.scratch: U8 = np.zeros((LANES, self.scratch_lane_bytes), np.uint8)

    def copy(self) -> Bits:
        other = Bits(self.lds_bytes, self.scratch_lane_bytes, self.v.copy(), self.s.copy())
        other.lds[:] = self.lds
        other.scratch[:] = self.scratch
        return other


_SEPARATOR = 0xFEE1DEAD
_assembled: dict[tuple[str, str], U32] = {}


def preassemble(codes: Iterable[str], cpu: str = DEFAULT_CPU) -> None:
    """Assemble many texts at once, for `step`: the assembler's start is what takes time."""
    todo = sorted({code for code in codes if (cpu, code) not in _assembled})
    if not todo:
        return
    words = np.array(assemble(f"\n.long {_SEPARATOR:#x}\n".join(todo), cpu), np.uint32)
    parts = np.split(words, np.flatnonzero(words == _SEPARATOR))
    assert len(parts) == len(todo)
    for code, part in zip(todo, parts, strict=True):
        _assembled[cpu, code] = part[part != _SEPARATOR]


def step(m: Machine, bits: Bits, code: str | npt.ArrayLike) -> list[Finding]:
    """Run straight-line code on `m` and follow its uninitialised bits; both change in place."""
    if isinstance(code, str):
        preassemble([code], m.cpu)
        code = _assembled[m.cpu, code]
    words = np.asarray(code, dtype=np.uint32)
    assert bits.lds.size == m.lds.size and bits.scratch.size == m.scratch.size * 4
    state = TaintState(
        vgprs=m.v.ctypes.data,
        vector_bits=bits.v.ctypes.data,
        sgprs=m.s.ctypes.data,
        scalar_bits=bits.s.ctypes.data,
        lds=m.lds.ctypes.data,
        lds_bits=bits.lds.ctypes.data,
        lds_bytes=m.lds.size,
        scratch=m.scratch.ctypes.data,
        scratch_bits=bits.scratch.ctypes.data,
        scratch_lane_bytes=m.scratch.size * 4 // LANES,
        memory=m.memory.ctypes.data,
        memory_bytes=m.memory.size,
        mode=m.mode,
        scc=m.scc,
    )
    choose_machine(LIBRARY, m.cpu)
    fault = LIBRARY.vdev_test_taint(words.ctypes.data, words.size, ctypes.byref(state))
    if fault:
        raise MachineFault(FaultKind(fault), "in vdev_test_taint", -1, 0, 0)
    m.mode, m.scc = state.mode, state.scc
    found = []
    for line in state.findings.decode().splitlines():
        kind, lane, where, message = line.split("\t")
        found.append(Finding(kind, int(lane), where, message))
    return found


def random_bits(rng: np.random.Generator, shape: int | tuple[int, ...]) -> U32:
    """Uninitialised bits as they come: nothing, everything, bytes, halves, single bits."""
    kind = rng.integers(0, 8, shape)
    anything = rng.integers(0, 1 << 32, shape, np.uint32)
    byte = np.uint32(0xFF) << (rng.integers(0, 4, shape, np.uint32) * np.uint32(8))
    one = np.uint32(1) << rng.integers(0, 32, shape, np.uint32)
    half = np.where(rng.integers(0, 2, shape), np.uint32(0xFFFF), np.uint32(0xFFFF0000))
    zero, ones = np.zeros(shape, np.uint32), np.full(shape, 0xFFFFFFFF, np.uint32)
    choices = [zero, zero, zero, ones, byte, half, one, anything]
    return np.select([kind == i for i in range(8)], choices).astype(np.uint32)


@dataclass
class State:
    """Everything that a run leaves, to be compared."""

    v: U32
    s: U32
    lds: U8
    scratch: U8
    scc: int

    @staticmethod
    def of(m: Machine) -> State:
        scratch = m.scratch.view(np.uint8).reshape(-1, LANES, 4).transpose(1, 0, 2)
        return State(m.v.copy(), m.s.copy(), m.lds.copy(), scratch.reshape(LANES, -1).copy(), m.scc)


@dataclass
class Outcome:
    """Of one oracle run.

    Attributes
    ----------
    missed : str
        Where a bit differs that is not marked; empty: nowhere.
    marked, idle : int
        Marked bits of registers whose marks changed, and how many of those never differed.
    findings : list of Finding
    """

    missed: str
    marked: int
    idle: int
    findings: list[Finding]


def fill(m: Machine, bits: Bits, source: State, rng: np.random.Generator) -> None:
    """Give `m` the values of `source` with other uninitialised bits."""

    def other(values: U32, mask: U32) -> U32:
        return (values & ~mask) | (rng.integers(0, 1 << 32, values.shape, np.uint32) & mask)

    m.v[:] = other(source.v, bits.v)
    m.s[:] = other(source.s, bits.s[:128])
    m.scc = int(rng.integers(0, 2)) if bits.s[SCC] else source.scc
    noise = rng.integers(0, 256, m.lds.shape, np.uint8)
    m.lds[:] = (source.lds & ~bits.lds) | (noise & bits.lds)
    noise = rng.integers(0, 256, source.scratch.shape, np.uint8)
    lanes = (source.scratch & ~bits.scratch) | (noise & bits.scratch)
    dwords = lanes.reshape(LANES, -1, 4).transpose(1, 0, 2)
    m.scratch.view(np.uint8).reshape(dwords.shape)[:] = dwords


def oracle(m: Machine, bits: Bits, code: npt.ArrayLike, runs: int, seed: int) -> Outcome | None:
    """Compare the propagation with `runs` fillings; None when the code faults."""
    rng = np.random.default_rng(seed)
    before, mode = State.of(m), m.mode
    after = bits.copy()
    memory = m.memory.copy()
    try:
        findings = step(m, after, code)
    except MachineFault:
        return None
    reference = State.of(m)
    differs_v, differs_s = np.zeros_like(after.v), np.zeros(129, np.uint32)
    differs_lds, differs_scratch = np.zeros_like(after.lds), np.zeros_like(after.scratch)
    for _ in range(runs):
        fill(m, bits, before, rng)
        m.mode, m.memory[:] = mode, memory
        try:
            m.run(code)
        except MachineFault:
            return None
        now = State.of(m)
        differs_v |= now.v ^ reference.v
        differs_s[:128] |= now.s ^ reference.s
        differs_s[SCC] |= np.uint32(now.scc != reference.scc)
        differs_lds |= now.lds ^ reference.lds
        differs_scratch |= now.scratch ^ reference.scratch
    missed = ""
    for name, differs, marked in (
        ("v", differs_v, after.v),
        ("s", differs_s, after.s),
        ("lds", differs_lds, after.lds),
        ("scratch", differs_scratch, after.scratch),
    ):
        where = np.argwhere(differs & ~marked)
        if where.size:
            at = tuple(int(x) for x in where[0])
            missed += (
                f"{name}{list(at)}: differs {int(differs[at]):#x}, marked {int(marked[at]):#x}; "
            )
    marked_bits = idle_bits = 0
    vectors = (after.v, bits.v, differs_v)
    scalars = (after.s[:, None], bits.s[:, None], differs_s[:, None])
    for now_marked, old, differs in (vectors, scalars):
        changed = (now_marked != old).any(axis=1)
        marked_bits += int(np.bitwise_count(now_marked[changed]).sum())
        idle_bits += int(np.bitwise_count((now_marked & ~differs)[changed]).sum())
    return Outcome(missed, marked_bits, idle_bits, findings)
