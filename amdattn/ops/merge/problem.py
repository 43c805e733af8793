"""The problem of merging partial attention results, before any choice of kernel."""

from __future__ import annotations

from dataclasses import dataclass

from amdattn import scalars
from amdattn.dtypes import as_dtype
from amdattn.scalars import INT32_MAX

_COUNTS = ("num_parts", "batch", "seqlen", "num_heads", "head_dim")
LSE_BYTES = 4


@dataclass(frozen=True)
class MergeProblem:
    """A merge of attention over disjoint sets of keys.

    Parameters
    ----------
    num_parts, batch, seqlen, num_heads, head_dim : int
        Sizes of o, each in 1..2**31 - 1.
    dtype : str
        Type of o and of the result.

    Raises
    ------
    ValueError, TypeError
        A malformed value. Whether a kernel exists is decided later.
    """

    num_parts: int
    batch: int
    seqlen: int
    num_heads: int
    head_dim: int
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        for name in _COUNTS:
            count = scalars.integer(name, getattr(self, name))
            if not 1 <= count <= INT32_MAX:
                raise ValueError(f"{name}={count} must be in 1..{INT32_MAX}")
            object.__setattr__(self, name, count)
        object.__setattr__(self, "dtype", as_dtype(self.dtype).name)

    @property
    def rows(self) -> int:
        """Queries of all heads and sequences."""
        return self.batch * self.seqlen * self.num_heads

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of a part or of the result."""
        return self.head_dim * as_dtype(self.dtype).itemsize

    @property
    def text(self) -> str:
        """All arguments."""
        sizes = " ".join(f"{name}={getattr(self, name)}" for name in _COUNTS)
        return f"merge_state {self.dtype}, {sizes}"

    @property
    def brief(self) -> str:
        """Sizes, and what differs from the defaults."""
        sizes = f"{self.batch}x{self.seqlen}x{self.num_heads}x{self.head_dim}"
        of_dtype = f" {self.dtype}" * (self.dtype != "bfloat16")
        return f"{self.num_parts} parts {sizes}{of_dtype}"

    @property
    def flops(self) -> int:
        """Operations of weighted sums, and two for the exponential of each weight."""
        return self.num_parts * self.rows * (2 * self.head_dim + 4)

    @property
    def nbytes(self) -> int:
        """Bytes of all operands, each counted once."""
        return (self.num_parts + 1) * self.rows * (self.row_bytes + LSE_BYTES)
