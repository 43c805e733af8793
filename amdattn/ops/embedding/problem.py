"""The problem of gathering rows of a table, before any choice of kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

from amdattn import scalars
from amdattn.dtypes import as_dtype
from amdattn.scalars import INT32_MAX


@dataclass(frozen=True)
class EmbeddingProblem:
    """Rows of a table.

    Parameters
    ----------
    shape : tuple of int
        Shape of the indices.
    columns : int
    table_rows : int
    dtype : str

    Raises
    ------
    ValueError, TypeError
        A malformed value. Whether a kernel exists is decided later.
    """

    shape: tuple[int, ...]
    columns: int
    table_rows: int
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        put("shape", tuple(scalars.integer("rows", count) for count in self.shape))
        for name in ("columns", "table_rows"):
            put(name, scalars.integer(name, getattr(self, name)))
        rows = [("rows", count) for count in (*self.shape, self.rows)]
        for name, count in (*rows, ("columns", self.columns), ("table_rows", self.table_rows)):
            if not 1 <= count <= INT32_MAX:
                raise ValueError(f"{name}={count} must be in 1..{INT32_MAX}")
        put("dtype", as_dtype(self.dtype).name)

    @property
    def rows(self) -> int:
        """Number of rows that are gathered."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return as_dtype(self.dtype).itemsize

    @property
    def text(self) -> str:
        """All arguments."""
        return (
            f"embedding {self.dtype}, rows={self.rows} columns={self.columns} "
            f"table_rows={self.table_rows}"
        )

    @property
    def brief(self) -> str:
        """Sizes, and what differs from the defaults."""
        of_dtype = f" {self.dtype}" * (self.dtype != "bfloat16")
        return f"{self.rows}x{self.columns} of {self.table_rows}{of_dtype}"

    @property
    def flops(self) -> int:
        """Elements of the result; nothing is computed."""
        return self.rows * self.columns

    @property
    def nbytes(self) -> int:
        """Bytes of the indices, and of rows that are read and written."""
        read = min(self.rows, self.table_rows)
        return (read + self.rows) * self.columns * self.itemsize + 4 * self.rows
