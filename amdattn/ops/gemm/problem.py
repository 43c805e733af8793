"""Frozen facts of a matrix product, before any choice of kernel."""

from __future__ import annotations

from dataclasses import dataclass

from amdattn import scalars
from amdattn.dtypes import as_dtype
from amdattn.scalars import FLOAT32_MAX, INT32_MAX

# What `aligned` promises of the rows of a and b, for kernels that load 16 bytes a lane.
ALIGN_BYTES = 4
MAX_ALIGNED_STRIDE = 2**24 - 1  # elements
MAX_TILE, MAX_REACH = 64, 2**31 - 2**26
ELEMENT_BYTES = 2  # of a, b and bias
# What activations end in whose results are multiplied by other rows'.
FACTORS = "_and_mul"


@dataclass(frozen=True, slots=True)
class GemmProblem:
    """``out = activation(alpha * a @ b^T + bias)``, sums in float32, rounded once.

    Parameters
    ----------
    m, n, k : int
        a is (m, k), b is (b_rows, k), out is (m, n); each in 1..2**31 - 1.
    dtype : str
        Element type of a, b and bias.
    out_dtype : str, optional
        Defaults to `dtype`.
    bias : bool
        Whether there is one, (b_rows,).
    alpha : float
    activation : str, optional
        None: the identity. With one that ends in "_and_mul" b has 2 n rows, and the results of the
        first n, activated, are multiplied by those of the others.
    split_k : int
        Parts that k is summed in, each by a workgroup of its own; 0 lets the planner choose.
    aligned : bool
        Whether the rows of a and b begin at multiples of 4 bytes, 0 to 2**24 - 1 elements apart; of
        a b of 2 n rows, n + 64 at this distance are less than 2**31 - 2**26 bytes.
    deterministic : bool
        Whether parts are added in their order; False: by atomic additions, as they come.

    Raises
    ------
    ValueError, TypeError
        A malformed value. Whether a kernel exists is decided later.
    """

    m: int
    n: int
    k: int
    dtype: str = "bfloat16"
    out_dtype: str = ""
    bias: bool = False
    alpha: float = 1.0
    activation: str | None = None
    split_k: int = 0
    aligned: bool = True
    deterministic: bool = True

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        for name, least in (("m", 1), ("n", 1), ("k", 1), ("split_k", 0)):
            count = scalars.integer(name, getattr(self, name))
            if not least <= count <= INT32_MAX:
                raise ValueError(f"{name}={count} must be in {least}..{INT32_MAX}")
            put(name, count)
        put("dtype", as_dtype(self.dtype).name)
        put("out_dtype", as_dtype(self.out_dtype or self.dtype, "out_dtype").name)
        for name in ("bias", "aligned", "deterministic"):
            put(name, scalars.boolean(name, getattr(self, name)))
        put("alpha", scalars.number("alpha", self.alpha))
        if abs(self.alpha) > FLOAT32_MAX:
            raise ValueError(f"alpha={self.alpha} must be finite in float32")
        if self.activation is not None:
            put("activation", scalars.word("activation", self.activation))

    @property
    def has_factors(self) -> bool:
        """Whether half of the rows of b are factors of the others' results."""
        return self.activation is not None and self.activation.endswith(FACTORS)

    @property
    def b_rows(self) -> int:
        """Rows of b, and elements of the bias."""
        return self.n * (1 + self.has_factors)

    @property
    def input_shapes(self) -> dict[str, tuple[int, ...]]:
        """Of a, b and, if there is one, the bias."""
        shapes: dict[str, tuple[int, ...]] = {"a": (self.m, self.k), "b": (self.b_rows, self.k)}
        return shapes | {"bias": (self.b_rows,)} if self.bias else shapes

    def reaches_factors(self, stride: int) -> bool:
        """Whether `aligned` holds of the distance between a row of b and its factor's."""
        rows = self.n + MAX_TILE if self.has_factors else 0
        return rows * stride * ELEMENT_BYTES < MAX_REACH

    @property
    def text(self) -> str:
        """Every argument."""
        return (
            f"gemm_nt {self.dtype}, m={self.m} n={self.n} k={self.k} out_dtype={self.out_dtype} "
            f"bias={self.bias} alpha={self.alpha:.6g} split_k={self.split_k} "
            f"aligned={self.aligned}"
            f"{'' if self.activation is None else f' activation={self.activation}'}"
            f"{'' if self.deterministic else ' deterministic=False'}"
        )

    @property
    def brief(self) -> str:
        """Sizes and what is less usual."""
        text = f"m{self.m} n{self.n} k{self.k}" + f" {self.dtype}" * (self.dtype != "bfloat16")
        text += f" to {self.out_dtype}" * (self.out_dtype != self.dtype) + " bias" * self.bias
        text += f" {self.activation}" * (self.activation is not None)
        text += f" split_k={self.split_k}" * (self.split_k > 0)
        return text + " any order" * (not self.deterministic)

    @property
    def flops(self) -> int:
        """Multiply-adds counted as two operations."""
        return 2 * self.m * self.b_rows * self.k

    @property
    def nbytes(self) -> int:
        """Bytes of a, b, bias and out, each counted once."""
        read = (self.m * self.k + self.b_rows * (self.k + self.bias)) * ELEMENT_BYTES
        return read + self.m * self.n * as_dtype(self.out_dtype).itemsize
