"""The problem of the gradients of RMS normalisation, before any choice of kernel."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from amdattn import scalars
from amdattn.dtypes import DType
from amdattn.ops.norm.problem import NormProblem
from amdattn.scalars import INT32_MAX


@dataclass(frozen=True)
class NormBackwardProblem:
    """Gradients of RMS normalisation: of x by row, of the weight by group of rows.

    Parameters
    ----------
    groups : int
        Number of groups; the gradient of the weight is summed over the rows of a group.
    rows : int
        Rows of a group.
    columns : int
    dtype : str
    residual : bool
        Whether the normalised sum was also a result, whose gradient is added.
    eps : float
    weight_dtype : str, optional
        `dtype`, or float32; None: `dtype`. The weight's gradient is float32 in either case.

    Raises
    ------
    ValueError, TypeError
        A malformed value. Whether a kernel exists is decided later.
    """

    groups: int
    rows: int
    columns: int
    dtype: str = "bfloat16"
    residual: bool = False
    eps: float = 1e-6
    weight_dtype: str | None = None

    def __post_init__(self) -> None:
        for name in ("groups", "rows"):
            count = scalars.integer(name, getattr(self, name))
            if not 1 <= count <= INT32_MAX:
                raise ValueError(f"{name}={count} must be in 1..{INT32_MAX}")
            object.__setattr__(self, name, count)
        forward = self.forward  # checks the rest
        for field in dataclasses.fields(self)[2:]:
            object.__setattr__(self, field.name, getattr(forward, field.name))

    @property
    def forward(self) -> NormProblem:
        """The forward problem."""
        return NormProblem(
            (self.groups, self.rows),
            *(self.columns, self.dtype, self.residual, self.eps),
            weight_dtype=self.weight_dtype,
        )

    @property
    def all_rows(self) -> int:
        """Rows of all groups."""
        return self.groups * self.rows

    @property
    def weight_element(self) -> DType:
        """The type of weights."""
        return self.forward.weight_element

    @property
    def text(self) -> str:
        """All arguments."""
        return (
            f"rms_norm_backward {self.dtype}, groups={self.groups} rows={self.rows} "
            f"columns={self.columns} residual={self.residual} eps={self.eps:.6g} "
            f"weight_dtype={self.weight_dtype}"
        )

    @property
    def brief(self) -> str:
        """Sizes, and what differs from the defaults."""
        of_groups = f"{self.groups}x" * (self.groups > 1)
        of_dtype = f" {self.dtype}" * (self.dtype != "bfloat16")
        options = " residual" * self.residual
        options += f" weight_{self.weight_dtype}" * (self.weight_dtype != self.dtype)
        return f"{of_groups}{self.rows}x{self.columns}{of_dtype}{options}"

    @property
    def flops(self) -> int:
        """Operations of both sums and both gradients."""
        return (13 + self.residual) * self.all_rows * self.columns

    @property
    def nbytes(self) -> int:
        """Bytes of all operands, each counted once."""
        matrices = (3 + self.residual) * self.all_rows * self.forward.itemsize
        return (matrices + self.weight_element.itemsize + 4 * self.groups) * self.columns
