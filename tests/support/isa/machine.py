"""A bare wave: assemble text, set registers and memory as NumPy arrays, run, read back.

    m = Machine(seed=1, lds_bytes=1024)
    m.v[1] = np.arange(64) * 16
    m.run("ds_read_b128 v[4:7], v1 offset:32")
    assert (m.v[4] == ...).all()

The C side is ``vdev_test_run`` in virtual_device/isa/semantics_test_api.cc:
``int vdev_test_run(const uint32_t *words, size_t num_words, State *state)``, which returns the kind
of fault, 0 for none. `State` below mirrors its structure.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import importlib.metadata
import struct
import subprocess
import tempfile
from ctypes import c_char, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.support.vdev_library import DEFAULT_CPU, choose_machine, open_library

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]

LANES = 64
VCC, M0, EXEC = 106, 124, 126
ALL_LANES = (1 << 64) - 1
# MODE as compilers set it: nearest even, all denormals, DX10_CLAMP, IEEE.
DEFAULT_MODE = 0x3F0
# MODE as hand-written kernels often set it: f32 denormals flushed, f16 and f64 kept, no IEEE.
FLUSH_F32_MODE = 0x0C0


class FaultKind(enum.IntEnum):
    """`FaultKind` of virtual_device/core/device.h."""

    NONE = 0
    ILLEGAL_ADDRESS = 1
    ILLEGAL_INSTRUCTION = 2
    MISALIGNED = 3
    DEADLOCK = 4
    RUNAWAY = 5
    TRAP = 6
    RESOURCES = 7
    ABORTED = 8
    SCRATCH_BOUNDS = 9
    LDS_BOUNDS = 10
    OUTSIDE_CODE = 11


class MachineFault(Exception):
    """The wave raised a fault.

    Attributes
    ----------
    kind : FaultKind
    lane : int
        The lane at fault, -1 where no single one is.
    address : int
    pc : int
        Dword index of the instruction at fault.
    """

    def __init__(self, kind: FaultKind, message: str, lane: int, address: int, pc: int) -> None:
        super().__init__(f"{kind.name}: {message} (lane {lane}, address {address:#x}, dword {pc})")
        self.kind = kind
        self.lane = lane
        self.address = address
        self.pc = pc


class State(ctypes.Structure):
    _fields_ = [
        ("vgprs", c_void_p),
        ("sgprs", c_void_p),
        ("lds", c_void_p),
        ("lds_bytes", c_uint64),
        ("scratch", c_void_p),
        ("scratch_lane_bytes", c_uint64),
        ("memory", c_void_p),
        ("memory_bytes", c_uint64),
        ("max_instructions", c_uint64),
        ("mode", c_uint32),
        ("scc", c_uint32),
        ("fault", c_uint32),
        ("fault_lane", c_int32),
        ("fault_address", c_uint64),
        ("instructions", c_uint64),
        ("pc", c_uint64),
        ("progress", c_uint64),
        ("message", c_char * 512),
    ]


_RUN = [c_void_p, c_size_t, ctypes.POINTER(State)]
LIBRARY = open_library(
    vdev_test_run=(c_int, _RUN), vdev_test_inspect=(c_size_t, [*_RUN, c_char_p, c_size_t])
)


def _text_section(image: bytes) -> bytes:
    """Contents of .text of a little-endian ELF64 file."""
    (table,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", image, table + i * size) for i in range(count)]
    names = headers[names_index][4]
    for name, _, _, _, offset, length in headers:
        if image[names + name :].startswith(b".text\0"):
            return image[offset : offset + length]
    raise ValueError("the object has no .text section")


@functools.cache
def assemble(text: str, cpu: str = DEFAULT_CPU) -> tuple[int, ...]:
    """Dwords that LLVM's assembler makes of `text`; CalledProcessError where it refuses.

    A dword that the assembler does not accept can be given as ``.long 0x...``.
    """
    zig = importlib.metadata.distribution("ziglang").locate_file("ziglang/zig")
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "code.s", Path(folder) / "code.o"
        source.write_text(text + "\n")
        command = [str(zig), "clang", "-cc1as", "-triple", "amdgcn-amd-amdhsa", "-target-cpu", cpu]
        command += ["-filetype", "obj", "-o", str(output), str(source)]
        subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True)
        code = _text_section(output.read_bytes())
    return struct.unpack(f"<{len(code) // 4}I", code)


@dataclass(frozen=True)
class Part:
    """One datum per lane of what an instruction touches in memory.

    Attributes
    ----------
    space : {"global", "lds", "scratch"}
    access : {"read", "write", "atomic"}
    size : int
        Bytes of a lane's datum.
    data, shift : int
        First register of the datum (-1: none), and the bit of it at which the datum begins.
    plain : bool
        The datum's bytes are those of the registers.
    addresses : dict
        By lane.
    """

    space: str
    access: str
    size: int
    data: int
    shift: int
    plain: bool
    addresses: dict[int, int]


@dataclass(frozen=True)
class Inspection:
    """Registers, as ("v", index) or ("s", index), and memory. `decodes`: it is an instruction."""

    decodes: bool
    fault: bool
    reads: frozenset[tuple[str, int]]
    writes: frozenset[tuple[str, int]]
    memory: tuple[Part, ...]

    @classmethod
    def parse(cls, text: str) -> Inspection:
        """From the lines of vdev_test_inspect."""
        registers: dict[str, set[tuple[str, int]]] = {"read": set(), "write": set()}
        memory = []
        for line in text.splitlines():
            kind, *fields = line.split()
            if kind == "memory":
                space, access, size, data, shift, plain, *lanes = fields
                at = dict(map(int, lane.split(":")) for lane in lanes)
                memory.append(
                    Part(space, access, int(size), int(data), int(shift), plain == "1", at)
                )
            elif kind in registers:
                file, first, count = fields[0], int(fields[1]), int(fields[2])
                registers[kind] |= {(file, first + i) for i in range(count)}
        return cls(
            bool(text),
            text == "fault",
            frozenset(registers["read"]),
            frozenset(registers["write"]),
            tuple(memory),
        )


@dataclass(frozen=True)
class Run:
    """What one run did.

    Attributes
    ----------
    instructions : int
    pc : int
        Dword index of the next instruction.
    progress : int
        How often the wave reported that it changed device memory.
    """

    instructions: int
    pc: int
    progress: int


class Machine:
    """State of one wave. Registers and memory start with random bits, EXEC with all lanes.

    Attributes
    ----------
    v : (512, 64) uint32
        v0..v255, then a0..a255.
    a : (256, 64) uint32
        The AGPRs: a view of `v`.
    s : (128,) uint32
        By register code: VCC 106, M0 124, EXEC 126.
    lds : (lds_bytes,) uint8
    scratch : (scratch_lane_bytes / 4, 64) uint32
        Dword d of lane l at [d, l].
    memory : (memory_bytes,) uint8
        Device memory of the wave, at address `address`; everything else faults.
    mode, scc : int
    cpu : str
        The architecture that it is of.
    """

    def __init__(
        self,
        seed: int = 0,
        lds_bytes: int = 0,
        memory_bytes: int = 0,
        scratch_lane_bytes: int = 0,
        mode: int = DEFAULT_MODE,
        cpu: str = DEFAULT_CPU,
    ) -> None:
        self.cpu = cpu
        self.rng = np.random.default_rng(seed)
        self.v: U32 = self.random_u32((512, LANES))
        self.a: U32 = self.v[256:]
        self.s: U32 = self.random_u32(128)
        self.s[102:] = 0
        self.lds: U8 = self.random_u8(lds_bytes)
        self.scratch: U32 = self.random_u32((scratch_lane_bytes // 4, LANES))
        space = np.zeros(memory_bytes + 4096, np.uint8)
        start = -space.ctypes.data % 4096
        self.memory: U8 = space[start : start + memory_bytes]
        self.memory[:] = self.random_u8(memory_bytes)
        self.mode = mode
        self.scc = 0
        self.exec = ALL_LANES

    def random_words(self, bits: int, count: int = LANES) -> list[int]:
        """`count` integers of `bits` (32 or 64) random bits."""
        dtype = np.uint64 if bits == 64 else np.uint32
        return [int(x) for x in self.rng.integers(0, 1 << bits, count, dtype)]

    def random_u32(self, shape: int | tuple[int, ...]) -> U32:
        return self.rng.integers(0, 1 << 32, shape, np.uint32)

    def random_u8(self, shape: int) -> U8:
        return self.rng.integers(0, 256, shape, np.uint8)

    @property
    def address(self) -> int:
        """Device address of memory[0]."""
        return int(self.memory.ctypes.data)

    def pair(self, index: int) -> int:
        """The 64-bit value of s[index:index+1]."""
        return int(self.s[index]) | int(self.s[index + 1]) << 32

    def set_pair(self, index: int, value: int) -> None:
        self.s[index] = value & 0xFFFFFFFF
        self.s[index + 1] = value >> 32 & 0xFFFFFFFF

    @property
    def exec(self) -> int:
        return self.pair(EXEC)

    @exec.setter
    def exec(self, mask: int) -> None:
        self.set_pair(EXEC, mask)

    @property
    def vcc(self) -> int:
        return self.pair(VCC)

    @vcc.setter
    def vcc(self, mask: int) -> None:
        self.set_pair(VCC, mask)

    @property
    def lanes(self) -> npt.NDArray[np.bool_]:
        """(64,) bool: the active lanes."""
        return mask_lanes(self.exec)

    @property
    def active(self) -> list[int]:
        """Numbers of the active lanes, ascending."""
        return [i for i in range(LANES) if self.exec >> i & 1]

    def v64(self, index: int) -> npt.NDArray[np.uint64]:
        """(64,) uint64 held by v[index:index+1] (a copy)."""
        low, high = self.v[index], self.v[index + 1].astype(np.uint64)
        value: npt.NDArray[np.uint64] = low | high << np.uint64(32)
        return value

    def set_v64(self, index: int, value: npt.ArrayLike) -> None:
        bits = np.broadcast_to(np.asarray(value, np.uint64), (LANES,))
        self.v[index] = bits.astype(np.uint32)
        self.v[index + 1] = (bits >> np.uint64(32)).astype(np.uint32)

    def run(self, code: str | npt.ArrayLike, max_instructions: int = 1 << 20) -> Run:
        """Execute assembly text, or encoded dwords, from its start to its end.

        Raises
        ------
        MachineFault
            Registers and memory then hold the state at the fault.
        """
        words = self._words(code)
        state = self._state(max_instructions)
        fault = LIBRARY.vdev_test_run(words.ctypes.data, words.size, ctypes.byref(state))
        self.mode, self.scc = state.mode, state.scc
        if fault:
            raise MachineFault(
                FaultKind(fault),
                state.message.decode(),
                state.fault_lane,
                state.fault_address,
                state.pc,
            )
        return Run(state.instructions, state.pc, state.progress)

    def inspect(self, code: str | npt.ArrayLike) -> Inspection:
        """What the first instruction would read, write and touch from here; see `Inspection`."""
        words = self._words(code)
        state = self._state(0)
        arguments = (words.ctypes.data, words.size, ctypes.byref(state))
        buffer = ctypes.create_string_buffer(LIBRARY.vdev_test_inspect(*arguments, None, 0))
        LIBRARY.vdev_test_inspect(*arguments, buffer, len(buffer))
        return Inspection.parse(buffer.value.decode())

    def _words(self, code: str | npt.ArrayLike) -> U32:
        choose_machine(LIBRARY, self.cpu)
        words = assemble(code, self.cpu) if isinstance(code, str) else code
        return np.asarray(words, dtype=np.uint32)

    def _state(self, max_instructions: int) -> State:
        for array, dtype in (
            (self.v, np.uint32),
            (self.s, np.uint32),
            (self.lds, np.uint8),
            (self.scratch, np.uint32),
            (self.memory, np.uint8),
        ):
            assert array.dtype == dtype and array.flags.c_contiguous, "an array was replaced"
        assert self.v.shape == (512, LANES) and self.s.shape == (128,)
        return State(
            vgprs=self.v.ctypes.data,
            sgprs=self.s.ctypes.data,
            lds=self.lds.ctypes.data,
            lds_bytes=self.lds.size,
            scratch=self.scratch.ctypes.data,
            scratch_lane_bytes=self.scratch.size * 4 // LANES,
            memory=self.memory.ctypes.data,
            memory_bytes=self.memory.size,
            max_instructions=max_instructions,
            mode=self.mode,
            scc=self.scc,
        )


def mask_lanes(mask: int) -> npt.NDArray[np.bool_]:
    """(64,) bool of a lane mask."""
    return np.array([mask >> i & 1 for i in range(LANES)], bool)


EXEC_MASKS = (ALL_LANES, 0, 1, 1 << 63, 0x5555555555555555, 0x00FF00F0F0F00001, 0xFFFFFFFF00000000)
