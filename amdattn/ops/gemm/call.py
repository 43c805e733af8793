"""A call of a product: it reads the arguments, looks up their plan, and runs it."""

from __future__ import annotations

import math
from typing import Any

from amdattn import scalars
from amdattn.arrays.buffers import empty, host_empty
from amdattn.arrays.interchange import as_view, to_library_of
from amdattn.arrays.views import View
from amdattn.device import runtime
from amdattn.dtypes import PACKED, as_dtype
from amdattn.op.indices import private
from amdattn.op.operands import check_placement, check_shape
from amdattn.op.outputs import output_view
from amdattn.op.zero_operands import few_zero_columns, few_zero_rows
from amdattn.ops.gemm.groups import AsGroupSizes
from amdattn.ops.gemm.mx import as_packed
from amdattn.ops.gemm.plans import planned_for
from amdattn.ops.gemm.problem import (
    ALIGN_BYTES,
    BLOCKS,
    FACTORS,
    MAX_ALIGNED_STRIDE,
    GemmProblem,
    by_k,
)
from amdattn.ops.gemm.scales import is_mx_scale, mx_scale_views, scale_views


def product(
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
    rms_eps: float | None,
    workspace: Any,
    stream: Any,
) -> Any:
    """Run a call of `gemm` or `grouped_gemm`, with all arguments of either."""
    if not _IMMUTABLE.issuperset(
        map(type, (alpha, activation, split_k, deterministic, beta, rms_eps))
    ):
        alpha, split_k = scalars.number("alpha", alpha), scalars.integer("split_k", split_k)
        beta = scalars.number("beta", beta)
        rms_eps = None if rms_eps is None else scalars.number("rms_eps", rms_eps)
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
    if k == 0:  # empty sums, which equal those of a few zeros
        inputs |= {
            name: (few_zero_rows if is_by_k else few_zero_columns)(inputs[name])
            for name, is_by_k in (("a", a_by_k), ("b", b_by_k))
        }
        k = inputs["a"].shape[-2 if a_by_k else -1]
        if kinds["scale_a"] == BLOCKS:  # of which there are none
            del inputs["scale_a"], inputs["scale_b"]
            kinds = dict.fromkeys(kinds)
    plan = planned_for(
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
        *(max(of_rows[0], 1) if of_rows else 0, groups, rms_eps),
        _row_step(inputs["b"]),
    )
    if m == 0 or n == 0 or 0 in of_rows:
        shape = (groups, m, n) if groups_share_k else (*of_rows, m, n)
        return _without_elements(a, inputs, out, plan.problem, shape, handle)
    views = tuple(inputs.values())
    (result,) = plan.execute(a, views, (out,), "", handle, workspace)
    return result


def _packed_operands(a: Any, b: Any, dtype: Any) -> tuple[str, Any, Any]:
    """The type of packed elements, or ""; and a and b, packed if they hold such elements."""
    (a, of_a), (b, of_b) = as_packed(a), as_packed(b)
    of_bits = "" if dtype is None else as_dtype(dtype).name
    if of_bits and of_bits not in _PACKED:
        raise ValueError(
            f"dtype={dtype!r} is for a and b with packed elements, as uint8; it must be one of "
            f"{', '.join(_PACKED)}"
        )
    for name, found in (("a", of_a), ("b", of_b)):
        if found and of_bits and found != of_bits:
            raise ValueError(
                f"{name} has dtype {found}; with dtype={of_bits!r} it must be the same"
            )
        of_bits = of_bits or found
    return of_bits, a, b


def _mx_length(inputs: dict[str, View], of_bits: str, *lengths: int) -> tuple[int, ...]:
    """The k of a and of b, from the lengths of their rows."""
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
    """Axes of a and b in front of rows and columns: none, a batch, or the groups of b."""
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
    """The number of groups by `group_sizes`, if b does not tell."""
    shape = as_view(private(sizes, "group_sizes", nested=False), "group_sizes", stream).shape
    if len(a) != 2:
        raise ValueError(f"a has shape {a}; with groups it must have 2 dimensions")
    if len(shape) != 1 or not shape[0]:
        raise ValueError(f"group_sizes has shape {shape}; it must be (groups,), of at least one")
    return shape


def _addend(inputs: dict[str, View], c: Any, beta: float, residual: Any, stream: int) -> str | None:
    """Which of c and residual was given; adds it to the inputs."""
    if c is None:
        if beta != 1:
            raise ValueError(f"beta={beta} is the factor of c, which was not given")
    elif residual is not None:
        raise ValueError("c and residual were given; only one of them may be")
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
        return to_library_of(kind, empty(shape, dtype, inputs["a"].ordinal))
    return to_library_of(kind, host_empty(shape, as_dtype(dtype)))


def _dtype_name(dtype: Any) -> str:
    return as_dtype(dtype, "out_dtype").name


def _row_step(view: View) -> int:
    """The distance of rows on the device, in elements."""
    if not view.on_device:  # it is copied or made compact, and rows then lie k elements apart
        return view.shape[-1]
    return view.strides[-2] if view.shape[-2] > 1 else 0


def _is_aligned(view: View, is_by_k: bool) -> bool:
    """The value of GemmProblem.aligned for a or b."""
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
# The plan of results without elements; no kernel is launched.
_ANY_ROWS = 8
# Keys of a call's plan: values that compare equal only if they mean the same.
_IMMUTABLE = frozenset({int, float, bool, str, type(None)})
