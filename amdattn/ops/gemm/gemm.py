"""Matrix products, as in linear layers of decoding and of prompts: check, plan, run."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

from amdattn import scalars
from amdattn.arch.props import DeviceProps, as_device_props
from amdattn.arrays.buffers import View, empty, host_empty
from amdattn.arrays.interchange import as_view, like
from amdattn.device import manifest, runtime
from amdattn.dtypes import PACKED, as_dtype
from amdattn.errors import UnsupportedDeviceError, UnsupportedProblem
from amdattn.op.indices import private
from amdattn.op.mismatch import Support
from amdattn.op.operands import check_placement, check_shape
from amdattn.op.outputs import output_view
from amdattn.op.stand_ins import a_few_columns, a_few_rows
from amdattn.ops.gemm import execution, planning, table as gemm_table
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.ops.gemm.groups import AsGroupSizes
from amdattn.ops.gemm.mx import as_packed
from amdattn.ops.gemm.problem import (
    ALIGN_BYTES,
    BLOCKS,
    FACTORS,
    LAYOUTS,
    MAX_ALIGNED_STRIDE,
    GemmProblem,
    by_k,
)
from amdattn.ops.gemm.scales import is_mx_scale, mx_scale_views, scale_views


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
    return _product(
        *("nt", a, b, out, bias, alpha, activation, out_dtype, split_k, deterministic),
        *(scale_a, scale_b, c, beta, residual, None, dtype, workspace, stream),
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
    return _product(
        *(layout, a, b, out, bias, alpha, activation, out_dtype, split_k, deterministic),
        *(scale_a, scale_b, c, beta, residual, None, dtype, workspace, stream),
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
    return _product(
        *(layout, a, b, out, bias, alpha, activation, out_dtype, 0, True),
        *(scale_a, scale_b, None, 1.0, residual, group_sizes, dtype, None, stream),
    )


def _product(
    layout: str,
    a: Any,
    b: Any,
    out: Any,
    bias: Any,
    alpha: float,
    activation: str | None,
    out_dtype: Any,
    split_k: int,
    deterministic: bool,
    scale_a: Any,
    scale_b: Any,
    c: Any,
    beta: float,
    residual: Any,
    group_sizes: Any,
    dtype: Any,
    workspace: Any,
    stream: Any,
) -> Any:
    if not _IMMUTABLE.issuperset(map(type, (alpha, activation, split_k, deterministic, beta))):
        alpha, split_k = scalars.number("alpha", alpha), scalars.integer("split_k", split_k)
        beta = scalars.number("beta", beta)
        activation = None if activation is None else scalars.word("activation", activation)
        deterministic = scalars.boolean("deterministic", deterministic)
    handle = runtime.stream_handle(stream)
    of_bits, a, b = _packed_operands(a, b, dtype)
    inputs = {"a": as_view(a, "a", handle), "b": as_view(b, "b", handle)}
    if bias is not None:
        inputs["bias"] = as_view(bias, "bias", handle)
    a_by_k, b_by_k = by_k(layout)
    groups_share_k = group_sizes is not None and a_by_k and b_by_k
    has_groups_of_b = group_sizes is not None and not groups_share_k
    of_rows, of_columns = _leading(inputs["a"].shape, inputs["b"].shape, has_groups_of_b)
    (m, k), (n, k_of_b) = (
        shape[:-3:-1] if is_by_k else shape[-2:]
        for shape, is_by_k in ((inputs["a"].shape, a_by_k), (inputs["b"].shape, b_by_k))
    )
    b_rows = n
    is_mx = bool(of_bits) or is_mx_scale(scale_a) or is_mx_scale(scale_b)
    if is_mx:
        k, k_of_b = _mx_length(inputs, of_bits, k, k_of_b)
    if k != k_of_b:
        lead = "".join(f"{axis}, " for axis in of_columns)
        wanted = f"({lead}{k}, n)" if b_by_k else f"({lead}n, {k})"
        raise ValueError(
            f"b has shape {inputs['b'].shape}; with a of {inputs['a'].shape} it must be {wanted}"
        )
    if isinstance(activation, str) and activation.endswith(FACTORS):
        if n % 2:
            wanted, what = (f"({k}, 2 n)", "columns") if b_by_k else (f"(2 n, {k})", "rows")
            raise ValueError(
                f"b has shape {inputs['b'].shape}; with activation={activation!r} it must be "
                f"{wanted}: an even number of {what}"
            )
        n //= 2
    if out_dtype is None:
        out_view = None if out is None else output_view(out, "out", handle)
        out_dtype = "" if out_view is None else out_view.dtype.name
    b_dtype = inputs["b"].dtype.name if inputs["a"].dtype.itemsize == 1 and not of_bits else ""
    kinds: dict[str, str | None] = {"scale_a": None, "scale_b": None}
    if is_mx or scale_a is not None or scale_b is not None:
        rows = (*of_rows, m), (*of_columns, b_rows)
        read_scales = mx_scale_views if is_mx else scale_views
        scales = read_scales(scale_a, scale_b, rows, k, handle)
        inputs |= {name: view for name, (view, _) in scales.items()}
        kinds |= {name: kind for name, (_, kind) in scales.items()}
    adds = _addend(inputs, c, beta, residual, handle)
    groups = 0
    if group_sizes is not None:
        (groups,) = of_columns or _groups_of(group_sizes, inputs["a"].shape, handle)
        ordinal = inputs["a"].ordinal if inputs["a"].on_device else None
        read = AsGroupSizes(groups, inputs["a"].shape[0])
        inputs["group_sizes"] = read(group_sizes, "group_sizes", ordinal, handle)
    if k == 0:  # the sums of no products, which those of a few zeros are too
        inputs |= {
            name: (a_few_rows if is_by_k else a_few_columns)(inputs[name])
            for name, is_by_k in (("a", a_by_k), ("b", b_by_k))
        }
        k = inputs["a"].shape[-2 if a_by_k else -1]
        if kinds["scale_a"] == BLOCKS:  # of which there are none
            del inputs["scale_a"], inputs["scale_b"]
            kinds = dict.fromkeys(kinds)
    plan = _planned_for(
        runtime.get(inputs["a"].ordinal).ordinal,
        *(
            m or _ANY_ROWS,
            n or _ANY_ROWS,
            k,
            of_bits or inputs["a"].dtype.name,
            out_dtype and str(_dtype_name(out_dtype)),
            bias is not None,
        ),
        *(alpha, activation, split_k),
        *(
            _is_aligned(inputs["a"], a_by_k) and _is_aligned(inputs["b"], b_by_k),
            deterministic,
        ),
        *(b_dtype, kinds["scale_a"], kinds["scale_b"], layout),
        *(adds, beta if adds == "c" else 1.0),
        *(max(of_rows[0], 1) if of_rows else 0, groups),
        _row_step(inputs["b"]),
    )
    if m == 0 or n == 0 or 0 in of_rows:
        shape = (groups, m, n) if groups_share_k else (*of_rows, m, n)
        return _without_elements(a, inputs, out, plan.problem, shape, handle)
    views = tuple(inputs.values())
    (result,) = plan.execute(a, views, (out,), "", handle, workspace)
    return result


def _packed_operands(a: Any, b: Any, dtype: Any) -> tuple[str, Any, Any]:
    """The type of packed elements, "" if they are not; a and b, of which such are packed."""
    (a, of_a), (b, of_b) = as_packed(a), as_packed(b)
    of_bits = "" if dtype is None else as_dtype(dtype).name
    if of_bits and of_bits not in _PACKED:
        raise ValueError(
            f"dtype={dtype!r} is of a and b that hold elements packed, as uint8; it must be one of "
            f"{', '.join(_PACKED)}"
        )
    for name, found in (("a", of_a), ("b", of_b)):
        if found and of_bits and found != of_bits:
            raise ValueError(f"{name} has dtype {found}; with dtype={of_bits!r} it must be as that")
        of_bits = of_bits or found
    return of_bits, a, b


def _mx_length(inputs: dict[str, View], of_bits: str, *lengths: int) -> tuple[int, ...]:
    """K of a and of b by the lengths of their rows."""
    if of_bits:
        for name in "ab":
            if inputs[name].dtype.name != "uint8":
                raise ValueError(
                    f"{name} has dtype {inputs[name].dtype.name}; it must be uint8, with "
                    f"{of_bits} packed"
                )
        bits = as_dtype(of_bits).bits
        for name, length in zip("ab", lengths, strict=True):
            if length * 8 % bits:
                raise ValueError(
                    f"{name} has shape {inputs[name].shape}; rows of {of_bits} must be whole "
                    f"elements, multiples of {math.lcm(8, bits) // 8} bytes"
                )
        lengths = tuple(length * 8 // bits for length in lengths)
    elif inputs["a"].dtype.name == "uint8":
        raise ValueError(
            f"a has dtype uint8; dtype=None must be what it holds packed: {', '.join(_PACKED)}"
        )
    if not lengths[0]:
        raise ValueError("k=0 must be a multiple of 128, and not 0, with scales of 32 elements")
    return lengths


def _leading(
    a: tuple[int, ...], b: tuple[int, ...], has_groups: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Axes of a and of b in front of their rows and columns: none, a batch, or groups of b."""
    if has_groups:
        if len(a) != 2:
            raise ValueError(f"a has shape {a}; with groups it must have 2 dimensions")
        if len(b) != 3 or not b[0]:
            raise ValueError(f"b has shape {b}; it must have 3 dimensions, groups in front")
        return (), b[:1]
    if len(a) not in (2, 3):
        raise ValueError(f"a has shape {a}; it must have 2 dimensions, or 3 with a batch in front")
    if len(b) != len(a) or a[:-2] != b[:-2]:
        wanted = f"3, the batch of {a[0]} in front" if len(a) == 3 else "2"
        raise ValueError(f"b has shape {b}; with a of {a} it must have dimensions: {wanted}")
    return a[:-2], b[:-2]


