"""Frozen facts of a matrix product, before any choice of kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

from amdattn import scalars
from amdattn.dtypes import PACKED, as_dtype
from amdattn.scalars import FLOAT32_MAX, INT32_MAX

# What `aligned` promises of the rows of a and b, for kernels that load 16 bytes a lane.
ALIGN_BYTES = 4
MAX_ALIGNED_STRIDE = 2**24 - 1  # elements
ALIGNED = (
    f"rows of a and b must begin at multiples of {ALIGN_BYTES} bytes, "
    f"0..{MAX_ALIGNED_STRIDE} elements apart"
)
MAX_TILE, MAX_REACH = 64, 2**31 - 2**26
LEAST_EPS = 2.0**-126  # of rows of zeros the inverse of the root is finite
WORD_BYTES = 2  # of an element of the 16-bit types
# What a scale is of; blocks are BLOCK elements along k of a row of a, or of BLOCK rows of b.
SCALES_OF_ROWS, BLOCKS, BLOCK = ("tensor", "row"), "block", 128
# ... or each 32 elements of k of a row of a, and of b, as the OCP's MX formats have them.
MX, MX_BLOCK = "mx", 32
SCALES = (*SCALES_OF_ROWS, BLOCKS, MX)
MX_DTYPES = ("float8_e4m3fn", "float8_e5m2", *(dtype.name for dtype in PACKED))
BLOCK_FACTORS = 32  # rows of b, gated: blocks of a tile are of these
ADDENDS = ("c", "residual")  # what is added in front of the activation, and behind it
# How a and b are stored: "n" as a product takes them, (m, k) and (k, n), "t" transposed.
LAYOUTS = ("nt", "nn", "tn")
# What activations end in whose results are multiplied by other rows'.
FACTORS = "_and_mul"


def by_k(layout: str) -> tuple[bool, bool]:
    """Whether the rows in memory of a and of b are those of k."""
    return layout[0] == "t", layout[1] == "n"


def block_shapes(
    rows_of_a: tuple[int, ...], rows_of_b: tuple[int, ...], k: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of scales of blocks of a and of b, with axes in front of rows as they have."""
    of_k, (*lead, b_rows) = -(-k // BLOCK), rows_of_b
    return (*rows_of_a, of_k), (*lead, -(-b_rows // BLOCK), of_k)


def mx_shapes(
    rows_of_a: tuple[int, ...], rows_of_b: tuple[int, ...], k: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of scales of 32 elements of k of a and of b."""
    of_k = -(-k // MX_BLOCK)
    return (*rows_of_a, of_k), (*rows_of_b, of_k)


@dataclass(frozen=True, slots=True)
class GemmProblem:
    """``out = activation(alpha * a @ b^T + bias + beta * c) + residual``, in float32, rounded once.

    Parameters
    ----------
    m, n, k : int
        a is (m, k), b is (b_rows, k), out is (m, n); each in 1..2**31 - 1. How a and b are stored
        is `layout`'s.
    dtype : str
        Element type of a, of b and, if it has 16 bits, of bias, which else is of `out_dtype`. Of
        less than 8 bits elements are packed: a and b are uint8, and have k * bits / 8 of a row.
    out_dtype : str, optional
        Defaults to `dtype`, of 8-bit types to bfloat16.
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
        a b of 2 n rows, n + 64 at this distance are less than 2**31 - 2**26 bytes. Of what is
        stored by k rows do not overlap, either.
    deterministic : bool
        Whether parts are added in their order; False: by atomic additions, as they come.
    b_dtype : str, optional
        Element type of b where that is the other 8-bit one; defaults to `dtype`.
    scale_a, scale_b : {"tensor", "row", "block", "mx"}, optional
        Of 8-bit types: whether one float32 is for all of a, or b, or each row has one, or each 128
        elements of k of a row of a, and of 128 rows of b, which go together; None: there is none.
        "mx", of both: a uint8 for each 32 elements of k of a row, the exponent of 2 and 127, as
        types of less bits have to have it.
    layout : str
        "nt": a (m, k), b (b_rows, k). "nn": b (k, b_rows). "tn": a (k, m), b (k, b_rows).
    adds : {"c", "residual"}, optional
        Which of the two there is, (m, n), of `out_dtype`. With an activation that ends in
        "_and_mul" there is no c.
    beta : float
        Factor of c.
    batch : int
        Products of one launch, of arrays with an axis of so many in front; 0: without that axis.
    groups : int
        Products of one launch, whose rows of a and of out follow each other; b (groups, b_rows, k).
        How many rows each has is told by an array on the device; m is the most of all together.
        With layout="tn" rows of k follow each other instead: out (groups, m, n), and k is the most.
        0: there is one product, or a batch.
    rms_eps : float, optional
        Rows of a are divided by ``sqrt(mean(a^2) + rms_eps)`` first; None: they are not.

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
    b_dtype: str = ""
    scale_a: str | None = None
    scale_b: str | None = None
    layout: str = "nt"
    adds: str | None = None
    beta: float = 1.0
    batch: int = 0
    groups: int = 0
    rms_eps: float | None = None

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        counts = (("m", 1), ("n", 1), ("k", 1), ("split_k", 0), ("batch", 0), ("groups", 0))
        for name, least in counts:
            count = scalars.integer(name, getattr(self, name))
            if not least <= count <= INT32_MAX:
                raise ValueError(f"{name}={count} must be in {least}..{INT32_MAX}")
            put(name, count)
        put("dtype", as_dtype(self.dtype).name)
        put("out_dtype", as_dtype(self.out_dtype or self._usual_out_dtype, "out_dtype").name)
        put("b_dtype", as_dtype(self.b_dtype or self.dtype, "b_dtype").name)
        self._check_types()
        for name in ("bias", "aligned", "deterministic"):
            put(name, scalars.boolean(name, getattr(self, name)))
        put("layout", scalars.word("layout", self.layout))
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout={self.layout!r} must be one of {', '.join(LAYOUTS)}")
        for name in ("alpha", "beta"):
            put(name, scalars.number(name, getattr(self, name)))
            if abs(getattr(self, name)) > FLOAT32_MAX:
                raise ValueError(f"{name}={getattr(self, name)} must be finite in float32")
        if self.activation is not None:
            put("activation", scalars.word("activation", self.activation))
        self._check_addend()
        if self.rms_eps is not None:
            put("rms_eps", scalars.number("rms_eps", self.rms_eps))
            if not LEAST_EPS <= self.rms_eps <= FLOAT32_MAX:
                raise ValueError(
                    f"rms_eps={self.rms_eps} must be None or in {LEAST_EPS}..{FLOAT32_MAX}"
                )
        if self.batch and self.groups:
            raise ValueError(f"batch={self.batch} must be 0 with groups={self.groups}")

    def _check_addend(self) -> None:
        if self.adds is not None and scalars.word("adds", self.adds) not in ADDENDS:
            raise ValueError(f"adds={self.adds!r} must be None or one of {', '.join(ADDENDS)}")
        if self.adds == "c" and self.has_factors:
            raise ValueError(
                f"c is added to products without a gate; activation is {self.activation!r}, which "
                "a residual may be added to"
            )
        if self.beta != 1 and self.adds != "c":
            raise ValueError(f"beta={self.beta} is the factor of c, of which there is none")

    def _check_types(self) -> None:
        of_b = as_dtype(self.b_dtype)
        if self.b_dtype != self.dtype and not (self.is_8_bit and of_b.itemsize == 1):
            raise ValueError(
                f"b_dtype={self.b_dtype!r} must be {self.dtype!r} as dtype; only 8-bit types differ"
            )
        for name in ("scale_a", "scale_b"):
            if (scale := getattr(self, name)) is None:
                continue
            if scalars.word(name, scale) not in SCALES:
                raise ValueError(f"{name}={scale!r} must be None or one of {', '.join(SCALES)}")
            if not self.is_8_bit:
                raise ValueError(f"{name}={scale!r} is of 8-bit types; dtype is {self.dtype}")
        for kind in (BLOCKS, MX):
            if (self.scale_a == kind) != (self.scale_b == kind):
                raise ValueError(
                    f"scale_a={self.scale_a!r} and scale_b={self.scale_b!r}: either both must be "
                    f"{kind!r} or neither"
                )
        if self.is_packed and not self.is_mx:
            raise ValueError(f"scale_a={self.scale_a!r} must be {MX!r} with dtype={self.dtype!r}")
        if self.is_mx and self.b_dtype != self.dtype:
            raise ValueError(
                f"b_dtype={self.b_dtype!r} must be {self.dtype!r} as dtype, with {MX!r} scales"
            )
        if self.is_packed and self.k * as_dtype(self.dtype).bits % 8:
            raise ValueError(f"k={self.k} of {self.dtype} must be whole bytes of a row")

    @property
    def _usual_out_dtype(self) -> str:
        return "bfloat16" if self.is_8_bit else self.dtype

    @property
    def element_bytes(self) -> int:
        """Of an element of the arrays a and b."""
        return as_dtype(self.dtype).itemsize

    @property
    def is_8_bit(self) -> bool:
        """Whether a and b are of types of 8 bits, or less."""
        return self.element_bytes == 1

    @property
    def is_packed(self) -> bool:
        """Whether arrays have bytes with several elements."""
        return as_dtype(self.dtype).bits < 8

    @property
    def is_mx(self) -> bool:
        """Whether scales are of 32 elements of k."""
        return self.scale_a == MX

    @property
    def matrix_rate(self) -> int:
        """How many times the multiply-adds of 16-bit types matrix units make in a clk."""
        return 4 if self.is_packed else 2 if self.is_8_bit else 1

    @property
    def array_dtype(self) -> str:
        """Element type of the arrays a and b."""
        return "uint8" if self.is_packed else self.dtype

    @property
    def k_of_array(self) -> int:
        """Elements of the arrays a and b along k."""
        return self.k * as_dtype(self.dtype).bits // 8 if self.is_packed else self.k

    @property
    def bias_dtype(self) -> str:
        """Element type of the bias."""
        return self.out_dtype if self.is_8_bit else self.dtype

    @property
    def has_factors(self) -> bool:
        """Whether half of the rows of b are factors of the others' results."""
        return self.activation is not None and self.activation.endswith(FACTORS)

    @property
    def b_rows(self) -> int:
        """Rows of b, and elements of the bias."""
        return self.n * (1 + self.has_factors)

    @property
    def products(self) -> int:
        """Of a launch."""
        return max(self.batch, self.groups, 1)

    @property
    def are_several(self) -> bool:
        """Whether a launch has a batch of products, or groups."""
        return bool(self.batch or self.groups)

    @property
    def groups_share_k(self) -> bool:
        """Whether groups are of rows of k, not of a and of out."""
        return bool(self.groups) and all(self.by_k)

    @property
    def of_rows(self) -> tuple[int, ...]:
        """Axes in front of what has the rows of a."""
        return (self.batch,) if self.batch else ()

    @property
    def of_columns(self) -> tuple[int, ...]:
        """Axes in front of what has the rows of b."""
        return (self.groups,) if self.groups and not self.groups_share_k else self.of_rows

    @property
    def of_results(self) -> tuple[int, ...]:
        """Axes in front of what has the rows of out."""
        return (self.groups,) if self.groups_share_k else self.of_rows

    @property
    def input_shapes(self) -> dict[str, tuple[int, ...]]:
        """Of what there is."""
        shapes: dict[str, tuple[int, ...]] = {
            name: (*lead, self.k_of_array, rows) if is_by_k else (*lead, rows, self.k_of_array)
            for name, lead, rows, is_by_k in zip(
                "ab",
                (self.of_rows, self.of_columns),
                (self.m, self.b_rows),
                self.by_k,
                strict=True,
            )
        }
        if self.bias:
            shapes["bias"] = (*self.of_columns, self.b_rows)
        of_blocks = dict(zip(("scale_a", "scale_b"), self.scale_shapes, strict=True))
        for name, lead, rows in (
            ("scale_a", self.of_rows, self.m),
            ("scale_b", self.of_columns, self.b_rows),
        ):
            if scale := getattr(self, name):
                of_rows = (1,) if scale == "tensor" else (*lead, rows)
                shapes[name] = of_blocks[name] if self.scales_have_rows else of_rows
        if self.adds:
            shapes[self.adds] = self.out_shape
        if self.groups:
            shapes["group_sizes"] = (self.groups,)
        return shapes

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Of the result."""
        return (*self.of_results, self.m, self.n)

    @property
    def has_blocks(self) -> bool:
        """Whether scales are of blocks."""
        return self.scale_a == BLOCKS

    @property
    def scales_have_rows(self) -> bool:
        """Whether scales are of parts of k, in rows."""
        return self.has_blocks or self.is_mx

    @property
    def scale_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of scales of parts of k, of a and of b."""
        shapes = mx_shapes if self.is_mx else block_shapes
        return shapes((*self.of_rows, self.m), (*self.of_columns, self.b_rows), self.k)

    @property
    def by_k(self) -> tuple[bool, bool]:
        """Whether the rows of memory of a, and of b, are those of k."""
        return by_k(self.layout)

    def reaches_factors(self, stride: int) -> bool:
        """Whether `aligned` holds of the distance between a row of b and its factor's."""
        rows = self.n + MAX_TILE if self.has_factors and not self.by_k[1] else 0
        return rows * stride * self.element_bytes < MAX_REACH

    @property
    def text(self) -> str:
        """Every argument."""
        return (
            f"gemm_{self.layout} {self.dtype}, m={self.m} n={self.n} k={self.k} "
            f"out_dtype={self.out_dtype} bias={self.bias} alpha={self.alpha:.6g} "
            f"split_k={self.split_k} aligned={self.aligned}"
            f"{'' if self.activation is None else f' activation={self.activation}'}"
            f"{'' if self.deterministic else ' deterministic=False'}{self._types_text}"
            f"{self._more_text}"
        )

    @property
    def brief(self) -> str:
        """Sizes and what is less usual."""
        text = f"m{self.m} n{self.n} k{self.k}" + f" {self.dtype}" * (self.dtype != "bfloat16")
        text += (
            f" to {self.out_dtype}" * (self.out_dtype != self._usual_out_dtype)
            + " bias" * self.bias
        )
        text += f" {self.activation}" * (self.activation is not None)
        text += f" split_k={self.split_k}" * (self.split_k > 0)
        text += f" {self.layout}" * (self.layout != "nt")
        return text + " any order" * (not self.deterministic) + self._types_text + self._more_text

    @property
    def _types_text(self) -> str:
        text = f" b_dtype={self.b_dtype}" * (self.b_dtype != self.dtype)
        for name in ("scale_a", "scale_b"):
            text += f" {name}={getattr(self, name)}" * (getattr(self, name) is not None)
        return text

    @property
    def _more_text(self) -> str:
        text = "" if self.adds is None else f" {self.adds}"
        text += f" beta={self.beta:.6g}" * (self.beta != 1)
        return (
            text
            + f" batch={self.batch}" * bool(self.batch)
            + (f" groups={self.groups}" * bool(self.groups))
            + ("" if self.rms_eps is None else f" rms_eps={self.rms_eps:.6g}")
        )

    @property
    def flops(self) -> int:
        """Multiply-adds counted as two operations."""
        return 2 * self.m * max(self.batch, 1) * self.b_rows * self.k

    @property
    def nbytes(self) -> int:
        """Bytes of what is read and written, each counted once."""
        rows = self.m * max(self.batch, 1)
        b_rows = self.b_rows * math.prod(self.of_columns)
        read = (rows + b_rows) * self.k_of_array * self.element_bytes
        read += (rows + b_rows) * self.k // MX_BLOCK * self.is_mx
        read += b_rows * self.bias * as_dtype(self.bias_dtype).itemsize
        written = math.prod(self.out_shape) * as_dtype(self.out_dtype).itemsize
        return read + written * (1 + bool(self.adds))
