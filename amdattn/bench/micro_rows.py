"""What rows of the table of micro kernels are: one figure each, and how it is got."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from amdattn.arch.products import REFERENCE

ARCH = REFERENCE.arch
WAVES = 8  # of a workgroup, which fills its CU: a wave has 256 VGPRs, the workgroup all of the LDS
LANES = 64
LOAD_BYTES = 16 * LANES * WAVES  # of one load of every lane of a workgroup
UNROLLED = 8
FEW_PASSES, MORE_PASSES = 8, 24

LDS_WAIT = "\ns_waitcnt lgkmcnt(0)"
# Each wave has 4 KiB of its own.
LDS_OWN = (
    "v_lshrrev_b32 v7, 6, v0\nv_lshlrev_b32 v7, 12, v7\n"
    + "".join(f"v_add_u32 v{i}, v7, v{i}\n" for i in (2, 3, 5))
    + f"ds_write_b128 v3, v[8:11]{LDS_WAIT}"
)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a row shows if `of` holds; `high` makes it a range."""

    of: str
    value: float
    high: float | None = None

    def __str__(self) -> str:
        upper = "" if self.high is None else f" to {self.high:g}"
        return f"{self.value:g}{upper}: {self.of}"


def reads(of: str, value: float, high: float | None = None) -> Reading:
    """A reading, in the order that a table has it."""
    return Reading(of=of, value=value, high=high)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure.

    Attributes
    ----------
    name : str
        Unique, and part of the symbols of its kernels.
    what : str
        For people.
    settles : str
        The assumption of docs/studies/performance-model.md that it decides.
    readings : tuple of Reading
        The model's first. None: there is no prediction.
    """

    unit: ClassVar[str] = "clk"
    name: str
    what: str
    settles: str
    readings: tuple[Reading, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Clk(Row):
    """Clk by which a further copy of `text` lengthens a loop of one workgroup.

    `before` runs once, in front of the loop. `@` in the text is a number of its own in every copy.
    """

    text: str
    before: str = ""
    copies: int = 32
    waves: int = 1

    def symbol(self, copies: int) -> str:
        """Of the kernel with so many copies in its loop."""
        return f"amdattn_micro_{self.name}_{copies}"

    def value(self, clk: float) -> float:
        """The figure, from clk of a copy."""
        return clk


@dataclass(frozen=True, kw_only=True)
class LdsRate(Clk):
    """Bytes per clk of a CU, all of its waves at it."""

    unit: ClassVar[str] = "B/clk/CU"
    nbytes: int  # of a lane
    waves: int = WAVES
    before: str = LDS_OWN

    def value(self, clk: float) -> float:
        """Bytes of all waves in the time of a copy."""
        return self.waves * self.nbytes * LANES / clk


@dataclass(frozen=True, kw_only=True)
class Stream(Row):
    """TB/s of all bytes that move: every CU goes over arrays in memory.

    Attributes
    ----------
    passes : int
        Of a loop in which a workgroup goes over 64 KiB of each array: the size.
    warm : bool
        A launch before has read the arrays.
    """

    unit: ClassVar[str] = "TB/s"
    reads: int
    writes: bool
    passes: int
    warm: bool = False

    @property
    def symbol(self) -> str:
        """Of its kernel; rows of different sizes share one."""
        return f"amdattn_micro_stream_{self.reads}_{int(self.writes)}"

    @property
    def arrays(self) -> int:
        """How many there are."""
        return self.reads + self.writes


@dataclass(frozen=True, kw_only=True)
class Region(Row):
    """TB/s of all CUs that read one region again and again; neighbours start `apart` bytes on."""

    unit: ClassVar[str] = "TB/s"
    nbytes: int
    apart: int

    symbol: ClassVar[str] = "amdattn_micro_region"

    @property
    def passes(self) -> int:
        """Of the shorter launch; the longer one has twice as many."""
        return max(8, self.nbytes // (LOAD_BYTES * UNROLLED))


@dataclass(frozen=True, kw_only=True)
class Latency(Row):
    """Clk of one load of 256 bytes by the level that has its lines.

    The kernel loads it cold (HBM), again (L1), and once more behind `evicted` bytes of other lines.
    """

    level: str
    load: int  # which of the three
    evicted: int = 1 << 16

    symbol: ClassVar[str] = "amdattn_micro_latency"


@dataclass(frozen=True, kw_only=True)
class Clock(Row):
    """GHz of the engine while all CUs do MFMAs, or one workgroup does little."""

    unit: ClassVar[str] = "GHz"
    of: str = "mfma_32x32x8_bf16"  # whose kernel runs
    loaded: bool = field(default=False)