def _groups_of(sizes: Any, a: tuple[int, ...], stream: int) -> tuple[int, ...]:
    """How many there are by their sizes, where b does not tell."""
    shape = as_view(private(sizes, "group_sizes", nested=False), "group_sizes", stream).shape
    if len(a) != 2:
        raise ValueError(f"a has shape {a}; with groups it must have 2 dimensions")
    if len(shape) != 1 or not shape[0]:
        raise ValueError(f"group_sizes has shape {shape}; it must be (groups,), of at least one")
    return shape


def _addend(inputs: dict[str, View], c: Any, beta: float, residual: Any, stream: int) -> str | None:
    """Which of the two there is; it joins the inputs."""
    if c is None:
        if beta != 1:
            raise ValueError(f"beta={beta} is the factor of c, which was not given")
    elif residual is not None:
        raise ValueError("c and residual were given; there may be one of them")
    elif beta != 0:
        inputs["c"] = as_view(c, "c", stream)
        return "c"
    if residual is None:
        return None
    inputs["residual"] = as_view(residual, "residual", stream)
    return "residual"


def _without_elements(
    kind: Any,
    inputs: dict[str, View],
    out: Any,
    problem: GemmProblem,
    shape: tuple[int, ...],
    stream: int,
) -> Any:
    views, dtype = dict(inputs), problem.out_dtype
    if out is not None:
        views["out"] = output_view(out, "out", stream)
        check_shape(views["out"], "out", shape, dtype, "m, n of the arrays")
        if views["out"].read_only:
            raise ValueError("out is read-only")
    check_placement(views)
    of_b = problem.array_dtype if problem.is_packed else problem.b_dtype
    check_shape(inputs["b"], "b", inputs["b"].shape, of_b, "as a")
    if "bias" in inputs:
        *lead, rows, columns = inputs["b"].shape
        wanted = (*lead, columns if problem.by_k[1] else rows)
        check_shape(inputs["bias"], "bias", wanted, problem.bias_dtype, "rows of b")
    if problem.adds is not None:
        check_shape(inputs[problem.adds], problem.adds, shape, dtype, "as the result")
    if out is not None:
        return out
    if inputs["a"].on_device:
        return like(kind, empty(shape, dtype, inputs["a"].ordinal))
    return like(kind, host_empty(shape, as_dtype(dtype)))


