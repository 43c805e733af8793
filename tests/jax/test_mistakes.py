"""Mistakes of callers, and modes of JAX for finding them: what amdattn.jax says and does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import amdattn
import amdattn.jax as aj
from amdattn import elsewhere
from amdattn.errors import UnsupportedProblem
from tests.support.elsewhere import NAMES, named


def normal(seed: int, *shape: int, dtype: Any = jnp.bfloat16) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape, jnp.float32).astype(dtype)


Q, K, V = normal(0, 2, 8, 4, 64), normal(1, 2, 9, 2, 64), normal(2, 2, 9, 2, 64)
ROWS = normal(3, 20, 2, 64)
A, B = normal(4, 5, 64), normal(5, 32, 64)
SUMS = np.array([0, 5, 12, 20], np.int32)


def varlen(sums: Any, longest: Any = 8) -> Any:
    return aj.flash_attn_varlen_func(ROWS, ROWS, ROWS, sums, sums, longest, longest)


def attend(**options: Any) -> Any:
    return aj.flash_attn_func(Q, K, V, **options)


def deleted() -> jax.Array:
    x = Q + 0
    x.delete()
    return x


def slope(x: Any) -> Any:
    def loss(x: Any) -> Any:
        return aj.rms_norm(x, A[0], implementation_backward="xla").astype(jnp.float32).sum()

    return jax.grad(loss)(x)


OF_SECOND = UnsupportedProblem, "in reverse mode only"
WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
    # Options that are none, whatever was called before with an equal one.
    (lambda: (attend(causal=True), attend(causal=1)), TypeError, "causal=1 must be a bool"),
    (lambda: (varlen(SUMS), varlen(SUMS, 8.0)), TypeError, "max_seqlen_q=8.0 must be an int"),
    (lambda: aj.gemm_nt(A, B, split_k=2.0), TypeError, "split_k=2.0"),
    (lambda: aj.gemm_nt(A, B, activation=3), TypeError, "activation=3"),
    (lambda: aj.gemm_nt(A, B, activation=["silu"]), TypeError, "activation"),
    (lambda: aj.rms_norm(A, A[0], eps="x"), TypeError, "eps='x'"),
    (lambda: attend(layout=["bshd"]), TypeError, "layout"),
    (lambda: attend(window_size=3), TypeError, "window_size=3 must be a pair"),
    (lambda: attend(num_splits=-7), ValueError, "num_splits=-7"),
    (lambda: attend(softmax_scale=float("nan")), ValueError, "softmax_scale=nan"),
    (lambda: aj.dot_product_attention(Q, Q, Q, is_causal="no"), TypeError, "is_causal='no'"),
    (
        lambda: aj.dot_product_attention(Q, Q, Q, return_residual="no"),
        *(TypeError, "return_residual='no'"),
    ),
    (
        lambda: aj.dot_product_attention(Q, Q, Q, local_window_size=2.5),
        *(TypeError, "local_window_size=2.5"),
    ),
    (
        lambda: aj.dot_product_attention(
            Q, Q, Q, implementation="xla", implementation_backward="zz"
        ),
        *(ValueError, "implementation_backward='zz'"),
    ),
    # Traced.
    (lambda: jax.jit(lambda s: attend(softmax_scale=s))(0.5), TypeError, "softmax_scale is a"),
    (lambda: jax.jit(lambda s: attend(causal=s))(True), TypeError, "causal is a"),
    (
        lambda: jax.jit(lambda s: aj.dot_product_attention(Q, Q, Q, scale=s))(0.5),
        *(UnsupportedProblem, "scale is traced"),
    ),
    # Sums of lengths that are at hand.
    (lambda: varlen(SUMS, 4), ValueError, "cu_seqlens_q has a sequence of 8 rows"),
    (lambda: varlen(jnp.array(SUMS) + 100), ValueError, "cu_seqlens_q=.* must begin with 0"),
    (lambda: varlen(SUMS[::-1].copy()), ValueError, "cu_seqlens_q=.* must begin with 0"),
    (lambda: varlen(SUMS, -8), ValueError, "max_seqlen_q=-8"),
    # Arrays.
    (lambda: aj.flash_attn_func(deleted(), K, V), ValueError, "q was donated or deleted"),
    (
        lambda: aj.flash_attn_func(np.ma.masked_array(np.asarray(Q)), K, V),
        *(TypeError, "q is a masked array"),
    ),
    (
        lambda: aj.flash_attn_func(np.zeros((2, 8, 4, 64), ">f2"), K, V),
        *(TypeError, "q has dtype >f2"),
    ),
    (lambda: aj.gemm_nt(A, B.astype(jnp.float16)), ValueError, "b has shape .* float16"),
    # Without elements, everything else is checked all the same.
    (lambda: aj.flash_attn_func(Q, K[:, :0], V[:, :0], num_splits=-7), ValueError, "num_splits=-7"),
    (lambda: aj.flash_attn_func(Q, K[:, :0], V[:1, :0]), ValueError, "v has batch=1"),
    (
        lambda: aj.flash_attn_func(Q, K[:, :0].astype(jnp.float16), V[:, :0]),
        *(ValueError, "k has shape .* float16"),
    ),
    (lambda: aj.gemm_nt(A[:0], B, activation="zz"), UnsupportedProblem, "activation=zz"),
    (lambda: aj.gemm_nt(A[:0], B, B[0]), ValueError, "bias has shape"),
    (lambda: aj.gemm_nt(A[:0], B, alpha=float("nan")), ValueError, "alpha=nan"),
    (lambda: aj.rms_norm(A[:0], A), ValueError, "weight has shape"),
    (
        lambda: aj.merge_state(ROWS[None, None, :0], normal(0, 1, 1, 2, 0), layout="zz"),
        *(ValueError, "layout='zz'"),
    ),
    # Derivatives that there are not.
    (lambda: jax.grad(lambda x: slope(x).astype(jnp.float32).sum())(A), *OF_SECOND),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG, ids=[row[2] for row in WRONG])
def test_the_error_names_it(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        jax.block_until_ready(call())


def test_symbolic_sizes() -> None:
    (batch,) = export.symbolic_shape("b")
    q = jax.ShapeDtypeStruct((batch, 8, 4, 64), jnp.bfloat16)
    with pytest.raises(ValueError, match=r"q has shape .*not of symbols"):
        export.export(jax.jit(lambda q: aj.flash_attn_func(q, q, q)))(q)


def test_debug_modes() -> None:
    out, _ = aj.flash_attn_func(Q, K, V, window_size=(0, 0), return_lse=True)
    with jax.disable_jit():
        found = aj.flash_attn_func(Q, K, V, window_size=(0, 0), return_lse=True)
    np.testing.assert_array_equal(found[0], out)
    with jax.debug_nans(True):
        jax.block_until_ready(aj.flash_attn_func(Q, K, V))
        with pytest.raises(FloatingPointError):
            aj.flash_attn_func(Q * jnp.nan, K, V)
    with jax.debug_infs(True), pytest.raises(FloatingPointError):
        aj.flash_attn_func(
            Q, K[:, :2], V[:, :2], top_left=True, window_size=(0, 0), return_lse=True
        )
    with jax.numpy_rank_promotion("raise"):
        for loss in (
            lambda a: aj.gemm_nt(a, B, B[:, 0], implementation_backward="xla").sum(),
            lambda a: aj.gemm_nt(a, B, B[:, 0], activation="gelu").sum(),
            lambda a: aj.rms_norm(a, A[0], a)[1].sum(),
            lambda a: aj.rms_norm(a, A[0], implementation_backward="xla").sum(),
            lambda a: aj.flash_attn_func(
                *(a.reshape(1, 5, 1, 64),) * 3, causal=True, implementation_backward="xla"
            ).sum(),
        ):
            assert jax.grad(lambda a, loss=loss: loss(a).astype(jnp.float32))(A).shape == A.shape


def test_nothing_is_something_too() -> None:
    assert jax.vmap(aj.flash_attn_func)(Q[None][:0], K[None][:0], V[None][:0]).shape == (
        0,
        *Q.shape,
    )
    assert jax.vmap(aj.gemm_nt, (0, None))(A[None][:0], B).shape == (0, 5, 32)
    bias = normal(6, 32)
    out = aj.gemm_nt(A[:, :0], B[:, :0], bias)
    np.testing.assert_array_equal(out, jnp.broadcast_to(bias, (5, 32)))
    assert aj.gemm_nt(A, B[:0]).shape == (5, 0)
    sinks = normal(7, 4, dtype=jnp.float32)
    out, lse = aj.flash_attn_func(Q, K[:, :0], V[:, :0], sinks=sinks, return_lse=True)
    assert not np.asarray(out, np.float32).any()
    np.testing.assert_array_equal(lse, jnp.broadcast_to(sinks[None, :, None], (2, 4, 8)))


def test_lists_of_lengths_and_sums_under_jit() -> None:
    found = aj.dot_product_attention(Q, Q, Q, key_value_seq_lengths=[3, 8])
    same = aj.dot_product_attention(Q, Q, Q, key_value_seq_lengths=np.array([3, 8], np.int32))
    np.testing.assert_array_equal(found, same)
    np.testing.assert_array_equal(jax.jit(varlen)(SUMS), varlen(SUMS))


def test_names_that_are_elsewhere() -> None:
    """What is named exists, here or in amdattn; eps is no residual."""
    for name in (*NAMES, *elsewhere.known()):
        if not hasattr(aj, name):
            for owner, target in named(aj, name):
                assert hasattr(amdattn if owner == "amdattn" else aj, target)
    with pytest.raises(TypeError, match="pass eps=1e-05"):
        aj.rms_norm(A, A[0], 1e-5)
