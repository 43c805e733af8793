"""The problem of the gradients of layer normalisation with all options."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from amdattn import scalars
from amdattn.dtypes import DType
from amdattn.ops.layer_norm.problem import LayerNormProblem
from amdattn.scalars import INT32_MAX


@dataclass(frozen=True)
class LayerNormBackwardProblem:
    """Gradients of normalised rows: of x by row, of weight and bias by group of rows.

    Parameters
    ----------
    groups : int
        Number of groups; gradients of weight and bias are summed over the rows of a group.
    rows : int
        Rows of a group.
    columns : int
    dtype : str
    bias : bool
    residual : bool
        Whether the normalised sum was also a result, whose gradient is added.
    eps : float
    weight_dtype : str, optional
        `dtype`, or float32; None: `dtype`. Gradients of weight and bias are float32 in either case.
    dropout_p : float
    rms : bool
        Whether no mean was subtracted.
    behind : int
        How far the offset of the state is ahead of that of the forward pass: 1 if no call has used
        the state since, 0 for a copy from before it.

    Raises
    ------
    ValueError, TypeError
        A malformed value. Whether a kernel exists is decided later.
    """

    groups: int
    rows: int
    columns: int
    dtype: str = "bfloat16"
    bias: bool = False
    residual: bool = False
    eps: float = 1e-5
    weight_dtype: str | None = None
    dropout_p: float = 0.0
    rms: bool = False
    behind: int = 1

    def __post_init__(self) -> None:
        for name, least in (("groups", 1), ("rows", 1), ("behind", 0)):
            count = scalars.integer(name, getattr(self, name))
            if not least <= count <= INT32_MAX:
                raise ValueError(f"{name}={count} must be in {least}..{INT32_MAX}")
            object.__setattr__(self, name, count)
        forward = self.forward  # checks the rest
        for field in dataclasses.fields(self)[2:-1]:
            object.__setattr__(self, field.name, getattr(forward, field.name))

    @property
    def forward(self) -> LayerNormProblem:
        """The forward problem."""
        return LayerNormProblem(
            (self.groups, self.rows),
            *(self.columns, self.dtype, self.bias, self.residual, self.eps),
            weight_dtype=self.weight_dtype,
            dropout_p=self.dropout_p,
            rms=self.rms,
        )

    @property
    def all_rows(self) -> int:
        """Rows of all groups."""
        return self.groups * self.rows

    @property
    def draws(self) -> bool:
        """Whether elements of x were dropped."""
        return self.forward.draws

    @property
    def splits(self) -> bool:
        """Whether the gradient of the residual differs from that of x."""
        return self.residual and self.draws

    @property
    def weight_element(self) -> DType:
        """The type of weights."""
        return self.forward.weight_element

    @property
    def text(self) -> str:
        """All arguments."""
        return (
            f"layer_norm_backward {self.dtype}, groups={self.groups} rows={self.rows} "
            f"columns={self.columns} bias={self.bias} residual={self.residual} eps={self.eps:.6g} "
            f"weight_dtype={self.weight_dtype} dropout_p={self.dropout_p:.6g} rms={self.rms} "
            f"behind={self.behind}"
        )

    @property
    def brief(self) -> str:
        """Sizes, and what differs from the defaults."""
        of_groups = f"{self.groups}x" * (self.groups > 1)
        found = f"{of_groups}{self.rows}x{self.columns}" + f" {self.dtype}" * (
            self.dtype != "bfloat16"
        )
        found += " bias" * self.bias + " residual" * self.residual
        found += f" weight_{self.weight_dtype}" * (self.weight_dtype != self.dtype)
        return found + f" dropout_p={self.dropout_p:.6g}" * self.draws + " rms" * self.rms

    @property
    def flops(self) -> int:
        """Operations of moments and sums, for all gradients."""
        return (20 + self.residual + self.bias) * self.all_rows * self.columns

    @property
    def nbytes(self) -> int:
        """Bytes of all operands, each counted once."""
        matrices = (3 + self.residual + self.splits) * self.all_rows * self.forward.itemsize
        of_groups = 4 * self.groups * (1 + self.bias)
        of_column = matrices + self.weight_element.itemsize + of_groups
        return of_column * self.columns + 16 * self.draws
