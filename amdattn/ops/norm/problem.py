"""The problem of RMS normalisation, before any choice of kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

from amdattn import scalars
from amdattn.dtypes import FLOAT32, DType, as_dtype
from amdattn.scalars import FLOAT32_MAX, INT32_MAX


@dataclass(frozen=True)
class NormProblem:
    """RMS normalisation of rows.

    Parameters
    ----------
    shape : tuple of int
        Shape of x without its last axis; all of these axes together are the rows.
    columns : int
    dtype : str
    residual : bool
        Whether a residual is added first.
    eps : float
    in_place : bool
        Whether a result may be x or the residual itself, with the same elements in the same places.
    weight_dtype : str, optional
        `dtype`, or float32, which is not rounded; None: `dtype`.

    Raises
    ------
    ValueError, TypeError
        A malformed value. Whether a kernel exists is decided later.
    """

    shape: tuple[int, ...]
    columns: int
    dtype: str = "bfloat16"
    residual: bool = False
    eps: float = 1e-6
    in_place: bool = False
    weight_dtype: str | None = None

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        put("shape", tuple(scalars.integer("rows", count) for count in self.shape))
        put("columns", scalars.integer("columns", self.columns))
        rows = [("rows", count) for count in (*self.shape, self.rows)]
        for name, count in (*rows, ("columns", self.columns)):
            if not 1 <= count <= INT32_MAX:
                raise ValueError(f"{name}={count} must be in 1..{INT32_MAX}")
        put("dtype", as_dtype(self.dtype).name)
        weights = self.dtype if self.weight_dtype is None else self.weight_dtype
        put("weight_dtype", as_dtype(weights, "weight_dtype").name)
        allowed = dict.fromkeys((self.dtype, FLOAT32.name))
        if self.weight_dtype not in allowed:
            raise ValueError(
                f"weight has dtype {self.weight_dtype}; with x of {self.dtype} it must be "
                + " or ".join(allowed)
            )
        put("residual", scalars.boolean("residual", self.residual))
        put("in_place", scalars.boolean("in_place", self.in_place))
        put("eps", scalars.number("eps", self.eps))
        if not 0 <= self.eps <= FLOAT32_MAX:
            raise ValueError(f"eps={self.eps} must be in 0..{FLOAT32_MAX}")

    @property
    def rows(self) -> int:
        """Rows of x."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return as_dtype(self.dtype).itemsize

    @property
    def weight_element(self) -> DType:
        """The type of weights."""
        return as_dtype(self.weight_dtype)

    @property
    def text(self) -> str:
        """All arguments."""
        return (
            f"rms_norm {self.dtype}, rows={self.rows} columns={self.columns} "
            f"residual={self.residual} eps={self.eps:.6g} in_place={self.in_place} "
            f"weight_dtype={self.weight_dtype}"
        )

    @property
    def brief(self) -> str:
        """Sizes, and what differs from the defaults."""
        of_dtype = f" {self.dtype}" * (self.dtype != "bfloat16")
        options = " residual" * self.residual + " in_place" * self.in_place
        options += f" weight_{self.weight_dtype}" * (self.weight_dtype != self.dtype)
        return f"{self.rows}x{self.columns}{of_dtype}{options}"

    @property
    def flops(self) -> int:
        """Operations of squares, sums and products."""
        return (4 + self.residual) * self.rows * self.columns

    @property
    def nbytes(self) -> int:
        """Bytes of all operands, each counted once."""
        matrices = 4 if self.residual else 2
        of_row = matrices * self.rows * self.itemsize + self.weight_element.itemsize
        return of_row * self.columns
