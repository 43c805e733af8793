"""The kinds of rows of the table of micro kernels: one figure each, and how to obtain it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from amdattn.arch.products import REFERENCE

ARCH = REFERENCE.arch
# Waves of a workgroup that fills its CU: a wave has 256 VGPRs, the workgroup has all of the LDS.
WAVES = 8
LANES = 64
LOAD_BYTES = 16 * LANES * WAVES  # one load by every lane of a workgroup
UNROLLED = 8
FEW_PASSES, MORE_PASSES = 8, 24

LDS_WAIT = "\ns_waitcnt lgkmcnt(0)"
# Each wave has its own 4 KiB.
LDS_OWN = (
    "v_lshrrev_b32 v7, 6, v0\nv_lshlrev_b32 v7, 12, v7\n"
    + "".join(f"v_add_u32 v{i}, v7, v{i}\n" for i in (2, 3, 5))
    + f"ds_write_b128 v3, v[8:11]{LDS_WAIT}"
)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The figure that a row shows if the assumption `of` holds; with `high`, a range."""

    of: str
    value: float
    high: float | None = None

    def __str__(self) -> str:
        upper = "" if self.high is None else f" to {self.high:g}"
        return f"{self.value:g}{upper}: {self.of}"


def reads(of: str, value: float, high: float | None = None) -> Reading:
    """A reading, with the assumption first, as in a table."""
    return Reading(of=of, value=value, high=high)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure.

    Attributes
    ----------
    unit : str
        Of the figure.
    name : str
        Unique, and part of the symbols of its kernels.
    what : str
        What is measured, for people.
    settles : str
        The assumption of docs/studies/performance-model.md that the figure decides.
    readings : tuple of Reading
        The model's own first. Empty: there is no prediction.
    """

    unit: ClassVar[str] = "clk"
    name: str
    what: str
    settles: str
    readings: tuple[Reading, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Clk(Row):
    """Clk by which another copy of `text` lengthens a loop of one workgroup.

    Attributes
    ----------
    text : str
        Instructions; `@` stands for a number that differs in every copy.
    before : str
        Instructions that run once before the loop.
    copies : int
        Copies in the shorter of two loops; the longer one has twice as many.
    waves : int
        Waves of the workgroup.
    """

    text: str
    before: str = ""
    copies: int = 32
    waves: int = 1

    def symbol(self, copies: int) -> str:
        """Symbol of the kernel with `copies` copies in its loop."""
        return f"amdattn_micro_{self.name}_{copies}"

    def value(self, clk: float) -> float:
        """The figure, from the clk of a copy."""
        return clk


@dataclass(frozen=True, kw_only=True)
class LdsRate(Clk):
    """Bytes per clk that the LDS of a CU moves if all waves access it."""

    unit: ClassVar[str] = "B/clk/CU"
    nbytes: int  # per lane
    waves: int = WAVES
    before: str = LDS_OWN

    def value(self, clk: float) -> float:
        """Bytes of all waves per clk of a copy."""
        return self.waves * self.nbytes * LANES / clk


@dataclass(frozen=True, kw_only=True)
class Stream(Row):
    """TB/s of all bytes, read and written, while every CU streams through arrays in memory.

    Attributes
    ----------
    reads : int
        Arrays that are read.
    writes : bool
        Whether another array is written.
    passes : int
        Passes of the loop, each of which covers 64 KiB of each array per workgroup. They determine
        the size.
    warm : bool
        Whether an earlier launch has read the arrays.
    """

    unit: ClassVar[str] = "TB/s"
    reads: int
    writes: bool
    passes: int
    warm: bool = False

    @property
    def symbol(self) -> str:
        """Symbol of the kernel, which rows of different sizes share."""
        return f"amdattn_micro_stream_{self.reads}_{int(self.writes)}"

    @property
    def arrays(self) -> int:
        """Number of arrays."""
        return self.reads + self.writes


@dataclass(frozen=True, kw_only=True)
class Region(Row):
    """TB/s of all CUs that read one region repeatedly.

    Attributes
    ----------
    nbytes : int
        Size of the region.
    apart : int
        Bytes between the starts of consecutive workgroups.
    """

    unit: ClassVar[str] = "TB/s"
    nbytes: int
    apart: int

    symbol: ClassVar[str] = "amdattn_micro_region"

    @property
    def passes(self) -> int:
        """Passes of the shorter launch; the longer one has twice as many."""
        return max(8, self.nbytes // (LOAD_BYTES * UNROLLED))


@dataclass(frozen=True, kw_only=True)
class Latency(Row):
    """Clk of one load of 256 bytes from the level of the memory that holds its lines.

    The kernel loads the lines cold (HBM), again (L1), and once more after loading `evicted` bytes
    of other lines.
    """

    level: str
    load: int  # index of the load that counts, 0 to 2
    evicted: int = 1 << 16

    symbol: ClassVar[str] = "amdattn_micro_latency"


@dataclass(frozen=True, kw_only=True)
class Clock(Row):
    """GHz of the engine while all CUs execute MFMAs (`loaded`) or one wave works alone."""

    unit: ClassVar[str] = "GHz"
    of: str = "mfma_32x32x8_bf16"  # name of the row whose kernel runs
    loaded: bool = field(default=False)