def _dtype_name(dtype: Any) -> str:
    return as_dtype(dtype, "out_dtype").name


def _row_step(view: View) -> int:
    """Elements between rows on the device."""
    if not view.on_device:  # copied along, or made compact: then rows lie k elements apart
        return view.shape[-1]
    return view.strides[-2] if view.shape[-2] > 1 else 0


def _is_aligned(view: View, is_by_k: bool) -> bool:
    """What GemmProblem.aligned says of a or b."""
    step, address = _row_step(view), view.address if view.on_device else 0
    least = view.shape[-1] if is_by_k and view.shape[-2] > 1 else 0
    batch = view.strides[0] if len(view.shape) == 3 and view.shape[0] > 1 else 0
    return not (
        address % ALIGN_BYTES
        or batch * view.dtype.itemsize % ALIGN_BYTES
        or step * view.dtype.itemsize % ALIGN_BYTES
        or not least <= step <= MAX_ALIGNED_STRIDE
    )


_PACKED = tuple(dtype.name for dtype in PACKED)
# Of results without elements, which every kernel would make.
_ANY_ROWS = 8
# What a call may be looked up by: values that are equal only to what is the same.
_IMMUTABLE = frozenset({int, float, bool, str, type(None)})

# -- planning --------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024, typed=True)
def _planned_for(ordinal: int, *facts: Any) -> GemmPlan:
    *given, b_stride = facts
    problem = GemmProblem(*given)
    if not problem.reaches_factors(b_stride):
        problem = dataclasses.replace(problem, aligned=False)
    return planned(problem, runtime.get(ordinal).props)


