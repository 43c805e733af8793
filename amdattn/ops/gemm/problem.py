"""The problem of a matrix product, before any choice of kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

from amdattn import scalars
from amdattn.dtypes import PACKED, as_dtype
from amdattn.scalars import FLOAT32_MAX, INT32_MAX

# What `aligned` promises for the rows of a and b, to kernels that load 16 bytes a lane.
ALIGN_BYTES = 4
MAX_ALIGNED_STRIDE = 2**24 - 1  # elements
ALIGNED = (
    f"rows of a and b must begin at multiples of {ALIGN_BYTES} bytes, "
    f"0..{MAX_ALIGNED_STRIDE} elements apart"
)
MAX_TILE, MAX_REACH = 64, 2**31 - 2**26
LEAST_EPS = 2.0**-126  # with it, rows of zeros have a finite inverse root
WORD_BYTES = 2  # of an element of the 16-bit types
# What a scale belongs to; a block is BLOCK elements along k of a row of a, or of BLOCK rows of b.
SCALES_OF_ROWS, BLOCKS, BLOCK = ("tensor", "row"), "block", 128
# ... or 32 elements along k of a row of a or b, as in the OCP's MX formats.
MX, MX_BLOCK = "mx", 32
SCALES = (*SCALES_OF_ROWS, BLOCKS, MX)
MX_DTYPES = ("float8_e4m3fn", "float8_e5m2", *(dtype.name for dtype in PACKED))
BLOCK_FACTORS = 32  # rows of b with a gate: a tile has blocks of as many
ADDENDS = ("c", "residual")  # what is added in front of the activation, and behind it
# How a and b are stored: "n" as a product takes them, (m, k) and (k, n), "t" transposed.
LAYOUTS = ("nt", "nn", "tn")
# The ending of activations whose results are multiplied by those of other rows.
FACTORS = "_and_mul"


def by_k(layout: str) -> tuple[bool, bool]:
    """Whether a and b are stored by k: their rows in memory are those of k."""
    return layout[0] == "t", layout[1] == "n"


def block_shapes(
    rows_of_a: tuple[int, ...], rows_of_b: tuple[int, ...], k: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of the scales of blocks of a and b, with the axes that these have before rows."""
    of_k, (*lead, b_rows) = -(-k // BLOCK), rows_of_b
    return (*rows_of_a, of_k), (*lead, -(-b_rows // BLOCK), of_k)


def mx_shapes(
    rows_of_a: tuple[int, ...], rows_of_b: tuple[int, ...], k: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of the scales of 32 elements along k of a and b."""
    of_k = -(-k // MX_BLOCK)
    return (*rows_of_a, of_k), (*rows_of_b, of_k)


@dataclass(frozen=True, slots=True)
class GemmProblem:
    """``out = activation(alpha * a @ b^T + bias + beta * c) + residual``, in float32, rounded once.

    Parameters
    ----------
    m, n, k : int
        a is (m, k), b is (b_rows, k), out is (m, n); each number is in 1..2**31 - 1. `layout` says
        how a and b are stored.
    dtype : str
        Element type of a and b and, if it has 16 bits, of bias, which otherwise has `out_dtype`.
        Elements of less than 8 bits are packed: a and b are uint8 with k * bits / 8 in a row.
    out_dtype : str, optional
        Defaults to `dtype`, or to bfloat16 for 8-bit types.
    bias : bool
        Whether there is a bias, (b_rows,).
    alpha : float
    activation : str, optional
        None: the identity. If its name ends in "_and_mul", b has 2 n rows, and the activated
        results of the first n are multiplied by those of the others.
    split_k : int
        Number of parts along k, each summed by its own workgroup; 0 lets the planner choose.
    aligned : bool
        Whether the rows of a and b begin at multiples of 4 bytes, 0 to 2**24 - 1 elements apart. If
        b has 2 n rows, n + 64 rows at this distance must be less than 2**31 - 2**26 bytes. Rows of
        operands stored by k must not overlap, either.
    deterministic : bool
        Whether parts are added in their order. False: atomics add them in the order of arrival.
    b_dtype : str, optional
        Element type of b if it is the other 8-bit type; defaults to `dtype`.
    scale_a, scale_b : {"tensor", "row", "block", "mx"}, optional
        What a float32 scale of an 8-bit operand belongs to: all of a or b ("tensor"), each row
        ("row"), or, for both operands, each 128 elements along k of a row of a and of 128 rows of b
        ("block"). None: there are no scales. "mx", for both: a uint8 for each 32 elements along k
        of a row, the exponent of 2 plus 127; types of less than 8 bits need it.
    layout : str
        "nt": a (m, k), b (b_rows, k). "nn": b (k, b_rows). "tn": a (k, m), b (k, b_rows).
    adds : {"c", "residual"}, optional
        Which array is added, (m, n), of `out_dtype`. c is not allowed with an activation that ends
        in "_and_mul".
    beta : float
        Factor of c.
    batch : int
        Number of products of a batch, the length of an axis in front; 0: there is no such axis.
    groups : int
        Number of groups, whose rows of a and of out follow each other; b is (groups, b_rows, k). An
        array on the device says how many rows each has; m is the most that all have together. With
        layout="tn", rows of k follow each other instead: out is (groups, m, n), and k is the most.
        0: there is one product, or a batch.
    rms_eps : float, optional
        Divides rows of a by ``sqrt(mean(a^2) + rms_eps)`` first; None: it does not.

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
                f"c cannot be added with activation={self.activation!r}; a residual can"
            )
        if self.beta != 1 and self.adds != "c":
            raise ValueError(f"beta={self.beta} is the factor of c, but there is no c")

    def _check_types(self) -> None:
        of_b = as_dtype(self.b_dtype)
        if self.b_dtype != self.dtype and not (self.is_8_bit and of_b.itemsize == 1):
            raise ValueError(
                f"b_dtype={self.b_dtype!r} must be {self.dtype!r} like dtype; only 8-bit types may "
                "differ"
            )
        for name in ("scale_a", "scale_b"):
            if (scale := getattr(self, name)) is None:
                continue
            if scalars.word(name, scale) not in SCALES:
                raise ValueError(f"{name}={scale!r} must be None or one of {', '.join(SCALES)}")
            if not self.is_8_bit:
                raise ValueError(f"{name}={scale!r} is for 8-bit types; dtype is {self.dtype}")
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
                f"b_dtype={self.b_dtype!r} must be {self.dtype!r} like dtype, with {MX!r} scales"
            )
        if self.is_packed and self.k * as_dtype(self.dtype).bits % 8:
            raise ValueError(f"k={self.k} of {self.dtype} must be whole bytes of a row")

    @property
    def _usual_out_dtype(self) -> str:
        return "bfloat16" if self.is_8_bit else self.dtype

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of the arrays a and b."""
        return as_dtype(self.dtype).itemsize

    @property
    def is_8_bit(self) -> bool:
        """Whether a and b have types of 8 bits or less."""
        return self.element_bytes == 1

    @property
    def is_packed(self) -> bool:
        """Whether bytes of the arrays hold several elements."""
        return as_dtype(self.dtype).bits < 8

    @property
    def is_mx(self) -> bool:
        """Whether scales belong to 32 elements along k."""
        return self.scale_a == MX

    @property
    def matrix_rate(self) -> int:
        """The rate of matrix units, as a multiple of that for 16-bit types."""
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
        """Whether half of the rows of b make factors for the results of the other half."""
        return self.activation is not None and self.activation.endswith(FACTORS)

    @property
    def b_rows(self) -> int:
        """Rows of b, and elements of the bias."""
        return self.n * (1 + self.has_factors)

    @property
    def products(self) -> int:
        """Number of products of a launch."""
        return max(self.batch, self.groups, 1)

    @property
    def are_several(self) -> bool:
        """Whether a launch has a batch of products, or groups."""
        return bool(self.batch or self.groups)

    @property
    def groups_share_k(self) -> bool:
        """Whether groups divide rows of k, not those of a and out."""
        return bool(self.groups) and all(self.by_k)

    @property
    def of_rows(self) -> tuple[int, ...]:
        """Axes in front of arrays that have the rows of a."""
        return (self.batch,) if self.batch else ()

    @property
    def of_columns(self) -> tuple[int, ...]:
        """Axes in front of arrays that have the rows of b."""
        return (self.groups,) if self.groups and not self.groups_share_k else self.of_rows

    @property
    def of_results(self) -> tuple[int, ...]:
        """Axes in front of arrays that have the rows of out."""
        return (self.groups,) if self.groups_share_k else self.of_rows

    @property
    def input_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the operands that the problem has."""
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
        """Shape of the result."""
        return (*self.of_results, self.m, self.n)

    @property
    def has_blocks(self) -> bool:
        """Whether scales belong to blocks."""
        return self.scale_a == BLOCKS

    @property
    def scales_have_rows(self) -> bool:
        """Whether scales belong to parts of k, so that they have rows."""
        return self.has_blocks or self.is_mx

    @property
    def scale_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shapes of the scales of parts of k, for a and b."""
        shapes = mx_shapes if self.is_mx else block_shapes
        return shapes((*self.of_rows, self.m), (*self.of_columns, self.b_rows), self.k)

    @property
    def by_k(self) -> tuple[bool, bool]:
        """Whether a, and b, are stored by k."""
        return by_k(self.layout)

    def reaches_factors(self, stride: int) -> bool:
        """Whether `aligned` holds for the distance between a row of b and its factor's."""
        rows = self.n + MAX_TILE if self.has_factors and not self.by_k[1] else 0
        return rows * stride * self.element_bytes < MAX_REACH

    @property
    def text(self) -> str:
        """All arguments."""
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
        """Sizes, and arguments that are less usual."""
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
        """Bytes that are read and written, each counted once."""
        rows = self.m * max(self.batch, 1)
        b_rows = self.b_rows * math.prod(self.of_columns)
        read = (rows + b_rows) * self.k_of_array * self.element_bytes
        read += (rows + b_rows) * self.k // MX_BLOCK * self.is_mx
        read += b_rows * self.bias * as_dtype(self.bias_dtype).itemsize
        written = math.prod(self.out_shape) * as_dtype(self.out_dtype).itemsize
        return read + written * (1 + bool(self.adds))
