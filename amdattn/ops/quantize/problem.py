"""The problem of a quantisation to 8 bits, before any choice of kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

from amdattn import scalars
from amdattn.arch.architectures import Architecture
from amdattn.dtypes import FLOAT32, DType, as_dtype
from amdattn.scalars import INT32_MAX

NARROW = (
    "e4m3",
    "e5m2",
)  # by exponents and mantissas; each architecture has two types
PER = ("row", "tensor")
# Blocks of rows and columns; blocks within a row are treated as rows.
BLOCKS, BLOCK = "block", 128
LEAST_SCALE = 2.0**-126  # the least normal float32, whose reciprocal is finite


def chosen(name: str, value: object, allowed: tuple[str, ...]) -> str:
    """Check that a word is one of the allowed ones, and return it."""
    word = scalars.word(name, value)
    if word not in allowed:
        raise ValueError(f"{name}={word!r} must be {' or '.join(allowed)}")
    return word


@dataclass(frozen=True)
class QuantizeProblem:
    """``y = x / scale`` in 8 bits, with a scale that is computed from x or given.

    Parameters
    ----------
    rows, columns : int
        Rows and columns of x.
    dtype : str
        Type of x.
    to : {"e4m3", "e5m2"}
        Type of y, which is the device's own.
    per : {"row", "tensor", "block"}
        What a scale belongs to; a block has 128 rows and 128 columns.
    scale : bool
        Whether the scale is given.

    Raises
    ------
    ValueError, TypeError
        A malformed value. Whether a kernel exists is decided later.
    """

    rows: int
    columns: int
    dtype: str = "bfloat16"
    to: str = "e4m3"
    per: str = "row"
    scale: bool = False

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        for name in ("rows", "columns"):
            count = scalars.integer(name, getattr(self, name))
            if not 1 <= count <= INT32_MAX:
                raise ValueError(f"{name}={count} must be in 1..{INT32_MAX}")
            put(name, count)
        put("dtype", as_dtype(self.dtype).name)
        for name, allowed in (("to", NARROW), ("per", (*PER, BLOCKS))):
            put(name, chosen(name, getattr(self, name), allowed))
        put("scale", scalars.boolean("scale", self.scale))
        if self.scale and self.per == BLOCKS:
            raise ValueError(f"scale=True must be False with per={BLOCKS!r}: they are made")

    @property
    def itemsize(self) -> int:
        """Bytes of an element of x."""
        return as_dtype(self.dtype).itemsize

    @property
    def scales(self) -> int:
        """The number of scales."""
        return math.prod(self.scale_shape)

    @property
    def scale_shape(self) -> tuple[int, ...]:
        """The shape of scales that are computed."""
        if self.per == BLOCKS:
            return -(-self.rows // BLOCK), -(-self.columns // BLOCK)
        return (self.rows, 1) if self.per == "row" else (1,)

    def narrow(self, arch: Architecture) -> DType:
        """The type of y."""
        return as_dtype(arch.fp8 if self.to == "e4m3" else arch.bf8)

    @property
    def text(self) -> str:
        """All arguments."""
        return (
            f"quantize_fp8 {self.dtype}, rows={self.rows} columns={self.columns} to={self.to} "
            f"per={self.per} scale={self.scale}"
        )

    @property
    def brief(self) -> str:
        """Sizes, and what differs from the defaults."""
        of_dtype = f" {self.dtype}" * (self.dtype != "bfloat16")
        options = f" to {self.to}" * (self.to != "e4m3") + f" per {self.per}" * (self.per != "row")
        return f"{self.rows}x{self.columns}{of_dtype}{options}" + " given scale" * self.scale

    @property
    def flops(self) -> int:
        """Operations of magnitudes and products."""
        return (2 - self.scale) * self.rows * self.columns

    @property
    def x_bytes(self) -> int:
        """Bytes of x."""
        return self.itemsize * self.rows * self.columns

    @property
    def nbytes(self) -> int:
        """Bytes of all operands, each counted once."""
        return self.x_bytes + self.rows * self.columns + FLOAT32.itemsize * self.scales