@functools.lru_cache(maxsize=1024)
def planned(problem: GemmProblem, props: DeviceProps) -> GemmPlan:
    """The plan of a product on a device, by its tuned choice if there is one."""
    return execution.planned(problem, props, gemm_table.lookup(problem, props))


def forget_plans() -> None:
    """Plan anew from now on: the user's table has changed."""
    _planned_for.cache_clear()
    planned.cache_clear()


def plan_gemm(m: int, n: int, k: int, *, device: DeviceProps | str, **options: Any) -> GemmPlan:
    """Plan a matrix product. No device is queried or bound.

    What `amdattn tune gemm` has found for this product is taken; else costs are estimated.

    Parameters
    ----------
    m, n, k : int
    device : DeviceProps or str
        `amdattn.device_props()` for the bound device, or a known name such as "MI300X".
    **options
        dtype, out_dtype, bias, alpha, activation, split_k, aligned, deterministic, b_dtype,
        scale_a, scale_b, layout, adds, beta, batch, groups: see `GemmProblem`.

    Raises
    ------
    UnsupportedProblem, UnsupportedDeviceError, ValueError, TypeError
    """
    return planned(GemmProblem(m, n, k, **options), as_device_props(device))


def supports_gemm(m: int, n: int, k: int, *, device: DeviceProps | str, **options: Any) -> Support:
    """Whether a kernel exists for a well-formed product; parameters as `plan_gemm`."""
    problem, props = GemmProblem(m, n, k, **options), as_device_props(device)
    try:
        kernel = planning.choose(problem, props, manifest.kernels()).kernel
    except (UnsupportedProblem, UnsupportedDeviceError) as error:
        return Support(False, str(error))
    return Support(True, f"kernel {kernel.name}")


def explain_gemm(*args: Any, **kwargs: Any) -> str:
    """The text of `plan_gemm(...).explain()`."""
    return plan_gemm(*args, **kwargs).explain()
