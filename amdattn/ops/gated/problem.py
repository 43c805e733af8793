"""The problem of a gated activation, before any choice of kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

from amdattn import scalars
from amdattn.dtypes import as_dtype
from amdattn.scalars import INT32_MAX

# The kernel's names; `gelu_tanh` approximates `gelu` by a tanh.
ACTIVATIONS = {"silu": 1, "gelu_tanh": 2, "gelu": 3}


@dataclass(frozen=True)
class GatedProblem:
    """``f(gate) * up`` for rows.

    Parameters
    ----------
    shape : tuple of int
        Shape of the gate without its last axis; all of these axes together are the rows.
    columns : int
    dtype : str
    activation : {"silu", "gelu", "gelu_tanh"}
        f.
    in_place : bool
        Whether the result may be the gate or the factor, with the same elements in the same places.

    Raises
    ------
    ValueError, TypeError
        A malformed value. Whether a kernel exists is decided later.
    """

    shape: tuple[int, ...]
    columns: int
    dtype: str = "bfloat16"
    activation: str = "silu"
    in_place: bool = False

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
        word = scalars.word("activation", self.activation)
        if word not in ACTIVATIONS:
            raise ValueError(f"activation={word!r} must be {', '.join(ACTIVATIONS)}")
        put("activation", word)
        put("in_place", scalars.boolean("in_place", self.in_place))

    @property
    def rows(self) -> int:
        """Rows of the gate."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return as_dtype(self.dtype).itemsize

    @property
    def text(self) -> str:
        """All arguments."""
        return (
            f"gated_activation {self.dtype}, rows={self.rows} columns={self.columns} "
            f"activation={self.activation} in_place={self.in_place}"
        )

    @property
    def brief(self) -> str:
        """Sizes, and what differs from the defaults."""
        of_dtype = f" {self.dtype}" * (self.dtype != "bfloat16")
        options = f" {self.activation}" + " in_place" * self.in_place
        return f"{self.rows}x{self.columns}{of_dtype}{options}"

    @property
    def flops(self) -> int:
        """Operations; an exponential and a quotient of an activation count as one each."""
        return 5 * self.rows * self.columns

    @property
    def nbytes(self) -> int:
        """Bytes of all operands, each counted once."""
        return 3 * self.rows * self.columns * self.itemsize
