"""Tokens in JAX: embeddings, rotary positions, and sampling from logits."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from amdattn import scalars
from amdattn.dtypes import as_dtype
from amdattn.jax.arguments import as_arrays
from amdattn.jax.differentiation import apply, check, differentiable
from amdattn.jax.primitive import call
from amdattn.op.head_norm import NORM_EPS
from amdattn.ops.embedding.problem import EmbeddingProblem
from amdattn.ops.rotary.problem import RotaryProblem
from amdattn.ops.sample.problem import SampleProblem


@differentiable
def apply_rotary_emb(
    x: Any,
    cos: Any,
    sin: Any,
    interleaved: bool = False,
    *,
    seqlen_offsets: Any = 0,
    k: Any = None,
    positions: Any = None,
    q_norm_weight: Any = None,
    k_norm_weight: Any = None,
    norm_eps: float = NORM_EPS,
    implementation_backward: str | None = None,
) -> Any:
    """`amdattn.apply_rotary_emb` in JAX; parameters and results as there.

    Parameters
    ----------
    seqlen_offsets, positions : array, optional
        They are not checked: for a position outside of the tables the rotated columns are NaN.
    implementation_backward : {None, "xla"}
        None: the same kernel rotates the gradients of x and k back, and cos and sin are constants;
        if heads are normalised, XLA computes these gradients, and those of the weights, in float32.
        "xla": XLA computes all gradients in float32, including those of cos and sin.
    """
    x, cos, sin, k, positions = as_arrays(x=x, cos=cos, sin=sin, k=k, positions=positions)
    weights = as_arrays(q_norm_weight=q_norm_weight, k_norm_weight=k_norm_weight)
    if k is None and k_norm_weight is not None:
        raise ValueError("k_norm_weight was given, but no k")
    if check(implementation_backward) is None:
        cos, sin = jax.lax.stop_gradient((cos, sin))
    first = 0
    if isinstance(seqlen_offsets, int):
        first, seqlen_offsets = scalars.integer("seqlen_offsets", seqlen_offsets), None
    else:
        (seqlen_offsets,) = as_arrays(seqlen_offsets=seqlen_offsets)
    return _turned(
        *(x, cos, sin, k, positions, seqlen_offsets, *weights),
        norm_eps=scalars.number("norm_eps", norm_eps),
        first=first,
        interleaved=scalars.boolean("interleaved", interleaved),
        implementation_backward=implementation_backward,
    )


@functools.partial(
    jax.jit, static_argnames=("norm_eps", "first", "interleaved", "implementation_backward")
)
def _turned(
    x: jax.Array,
    cos: jax.Array,
    sin: jax.Array,
    k: jax.Array | None,
    positions: jax.Array | None,
    offsets: jax.Array | None,
    q_norm_weight: jax.Array | None,
    k_norm_weight: jax.Array | None,
    *,
    norm_eps: float,
    first: int,
    interleaved: bool,
    implementation_backward: str | None,
) -> Any:
    if x.ndim not in (3, 4):
        raise ValueError(f"x has shape {x.shape}; it must have 3 or 4 dimensions")
    if k is not None and k.ndim != x.ndim:
        raise ValueError(f"k has shape {k.shape}; it must have those of x, {x.shape}")
    for name, table in (("cos", cos), ("sin", sin)):
        if table.ndim != 2 or table.shape != cos.shape:
            raise ValueError(
                f"{name} has shape {table.shape}; cos and sin must be (rows, rotary_dim / 2) both"
            )
    if 0 in x.shape:
        return x if k is None else (x, k)
    batch, seqlen, heads, dim = (1, *x.shape) if x.ndim == 3 else x.shape
    of_whom = "none"
    if positions is not None:
        if first or offsets is not None:
            raise ValueError("seqlen_offsets must be 0 with positions")
        of_whom, positions = "tokens", positions.astype(jnp.int32)
    elif offsets is not None:
        of_whom = "offsets"
        offsets = jnp.broadcast_to(offsets.astype(jnp.int32), (batch,))
    else:
        rows = cos.shape[0]
        if not 0 <= first <= rows - seqlen:
            raise ValueError(
                f"seqlen_offsets={first} must be in 0..{rows - seqlen}: cos has {rows} positions, "
                f"x has {seqlen} tokens a sequence"
            )
        cos, sin = cos[first : first + seqlen], sin[first : first + seqlen]
    problem = RotaryProblem(
        *(batch, seqlen, heads, dim),
        heads_k=0 if k is None else k.shape[-2],
        rotary_dim=2 * cos.shape[1],
        table_rows=cos.shape[0],
        dtype=as_dtype(x.dtype, "x.dtype").name,
        table_dtype=as_dtype(cos.dtype, "cos.dtype").name,
        interleaved=interleaved,
        positions=of_whom,
        packed=x.ndim == 3,
        q_norm=q_norm_weight is not None,
        k_norm=k_norm_weight is not None,
        norm_eps=norm_eps,
    )
    weights = q_norm_weight, k_norm_weight
    given = [y for y in (x, cos, sin, k, positions, offsets, *weights) if y is not None]
    results = apply("rotary", problem, "", implementation_backward, *given)
    return results[0] if k is None else results


@differentiable
def embedding(table: Any, indices: Any, *, implementation_backward: str | None = None) -> Any:
    """`amdattn.embedding` in JAX; parameters and result as there.

    Parameters
    ----------
    indices : array
        They are not checked: the row of an index outside of the table is NaN.
    implementation_backward : {None, "xla"}
        XLA sums the rows of the gradient of the table. None: in float32, rounded once, which needs
        memory for a float32 table. "xla": in the table's type.
    """
    return _gathered(
        *as_arrays(table=table, indices=indices),
        implementation_backward=check(implementation_backward),
    )


@functools.partial(jax.jit, static_argnames=("implementation_backward",))
def _gathered(
    table: jax.Array, indices: jax.Array, *, implementation_backward: str | None
) -> jax.Array:
    if table.ndim != 2:
        raise ValueError(f"table has shape {table.shape}; it must have 2 dimensions")
    if indices.ndim == 0:
        raise ValueError("indices have shape (); they must have at least 1 dimension")
    if not jnp.issubdtype(indices.dtype, jnp.integer):
        raise ValueError(f"indices have dtype {indices.dtype}; they must be integers")
    rows, columns = table.shape
    if 0 in indices.shape or columns == 0:
        return jnp.zeros((*indices.shape, columns), table.dtype)
    if rows == 0:
        raise ValueError(f"table has shape {table.shape}: it has no row for any index")
    dtype = as_dtype(table.dtype, "table.dtype").name
    problem = EmbeddingProblem(indices.shape, columns, rows, dtype)
    found = apply(
        *("embedding", problem, "", implementation_backward), table, indices.astype(jnp.int32)
    )
    return found[0]


def argmax(logits: Any) -> Any:
    """`amdattn.argmax` in JAX; parameters and result as there."""
    return sample(logits, 0.0)


def sample(
    logits: Any,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: int = 0,
    *,
    repetition_penalty: float = 1.0,
    tokens: Any = None,
    state: Any = None,
) -> Any:
    """`amdattn.sample` in JAX; parameters and tokens are the same.

    Parameters
    ----------
    temperature, top_k, top_p, min_p, seed, repetition_penalty
        Python values.
    state : array, int32, (rows, 4), optional
        It is returned with its offsets incremented by 1; a donated one is written in place.

    Returns
    -------
    tokens : array, int32, (rows,)
        They have no gradient.
    state : array, int32, (rows, 4)
        Only with a state.
    """
    logits, tokens, state = as_arrays(logits=logits, tokens=tokens, state=state)
    seed = scalars.integer("seed", seed)
    if state is not None and seed:
        raise ValueError(f"seed={seed} and state were given; only one of them may be")
    if logits.ndim != 2 or 0 in logits.shape:
        raise ValueError(f"logits has shape {logits.shape}; it must be (rows, columns), neither 0")
    if tokens is not None and (tokens.ndim != 2 or tokens.shape[0] != logits.shape[0]):
        raise ValueError(
            f"tokens has shape {tokens.shape}; it must be ({logits.shape[0]}, history)"
        )
    dtype = as_dtype(logits.dtype, "logits.dtype").name
    history = 0 if tokens is None else tokens.shape[1]
    problem = SampleProblem(
        *(*logits.shape, dtype, temperature, top_k, top_p, min_p, repetition_penalty, history)
    )
    given = [jax.lax.stop_gradient(logits)]
    if history:
        given.append(tokens.astype(jnp.int32))
    if not problem.draws:
        found, *_ = call("sample", problem, "", *given)
        return found if state is None else (found, state)
    own = _of_seed(seed, problem.rows) if state is None else state
    found, later = call("sample", problem, "", *given, own)
    return found if state is None else (found, later)


def _of_seed(seed: int, rows: int) -> Any:
    made = np.zeros((rows, 2), np.int64)
    made[:, 0] = np.uint64(seed % 2**64).astype(np.int64)
    made[:, 1] = np.arange(rows, dtype=np.int64) << 32
    return made.view(np.int32)
