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
        ``__cuda_array_interface__`` or ``__array__``, on the CPU or a GPU. On the device, rows may
        lie at any distance and the elements of a row lie next to each other; on the host, strides
        are free. 8-bit floats are float8_e4m3fnuz and float8_e5m2fnuz on gfx942, float8_e4m3fn and
        float8_e5m2 on gfx950.
    b : array, like a, (n, k)
        If a has 8 bits, b has either of these types. With an activation that ends in "_and_mul", b
        is (2 n, k): the rows of the gate, then those of up.
    out : array, (m, n), optional
        Results are written here instead of to a new array. It may be `c` or `residual` itself,
        which is then overwritten; it shares no memory with other inputs.
    bias : array, like a, or, where a has 8 bits, like out, (rows of b,), optional
    alpha : float
    activation : str, optional
        "silu": x * sigmoid(x); "gelu_tanh": x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)));
        "gelu": x times the normal distribution function. Activations are computed in float32,
        before the one rounding; -inf gives -0 and inf gives inf. "silu_and_mul",
        "gelu_tanh_and_mul" and "gelu_and_mul" are ``f(x[:, :n]) * x[:, n:]`` with
        ``x = alpha * a @ b^T + bias``, the gate and the up projection of an MLP.
    out_dtype : optional
        bfloat16, float16 or float32. It defaults to the type of `out`, or else to that of `a`, or
        to bfloat16 if a has 8 bits.
    split_k : int
        Number of parts along k, which different workgroups sum; 0 lets the plan choose.
    deterministic : bool
        True: parts are added in their order, whichever arrives first, so that the bits are the same
        every time. False: float32 atomics add them in memory, in any order.
    scale_a, scale_b : array, float32, optional
        Factors of 8-bit operands, applied to the sums in float32. An array of one element scales
        the whole operand; one of shape (rows,) or (rows, 1) scales each row. e4m3 operands may also
        have scales for blocks of 128 elements of k, of which the last may be shorter: scale_a is
        (m, ceil(k / 128)), for each row, and scale_b is (ceil(rows of b / 128), ceil(k / 128)), for
        each 128 rows. The sum of a block is then multiplied by scale_a * scale_b, which is rounded
        to float32, and is added.

        On gfx950 both may instead be uint8 (or float8_e8m0fnu), (m, k / 32) and
        (rows of b, k / 32), for the OCP's MX formats. a and b then have one type, float8_e4m3fn,
        float8_e5m2 or `dtype`; k is a multiple of 128, and on the device rows of scales are
        multiples of 4 bytes apart. `quantize_mx` makes such operands.
    c : array, like out, optional
        Added before the activation; not allowed with an activation that ends in "_and_mul".
    beta : float
        Factor of c. With 0, c is not read.
    residual : array, like out, optional
        Added after the activation; not allowed together with `c`.
    dtype : optional
        float4_e2m1fn, float6_e2m3fn or float6_e3m2fn: the type of the elements that a and b hold
        packed, as uint8 with k / 2 or k * 3 / 4 bytes in a row and the first element in the lowest
        bits. On the host, arrays of ml_dtypes' elements are accepted too, and are packed.
    rms_eps : float, optional
        Divides rows of a by ``sqrt(mean(a^2) + rms_eps)``, as `rms_norm` does. The norm's weight
        has to be a factor of b already: ``b * weight``. a is not rounded; the sums are multiplied
        by the inverse of the root in float32. Rows whose squares do not fit float32 give 0, and
        rows with an infinity give NaN. Use it for bfloat16 and float16 with few rows; with many
        rows it is slower than `rms_norm` and a product.
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
    """`gemm_nt` for operands in any layout; arguments not described here are the same.

    Arrays with one more axis in front are a batch of products, which one launch computes.

    For a linear layer ``y = x @ w^T`` with w of (out, in), ``gemm(dy, w, layout="nn")`` is the
    gradient of x, and ``gemm(dy, x, layout="tn")`` that of w.

    Parameters
    ----------
    a : array, bfloat16 or float16, or of 8 bits with "nt", (m, k), or (k, m) with layout="tn"
    b : array, like a, (n, k), or (k, n) with layout="nn" and "tn"
        With an activation that ends in "_and_mul", b has 2 n instead of n.
    layout : str
        "nt", "nn" or "tn", with one letter each for a and b: "n" for (m, k) and (k, n), "t" for the
        transposed array.

        Operands stored by k (b of "nn", both of "tn") need an even number of columns, and rows at
        multiples of 4 bytes that do not overlap. A kernel that loads single elements computes all
        other products, and those with few tiles. "nn" and "tn" have no kernels for few rows.

    In a batch, every array has the axis in front, except scales of a whole operand; its stride
    there may be 0. Kernels for many rows compute batches, however few rows there are, or those that
    load single elements.
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
    """`gemm` for groups of rows, each with its own matrix, in one launch: a layer of experts.

    The rows of a group follow those of the group before it. Arguments not described here are those
    of `gemm`.

    With ``y = grouped_gemm(x, w, sizes)`` the gradient of x is ``grouped_gemm(dy, w, sizes,
    layout="nn")``, and that of w ``grouped_gemm(dy, x, sizes, layout="tn")``.

    Parameters
    ----------
    a : array, (m, k), or (k, m) with layout="tn"
    b : array, like a, (groups, n, k), or (groups, k, n) with layout="nn", or (k, n) with "tn"
        With "tn", groups divide the rows of both operands, and each group has a product of its own.
    group_sizes : array, int32 or int64, (groups,)
        Number of rows of each group. Their sum is at most the number of rows of a; rows of out
        after it are left as they are. The host does not check sizes on the device: the kernel takes
        a negative size as 0, and ends groups at the last row of a.
    out : array, (m, n), or (groups, m, n) with layout="tn", optional
    bias : array, (groups, rows of a matrix), or (n,) for all groups with layout="tn", optional
    scale_a, scale_b : array, float32, optional
        Factors of 8-bit operands: one element each, or (m,) and (groups, rows of a matrix), or
        scales of blocks, where scale_b has the groups in front.
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
