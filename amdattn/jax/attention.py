"""The functions of flash-attn in JAX: under jit and other transformations, or outside."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from amdattn import scalars
from amdattn.errors import UnsupportedProblem
from amdattn.jax.arguments import as_arrays, is_at_hand, private
from amdattn.jax.differentiation import apply, check, differentiable
from amdattn.op.signatures import rest_as
from amdattn.ops.attention import dense, varlen
from amdattn.ops.attention.lengths import check_sums
from amdattn.ops.attention.options import Arguments, Options, refuse
from amdattn.ops.attention.problem import VARLEN_LAYOUT, attention_problem, axis_order


@differentiable
@rest_as(dense.flash_attn_func, "out", "lse", "stream")
def flash_attn_func(
    q: Any,
    k: Any,
    v: Any,
    *rest: Any,
    layout: str = "bshd",
    implementation_backward: str | None = None,
    **options: Any,
) -> Any:
    """`amdattn.flash_attn_func` in JAX; parameters and results as there.

    Parameters
    ----------
    q, k, v : array, bfloat16 or float16
        All other parameters except `sinks` are Python values, which cannot be traced.
    implementation_backward : {None, "xla"}
        None: kernels compute gradients from q, k, v, out and lse, as in
        `amdattn.flash_attn_backward`. "xla": XLA recomputes in float32 from q, k and v, and
        differentiates that.
    """
    asked = Arguments(*rest, **options).read_flags()
    arrays = as_arrays(q=q, k=k, v=v, sinks=asked.sinks)
    return _call(arrays, asked, scalars.word("layout", layout), implementation_backward)


@differentiable
@rest_as(varlen.flash_attn_varlen_func, *varlen.OF_PAGES, "out", "lse", "stream")
def flash_attn_varlen_func(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *rest: Any,
    block_table: None = None,
    implementation_backward: str | None = None,
    **options: Any,
) -> Any:
    """`amdattn.flash_attn_varlen_func` in JAX; parameters and results as there.

    Parameters
    ----------
    cu_seqlens_q, cu_seqlens_k : array, int32, (num_sequences + 1,)
        Checked if their values are known on the host. If they are traced or on a GPU, a wrong sum
        makes kernels read or write beyond the tensors. The last sums must be `total_q` and
        `total_kv`; rows beyond them are not written.
    max_seqlen_q, max_seqlen_k : int
        Python values.
    implementation_backward : {None, "xla"}
        See `flash_attn_func`.
    """
    refuse("block_table", block_table)
    asked = Arguments(*rest, **options).read_flags()
    arrays = as_arrays(
        q=q,
        k=k,
        v=v,
        sinks=asked.sinks,
        cu_seqlens_q=private(cu_seqlens_q),
        cu_seqlens_k=private(cu_seqlens_k),
    )
    *_, cu_seqlens_q, cu_seqlens_k = arrays
    longest = (
        varlen.longest_of("max_seqlen_q", max_seqlen_q),
        varlen.longest_of("max_seqlen_k", max_seqlen_k),
    )
    for name, sums, rows, most in (
        ("cu_seqlens_q", cu_seqlens_q, q, longest[0]),
        ("cu_seqlens_k", cu_seqlens_k, k, longest[1]),
    ):
        if sums.ndim == 1 and sums.shape[0] and rows.ndim and is_at_hand(sums):
            check_sums(np.asarray(sums), name, rows.shape[0], most)
    return _call(arrays, asked, VARLEN_LAYOUT, implementation_backward, longest)


def _call(
    arrays: tuple[Any, ...],
    asked: Arguments,
    layout: str,
    implementation_backward: str | None,
    longest: tuple[int, int] = (0, 0),
) -> Any:
    results = _attend(
        *arrays,
        layout=layout,
        longest=longest,
        options=asked.options.read(),
        return_lse=asked.with_lse,
        implementation_backward=check(implementation_backward),
    )
    return (*results, None) if asked.return_attn_probs else results


# Options are parsed before they become static arguments, so that equal ones are identical and
# malformed ones are refused by name.
@functools.partial(
    jax.jit,
    static_argnames=("layout", "longest", "options", "return_lse", "implementation_backward"),
)
def _attend(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    sinks: jax.Array | None,
    *sums: jax.Array,
    layout: str,
    longest: tuple[int, int],
    options: Options,
    return_lse: bool,
    implementation_backward: str | None,
) -> Any:
    """Attention; for sequences of several lengths with their `sums` and the `longest` lengths."""
    for name, x in zip(("cu_seqlens_q", "cu_seqlens_k"), sums, strict=False):
        if x.dtype != jnp.int32 or x.ndim != 1 or x.shape != sums[0].shape:
            raise ValueError(
                f"{name} has dtype {x.dtype} and shape {x.shape}; it must be int32, "
                "(num_sequences + 1,), as long as the other one"
            )
    order = axis_order(layout)
    num_sequences = sums[0].shape[0] - 1 if sums else 1
    if num_sequences < 1 or 0 in q.shape or 0 in k.shape or 0 in v.shape:

        def call(*of_one: Any) -> Any:
            return _attend(
                *(*of_one, *[jnp.zeros(2, jnp.int32)] * len(sums)),
                layout=layout,
                longest=longest,
                options=options,
                return_lse=return_lse,
                implementation_backward=None,
            )

        return _of_nothing(call, q, k, v, sinks, order, return_lse)
    named = options._asdict()
    if sums:
        named |= {"batch": num_sequences}
        named |= {"seqlen_q": max(1, longest[0]), "seqlen_kv": max(1, longest[1])}
    problem = attention_problem(
        *(q.shape, k.shape, v.shape, layout),
        dtype=q.dtype,
        return_lse=return_lse,
        sinks=sinks is not None,
        **named,
    )
    inputs = (q, k, v) if sinks is None else (q, k, v, sinks)
    results = apply("attention", problem, layout, implementation_backward, *inputs, *sums)
    return results if return_lse else results[0]


def _of_nothing(
    call: Any,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    sinks: jax.Array | None,
    order: tuple[str, ...],
    return_lse: bool,
) -> Any:
    """Results without elements, or of rows that see no key.

    `call` checks arrays in which axes without elements have one; nothing is run.
    """
    if q.ndim != len(order) + 1 or k.ndim != q.ndim or v.ndim != q.ndim:
        raise ValueError(
            f"q, k and v have shapes {q.shape}, {k.shape}, {v.shape}; axes are {order}"
        )
    if 0 in (q.shape[-1], v.shape[-1]):
        raise UnsupportedProblem(f"head_dim={q.shape[-1]} and head_dim_v={v.shape[-1]} must be > 0")
    of_one = [jnp.zeros([max(1, n) for n in x.shape], x.dtype) for x in (q, k, v)]
    if sinks is not None and 0 in sinks.shape:
        sinks = jnp.zeros(1, sinks.dtype)
    call(*of_one, sinks)
    o = jnp.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)
    if not return_lse:
        return o
    axes = dict(zip(order, q.shape, strict=False))
    shape = [axes[axis] for axis in ("batch", "head", "seq") if axis in axes]
    lse = jnp.full(shape, -jnp.inf, jnp.float32)
    return o, lse if sinks is None else jnp.broadcast_to(sinks[: shape[-2], None], shape)
