"""Matrix products, as in linear layers of decoding and of prompts."""

from __future__ import annotations

from typing import Any

from amdattn import scalars
from amdattn.ops.gemm.call import product
from amdattn.ops.gemm.problem import LAYOUTS


def gemm_nt(
    a: Any,
    b: Any,
    out: Any = None,
    bias: Any = None,
    *,
    alpha: float = 1.0,
    activation: str | None = None,
    out_dtype: Any = None,
    split_k: int = 0,
    deterministic: bool = True,
    scale_a: Any = None,
    scale_b: Any = None,
    c: Any = None,
    beta: float = 1.0,
    residual: Any = None,
    dtype: Any = None,
    rms_eps: float | None = None,
    workspace: Any = None,
    stream: Any = None,
) -> Any:
    """``activation(alpha * a @ b^T + bias + beta * c) + residual``, for a with few or many rows.

    Sums are float32 throughout and are rounded once, to nearest even.

    Parameters
    ----------
    a : array, bfloat16, float16 or one of the device's 8-bit floats, (m, k)
        numpy (with ml_dtypes), `DeviceArray`, or an array of any library with ``__dlpack__``,
        ``__cuda_array_interface__`` or ``__array__``, on the CPU or a GPU. On the device
        rows at any distance, elements of a row next to each other; on the host any strides.
        8-bit floats are float8_e4m3fnuz and float8_e5m2fnuz on gfx942, float8_e4m3fn and
        float8_e5m2 on gfx950.
    b : array, like a, (n, k)
        Where a has 8 bits, of either of these types.
        With an activation that ends in "_and_mul" (2 n, k): rows of the gate, then of up.
    out : array, (m, n), optional
        Written instead of a new array. It may be `c` or `residual` itself, which is overwritten
        then, and shares no memory with other inputs.
    bias : array, like a, or, where a has 8 bits, like out, (rows of b,), optional
    alpha : float
    activation : str, optional
        "silu": x * sigmoid(x); "gelu_tanh": x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)));
        "gelu": x times the normal distribution function. In float32, before the one rounding; of
        -inf -0, of inf inf.
        "silu_and_mul", "gelu_tanh_and_mul" and "gelu_and_mul" are ``f(x[:, :n]) * x[:, n:]`` of
        ``x = alpha * a @ b^T + bias``, as of the gate and the up projection of an MLP.
    out_dtype : optional
        bfloat16, float16 or float32; that of `out`, or else of `a`, of 8 bits bfloat16.
    split_k : int
        Parts that k is summed in by different workgroups; 0: the plan chooses.
    deterministic : bool
        Parts are added in their order, whoever arrives first: the same bits every time. False: by
        float32 atomic additions in memory, in any order.
    scale_a, scale_b : array, float32, optional
        Of 8-bit operands: what a and b are multiplied by, in float32, behind the sums. With one
        element all of it; of shape (rows,) or (rows, 1), each row by its own. Of e4m3 in blocks of
        128 elements of k, too, the last one shorter: scale_a (m, ceil(k / 128)) of each row, and
        scale_b (ceil(rows of b / 128), ceil(k / 128)) of each 128 rows. Then sums of a block are
        multiplied by scale_a * scale_b, which is rounded to float32, and added.

        Or, on gfx950, uint8 (or float8_e8m0fnu) of both, (m, k / 32) and (rows of b, k / 32): OCP
        MX formats. a and b are of one type, float8_e4m3fn, float8_e5m2 or `dtype`, k is a multiple
        of 128, and on the device rows of scales are multiples of 4 bytes apart. `quantize_mx` makes
        such operands.
    c : array, like out, optional
        Not where half of b are factors.
    beta : float
        Factor of c; 0: c is not read.
    residual : array, like out, optional
        There is one of the two, or none.
    dtype : optional
        float4_e2m1fn, float6_e2m3fn or float6_e3m2fn: what a and b hold packed, as uint8 of k / 2
        or k * 3 / 4 bytes of a row, the first element in the lowest bits. On the host arrays of
        ml_dtypes' elements are taken, too, which are packed then.
    rms_eps : float, optional
        Rows of a are divided by ``sqrt(mean(a^2) + rms_eps)``, as `rms_norm` does, whose weight, of
        columns of a, b holds as a factor: ``b * weight``. a is read as it is; in float32, sums are
        multiplied by the inverse of the root. Rows whose squares do not fit float32 are 0, of rows
        with an infinity all is NaN. For bfloat16 and float16, and few rows: of many it is slower
        than `rms_norm` and a product.
    workspace : device array, optional
        See `GemmPlan.run`.
    stream : hipStream_t, optional
        An int or a hip-python stream; defaults to the default stream. Calls on device arrays return
        before the kernel has finished, calls on host arrays after the result is copied back.

    Returns
    -------
    array, (m, n), of the kind of `a`

    Raises
    ------
    UnsupportedProblem
        (a NotImplementedError and ValueError) No kernel does this; the message says what there is.
    ValueError, TypeError
        Malformed input. Nothing was launched.
    UnsupportedDeviceError, HipError
        The device is of another architecture; a HIP call failed.
    """
    return product(
        *("nt", a, b, out, bias, alpha, activation, out_dtype, split_k, deterministic),
        *(scale_a, scale_b, c, beta, residual, None, dtype, rms_eps, workspace, stream),
    )


