"""The problem of layer normalisation with all options, before any choice of kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

from amdattn import scalars
from amdattn.arch.architectures import Architecture
from amdattn.dtypes import FLOAT32, DType, as_dtype
from amdattn.ops.norm.problem import NormProblem
from amdattn.ops.quantize.problem import PER, chosen

SAME, NARROW = "same", "e4m3"  # of `to`
MADE = "made"  # of `scale`; or given, of `PER`
_BITS = 16  # bits of a random number


@dataclass(frozen=True)
class LayerNormProblem:
    """Layer or RMS normalisation of rows, with a bias, dropout and 8-bit results.

    Parameters
    ----------
    shape : tuple of int
        Shape of x without its last axis; all of these axes together are the rows.
    columns : int
    dtype : str
    bias : bool
    residual : bool
        Whether a residual is added first.
    eps : float
    in_place : bool
        Whether a result may be x or the residual itself, with the same elements in the same places.
    weight_dtype : str, optional
        Type of weight and bias: `dtype`, or float32. None: `dtype`.
    dropout_p : float
        Probability that an element of x is dropped.
    to : {"same", "e4m3"}
        Type of the result: that of x, or the device's 8-bit type with 4 exponent bits.
    scale : {"made", "row", "tensor"}
        Scales of 8-bit results: made for each row, given for each row, or one given for all.
    rms : bool
        Whether no mean is subtracted, as in `rms_norm`.

    Raises
    ------
    ValueError, TypeError
        A malformed value. Whether a kernel exists is decided later.
    """

    shape: tuple[int, ...]
    columns: int
    dtype: str = "bfloat16"
    bias: bool = False
    residual: bool = False
    eps: float = 1e-5
    in_place: bool = False
    weight_dtype: str | None = None
    dropout_p: float = 0.0
    to: str = SAME
    scale: str = MADE
    rms: bool = False

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        plain = self.plain  # checks the arguments that both have
        for name in ("shape", "columns", "dtype", "residual", "eps", "in_place", "weight_dtype"):
            put(name, getattr(plain, name))
        for name in ("bias", "rms"):
            put(name, scalars.boolean(name, getattr(self, name)))
        put("dropout_p", scalars.number("dropout_p", self.dropout_p))
        if not 0 <= self.dropout_p < 1:
            raise ValueError(f"dropout_p={self.dropout_p} must be at least 0 and less than 1")
        put("to", chosen("to", self.to, (SAME, NARROW)))
        put("scale", chosen("scale", self.scale, (MADE, *PER)))
        if self.scale != MADE and not self.narrow:
            raise ValueError(f"scale={self.scale!r} must be {MADE!r}: results are not {NARROW}")

    @property
    def plain(self) -> NormProblem:
        """The problem without the options that `rms_norm` lacks."""
        return NormProblem(
            *(self.shape, self.columns, self.dtype, self.residual, self.eps, self.in_place),
            weight_dtype=self.weight_dtype,
        )

    @property
    def rows(self) -> int:
        """Rows of x."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element of x."""
        return as_dtype(self.dtype).itemsize

    @property
    def weight_element(self) -> DType:
        """The type of weight and bias."""
        return as_dtype(self.weight_dtype)

    @property
    def draws(self) -> bool:
        """Whether elements are dropped at random."""
        return self.dropout_p > 0

    @property
    def threshold(self) -> int:
        """Elements whose 16 random bits are below this are dropped."""
        return min(round(self.dropout_p * (1 << _BITS)), (1 << _BITS) - 1)

    @property
    def kept(self) -> float:
        """The factor of elements that are not dropped."""
        return 1 / (1 - self.dropout_p)

    @property
    def narrow(self) -> bool:
        """Whether the result has 8 bits."""
        return self.to == NARROW

    @property
    def makes_scale(self) -> bool:
        """Whether a scale of each row is a result."""
        return self.narrow and self.scale == MADE

    @property
    def scales(self) -> int:
        """The number of scales, made or given."""
        if not self.narrow:
            return 0
        return 1 if self.scale == "tensor" else self.rows

    def out_element(self, arch: Architecture) -> DType:
        """The type of the result."""
        return as_dtype(arch.fp8 if self.narrow else self.dtype)

    @property
    def text(self) -> str:
        """All arguments."""
        return (
            f"layer_norm {self.dtype}, rows={self.rows} columns={self.columns} bias={self.bias} "
            f"residual={self.residual} eps={self.eps:.6g} in_place={self.in_place} "
            f"weight_dtype={self.weight_dtype} dropout_p={self.dropout_p:.6g} to={self.to} "
            f"scale={self.scale} rms={self.rms}"
        )

    @property
    def brief(self) -> str:
        """Sizes, and what differs from the defaults."""
        found = f"{self.rows}x{self.columns}" + f" {self.dtype}" * (self.dtype != "bfloat16")
        found += " bias" * self.bias + " residual" * self.residual + " in_place" * self.in_place
        found += f" weight_{self.weight_dtype}" * (self.weight_dtype != self.dtype)
        found += f" dropout_p={self.dropout_p:.6g}" * self.draws + f" to {self.to}" * self.narrow
        found += f" scale {self.scale}" * (self.scale != MADE)
        return found + " rms" * self.rms

    @property
    def flops(self) -> int:
        """Operations of sums, differences, squares and products."""
        of_element = 8 + self.bias + self.residual + 2 * self.draws + 2 * self.narrow
        return of_element * self.rows * self.columns

    @property
    def read_bytes(self) -> int:
        """Bytes that are read, each counted once."""
        of_rows = (1 + self.residual) * self.itemsize * self.rows * self.columns
        of_columns = (1 + self.bias) * self.weight_element.itemsize * self.columns
        given = self.scales * (not self.makes_scale)
        return of_rows + of_columns + FLOAT32.itemsize * given + 16 * self.draws

    @property
    def nbytes(self) -> int:
        """Bytes of all operands, each counted once."""
        of_element = 1 if self.narrow else self.itemsize
        written = (of_element + self.residual * self.itemsize) * self.rows * self.columns
        return self.read_bytes + written + FLOAT32.itemsize * self.scales * self.makes_scale
