"""The problem of a rotary embedding, before any choice of kernel."""

from __future__ import annotations

from dataclasses import dataclass

from amdattn import scalars
from amdattn.dtypes import FLOAT32, DType, as_dtype
from amdattn.op.head_norm import NORM_EPS, norm_eps
from amdattn.scalars import INT32_MAX

# Kinds of positions. "none": a token's number; "offsets": an offset of each sequence is added to
# it; "tokens": each token has its own.
POSITIONS = ("none", "offsets", "tokens")


@dataclass(frozen=True)
class RotaryProblem:
    """A rotation of pairs of columns of x and k by the angles of their tokens' positions.

    Parameters
    ----------
    batch, seqlen, heads, head_dim : int
        Of x.
    heads_k : int
        Heads of k; 0: there is no k.
    rotary_dim : int
        Number of the first columns, which are rotated; 0: all.
    table_rows : int
        Number of positions in the tables; 0: seqlen.
    dtype : str
    table_dtype : str, optional
        `dtype` or float32; None: `dtype`.
    interleaved : bool
        Whether pairs are columns 2i and 2i + 1 rather than i and i + rotary_dim / 2.
    positions : {"none", "offsets", "tokens"}
    in_place : bool
        Whether results may be x and k themselves.
    packed : bool
        x is (tokens, heads, head_dim): one sequence without an axis for it.
    q_norm, k_norm : bool
        Whether heads of x, and of k, are first normalised (RMS) with a weight for each column.
    norm_eps : float
        Added to the mean of squares; 1e-6 without norms.

    Raises
    ------
    ValueError, TypeError
        A malformed value. Whether a kernel exists is decided later.
    """

    batch: int
    seqlen: int
    heads: int
    head_dim: int
    heads_k: int = 0
    rotary_dim: int = 0
    table_rows: int = 0
    dtype: str = "bfloat16"
    table_dtype: str | None = None
    interleaved: bool = False
    positions: str = "none"
    in_place: bool = False
    packed: bool = False
    q_norm: bool = False
    k_norm: bool = False
    norm_eps: float = NORM_EPS

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        for name in ("batch", "seqlen", "heads", "head_dim", "heads_k", "rotary_dim", "table_rows"):
            count = scalars.integer(name, getattr(self, name))
            least = int(name in ("batch", "seqlen", "heads", "head_dim"))
            if not least <= count <= INT32_MAX:
                raise ValueError(f"{name}={count} must be in {least}..{INT32_MAX}")
            put(name, count)
        put("rotary_dim", self.rotary_dim or self.head_dim)
        if self.rotary_dim % 2 or self.rotary_dim > self.head_dim:
            raise ValueError(
                f"rotary_dim={self.rotary_dim} must be even and at most head_dim={self.head_dim}"
            )
        put("dtype", as_dtype(self.dtype).name)
        tables = self.dtype if self.table_dtype is None else self.table_dtype
        put("table_dtype", as_dtype(tables, "table_dtype").name)
        allowed = dict.fromkeys((self.dtype, FLOAT32.name))
        if self.table_dtype not in allowed:
            raise ValueError(
                f"cos has dtype {self.table_dtype}; with x of {self.dtype} it must be "
                + " or ".join(allowed)
            )
        word = scalars.word("positions", self.positions)
        if word not in POSITIONS:
            raise ValueError(f"positions={word!r} must be {', '.join(POSITIONS)}")
        for name in ("interleaved", "in_place", "packed", "q_norm", "k_norm"):
            put(name, scalars.boolean(name, getattr(self, name)))
        if self.packed and self.batch > 1:
            raise ValueError(f"batch={self.batch} must be 1 with packed=True")
        if self.k_norm and not self.heads_k:
            raise ValueError("k_norm=True with heads_k=0: there is no k to normalise")
        put("norm_eps", norm_eps(self.norm_eps, self.is_normed))
        put("table_rows", self.table_rows or self.seqlen)
        if self.positions == POSITIONS[0] and self.table_rows < self.seqlen:
            raise ValueError(
                f"cos has {self.table_rows} positions, but x has {self.seqlen} tokens a sequence"
            )

    @property
    def table(self) -> DType:
        """The type of the tables."""
        return as_dtype(self.table_dtype)

    @property
    def is_normed(self) -> bool:
        """Whether heads of x or of k are normalised."""
        return self.q_norm or self.k_norm

    @property
    def tokens(self) -> int:
        """Tokens of all sequences."""
        return self.batch * self.seqlen

    @property
    def text(self) -> str:
        """All arguments."""
        return (
            f"rotary {self.dtype}, batch={self.batch} seqlen={self.seqlen} heads={self.heads} "
            f"head_dim={self.head_dim} heads_k={self.heads_k} rotary_dim={self.rotary_dim} "
            f"table_rows={self.table_rows} table_dtype={self.table_dtype} "
            f"interleaved={self.interleaved} positions={self.positions} in_place={self.in_place} "
            f"packed={self.packed} q_norm={self.q_norm} k_norm={self.k_norm} "
            f"norm_eps={self.norm_eps:.6g}"
        )

    @property
    def brief(self) -> str:
        """Sizes, and what differs from the defaults."""
        heads = f"{self.heads}" + f"/{self.heads_k}" * (self.heads_k > 0)
        of_dtype = f" {self.dtype}" * (self.dtype != "bfloat16")
        options = f" of {self.rotary_dim}" * (self.rotary_dim != self.head_dim)
        options += f" tables {self.table_dtype}" * (self.table_dtype != self.dtype)
        options += " interleaved" * self.interleaved + " in_place" * self.in_place
        options += f" {self.positions}" * (self.positions != POSITIONS[0]) + " packed" * self.packed
        options += " q_norm" * self.q_norm + " k_norm" * self.k_norm
        options += f" norm_eps={self.norm_eps:.6g}" * (self.norm_eps != NORM_EPS)
        return f"{self.batch}x{self.seqlen}x{heads}x{self.head_dim}{of_dtype}{options}"

    @property
    def flops(self) -> int:
        """Operations: four products and two sums for a pair, four for a normalised column."""
        normed = self.q_norm * self.heads + self.k_norm * self.heads_k
        turned = 3 * (self.heads + self.heads_k) * self.rotary_dim
        return self.tokens * (turned + 4 * normed * self.head_dim)

    @property
    def nbytes(self) -> int:
        """Bytes of all operands, each counted once; for tables, the rows of one sequence."""
        item = as_dtype(self.dtype).itemsize
        rows = 2 * self.tokens * (self.heads + self.heads_k) * self.head_dim * item
        tables = min(self.table_rows, self.tokens) * self.rotary_dim * self.table.itemsize
        counts = {"none": 0, "offsets": self.batch, "tokens": self.tokens}
        weights = (self.q_norm + self.k_norm) * self.head_dim * item
        return rows + tables + 4 * counts[self.positions] + weights