def gemm(
    a: Any,
    b: Any,
    *,
    layout: str = "nt",
    bias: Any = None,
    activation: str | None = None,
    alpha: float = 1.0,
    out: Any = None,
    out_dtype: Any = None,
    split_k: int = 0,
    deterministic: bool = True,
    scale_a: Any = None,
    scale_b: Any = None,
    c: Any = None,
    beta: float = 1.0,
    residual: Any = None,
    dtype: Any = None,
    workspace: Any = None,
    stream: Any = None,
) -> Any:
    """`gemm_nt` of operands as they are stored; what is not told here is as there.

    Arrays with an axis in front of these are a batch of products, of one launch.

    With a linear layer ``y = x @ w^T`` of a w of (out, in), ``gemm(dy, w, layout="nn")`` is the
    gradient of x, and ``gemm(dy, x, layout="tn")`` that of w.

    Parameters
    ----------
    a : array, bfloat16 or float16, of "nt" also of 8 bits, (m, k), or (k, m) with layout="tn"
    b : array, like a, (n, k), or (k, n) with layout="nn" and "tn"
        With an activation that ends in "_and_mul" 2 n instead of n.
    layout : str
        "nt", "nn" or "tn": of a and of b "n" as a product takes it, "t" transposed.

        What is stored by k, b of "nn" and both of "tn", has an even number of columns, and rows at
        multiples of 4 bytes that do not overlap, or else a kernel takes it that loads single
        elements, as it does of products with few tiles. Those with few rows have no kernels of
        their own for "nn" and "tn".

    Of batches everything has the axis in front but scales of all; what it is the same for has
    stride 0 there. Kernels for many rows make them, however few rows there are, or those that load
    single elements.
    """
    layout = scalars.word("layout", layout)
    if layout not in LAYOUTS:
        raise ValueError(f"layout={layout!r} must be one of {', '.join(map(repr, LAYOUTS))}")
    return product(
        *(layout, a, b, out, bias, alpha, activation, out_dtype, split_k, deterministic),
        *(scale_a, scale_b, c, beta, residual, None, dtype, None, workspace, stream),
    )


def grouped_gemm(
    a: Any,
    b: Any,
    group_sizes: Any,
    out: Any = None,
    *,
    layout: str = "nt",
    bias: Any = None,
    activation: str | None = None,
    alpha: float = 1.0,
    out_dtype: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    residual: Any = None,
    dtype: Any = None,
    stream: Any = None,
) -> Any:
    """`gemm` of groups of rows, each with a matrix of its own, in one launch: a layer of experts.

    Rows of a group follow those of the one before. What is not told here is as in `gemm`.

    With ``y = grouped_gemm(x, w, sizes)`` the gradient of x is ``grouped_gemm(dy, w, sizes,
    layout="nn")``, and that of w ``grouped_gemm(dy, x, sizes, layout="tn")``.

    Parameters
    ----------
    a : array, (m, k), or (k, m) with layout="tn"
    b : array, like a, (groups, n, k), or (groups, k, n) with layout="nn", or (k, n) with "tn"
        With "tn" groups are of rows of both, and each has a product of its own.
    group_sizes : array, int32 or int64, (groups,)
        Rows of each group. Their sum is at most those of a; rows of out behind it are left as they
        are. On the device nobody looks at them before the kernel does: a group of less than no rows
        has none, and what is behind the last row of a is not there.
    out : array, (m, n), or (groups, m, n) with layout="tn", optional
    bias : array, (groups, rows of a matrix), or with layout="tn" (n,), of all, optional
    scale_a, scale_b : array, float32, optional
        Of 8-bit operands, with one element, or of shape (m,) and (groups, rows of a matrix); or of
        blocks, scale_b with groups in front.
    residual : array, like out, optional
    """
    layout = scalars.word("layout", layout)
    if layout not in LAYOUTS:
        raise ValueError(f"layout={layout!r} must be one of {', '.join(map(repr, LAYOUTS))}")
    if group_sizes is None:
        raise TypeError("group_sizes is None; it must be an array of the rows of each group")
    return product(
        *(layout, a, b, out, bias, alpha, activation, out_dtype, 0, True),
        *(scale_a, scale_b, None, 1.0, residual, group_sizes, dtype, None, None, stream),
    )
