"""Operations under JAX's transformations: results are those of the plain call, to the bit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import amdattn.jax as aj
from amdattn import virtual
from amdattn.errors import UnsupportedProblem

BF16 = jnp.bfloat16


def normal(seed: int, *shape: int, dtype: Any = BF16) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape, jnp.float32).astype(dtype)


Q, K, V = normal(0, 2, 65, 4, 64), normal(1, 2, 70, 2, 64), normal(2, 2, 70, 2, 64)


def attend(q: Any, k: Any = K, v: Any = V, **options: Any) -> Any:
    return aj.flash_attn_func(q, k, v, causal=True, **options)


def same(found: Any, expected: Any) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def launches(run: Callable[[], Any]) -> int:
    before = virtual.counter("launches")
    jax.block_until_ready(run())
    return virtual.counter("launches") - before


def test_jit_scan_and_loops() -> None:
    twice = attend(attend(Q))
    same(jax.jit(lambda q: attend(attend(q)))(Q), twice)
    same(jax.lax.scan(lambda q, _: (attend(q), None), Q, None, length=2)[0], twice)
    step = jax.lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, attend(s[1])), (0, Q))
    same(step[1], twice)
    same(jax.lax.fori_loop(0, 2, lambda _, q: attend(q), Q), twice)
    same(jax.lax.cond(True, attend, lambda q: q, Q), attend(Q))
    same(jax.jit(attend, donate_argnums=0)(Q + 0), attend(Q))
    with jax.disable_jit():
        same(attend(Q), jax.jit(attend)(Q))


def test_shapes_without_a_run() -> None:
    before = virtual.counter("launches")
    out, lse = jax.eval_shape(lambda q: attend(q, return_lse=True), Q)
    assert (out.shape, out.dtype, lse.shape, lse.dtype) == (Q.shape, BF16, (2, 4, 65), jnp.float32)
    assert "amdattn" in str(jax.make_jaxpr(attend)(Q))
    assert virtual.counter("launches") == before


@pytest.mark.parametrize("axis", [0, 1, 3])
@pytest.mark.parametrize("of_keys", [None, 0, 2])
def test_vmap_folds_the_batch(axis: int, of_keys: int | None) -> None:
    parts = [(Q, K), (Q * 0.5, K * 2), (-Q, K + 1)]
    stack = jnp.stack([q for q, _ in parts], axis=axis)
    keys = K if of_keys is None else jnp.stack([k for _, k in parts], axis=of_keys)
    mapped = jax.vmap(attend, in_axes=(axis, of_keys), out_axes=axis)
    expected = jnp.stack([attend(q, K if of_keys is None else k) for q, k in parts], axis=axis)
    same(mapped(stack, keys), expected)
    assert launches(lambda: mapped(stack, keys)) == launches(lambda: attend(Q))
    same(jax.jit(mapped)(stack, keys), expected)


def test_vmap_of_everything() -> None:
    a, b, bias = normal(3, 3, 5, 256), normal(4, 3, 64, 256), normal(5, 3, 64)
    weight, sinks = normal(6, 3, 256), normal(7, 3, 4, dtype=jnp.float32)
    cases: list[tuple[Any, tuple[Any, ...], tuple[Any, ...]]] = [
        (aj.gemm_nt, (a, b[0]), (0, None)),
        (aj.gemm_nt, (a[0], b), (None, 0)),
        (aj.gemm_nt, (a, b), (0, 0)),
        (aj.gemm_nt, (a, b[0], bias), (0, None, 0)),
        (lambda a, b: aj.gemm_nt(a, b, activation="silu_and_mul"), (a, b), (0, 0)),
        (aj.rms_norm, (a, weight[0]), (0, None)),
        (aj.rms_norm, (a, weight), (0, 0)),
        (aj.rms_norm, (a, weight[0], a * 2), (0, None, 0)),
        (lambda q, s: attend(q, sinks=s), (Q[None].repeat(3, 0), sinks), (0, 0)),
        (lambda s: attend(Q, sinks=s, return_lse=True), (sinks,), (0,)),
    ]
    for function, arguments, axes in cases:
        found = jax.vmap(function, in_axes=axes)(*arguments)
        each = [
            function(*(x if at is None else x[i] for x, at in zip(arguments, axes, strict=True)))
            for i in range(3)
        ]
        for one, other in zip(
            jax.tree.leaves(found),
            jax.tree.leaves(jax.tree.map(lambda *x: jnp.stack(x), *each)),
            strict=True,
        ):
            # A longer problem may be summed in other parts.
            np.testing.assert_allclose(
                np.asarray(one, np.float32), np.asarray(other, np.float32), rtol=2**-6, atol=2**-6
            )


def test_nested_vmap_and_varlen() -> None:
    q = normal(8, 2, 3, 1, 33, 2, 64)
    nested = jax.vmap(jax.vmap(lambda q: aj.flash_attn_func(q, q, q)))(q)
    same(nested[1, 2], aj.flash_attn_func(*(q[1, 2],) * 3))
    sums = jnp.array([0, 5, 5, 40], jnp.int32)
    rows = normal(9, 3, 40, 2, 64)

    def several(q: Any, sums: Any = sums) -> Any:
        return aj.flash_attn_varlen_func(q, q, q, sums, sums, 40, 40, causal=True)

    for axes, each_sums in (((0, None), sums), ((0, 0), jnp.stack([sums] * 3))):
        found = jax.vmap(several, in_axes=axes)(rows, each_sums)
        for i in range(3):
            same(found[i], several(rows[i]))


def test_varlen_is_each_sequence_alone() -> None:
    sums_q, sums_k = np.array([0, 0, 33, 65], np.int32), np.array([0, 7, 40, 70], np.int32)
    q, k, v = Q[0], K[0], V[0]
    found, lse = jax.jit(
        lambda a, b: aj.flash_attn_varlen_func(
            q, k, v, a, b, 65, 70, causal=True, top_left=True, return_lse=True
        )
    )(sums_q, sums_k)
    for i in (1, 2):
        rows, keys = slice(*sums_q[i : i + 2]), slice(*sums_k[i : i + 2])
        alone, alone_lse = aj.flash_attn_func(
            *(q[None, rows], k[None, keys], v[None, keys]),
            causal=True,
            top_left=True,
            return_lse=True,
        )
        np.testing.assert_allclose(
            np.asarray(found[rows], np.float32), np.asarray(alone[0], np.float32), atol=0.02
        )
        np.testing.assert_allclose(lse[:, rows], alone_lse[0], rtol=1e-5, atol=1e-5)


# -- gradients -------------------------------------------------------------------------------------


def in_float32(function: Any) -> Any:
    return lambda *arrays: function(*(x.astype(jnp.float32) for x in arrays))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"causal": True},
        {"window_size": (9, 4)},
        {"softcap": 3.0},
        {"layout": "bhsd"},
        {"return_lse": True, "causal": True, "top_left": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("by", [None, "xla"])
def test_gradients_are_finite_differences_of_the_forward(options: Any, by: Any) -> None:
    """Along a random direction, of kernels and of XLA, against our own forward's values."""
    arrays = Q[:1, :20], K[:1, :24], V[:1, :24]
    if options.get("layout") == "bhsd":
        arrays = tuple(x.swapaxes(1, 2) for x in arrays)

    def loss(q: Any, k: Any, v: Any, backward: str | None = None) -> Any:
        found = aj.flash_attn_func(q, k, v, **options, implementation_backward=backward)
        return sum(
            (x.astype(jnp.float32) * normal(11 + i, *x.shape, dtype=jnp.float32)).sum()
            for i, x in enumerate(jax.tree.leaves(found))
        )

    gradients = jax.grad(lambda *a: loss(*a, by), argnums=(0, 1, 2))(*arrays)
    for i, gradient in enumerate(gradients):
        assert gradient.dtype == BF16 and gradient.shape == arrays[i].shape
        direction = normal(20 + i, *arrays[i].shape, dtype=jnp.float32)
        step = 0.25
        moved = []
        for sign in (1, -1):
            at = list(arrays)
            at[i] = (arrays[i].astype(jnp.float32) + sign * step * direction).astype(BF16)
            moved.append((loss(*at), at[i].astype(jnp.float32)))
        slope = moved[0][0] - moved[1][0]
        expected = (gradient.astype(jnp.float32) * (moved[0][1] - moved[1][1])).sum()
        scale = float(jnp.linalg.norm(gradient.astype(jnp.float32)) * jnp.linalg.norm(direction))
        assert abs(float(slope - expected)) < 0.05 * scale * step * 2 / 10 + 1.0


@pytest.mark.parametrize("by", [None, "xla"])
def test_gradients_of_products_norms_and_merges(by: Any) -> None:
    a, b, bias = normal(3, 5, 256), normal(4, 64, 256), normal(5, 64)
    weight = normal(6, 256)
    o, lse = normal(7, 3, 1, 4, 2, 64), normal(8, 3, 1, 2, 4, dtype=jnp.float32)

    def silu(a: Any, b: Any, bias: Any) -> Any:
        return jax.nn.silu(a @ b.T + bias)

    def norm(x: Any, weight: Any) -> Any:
        return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * weight

    def merge(o: Any, lse: Any) -> Any:
        weights = jax.nn.softmax(lse, axis=0).swapaxes(2, 3)[..., None]
        return (weights * o).sum(0), jax.nn.logsumexp(lse, axis=0)

    cases: list[tuple[Any, Any, tuple[Any, ...]]] = [
        (lambda *x, **o: aj.gemm_nt(*x, activation="silu", **o), silu, (a, b, bias)),
        (aj.rms_norm, norm, (a, weight)),
        *([(aj.merge_state, merge, (o, lse))] if by else []),
    ]
    for ours, plain, arrays in cases:
        every = tuple(range(len(arrays)))

        def loss(function: Any) -> Any:
            def total(*x: Any) -> Any:
                found = jax.tree.leaves(function(*x))
                return sum((y.astype(jnp.float32) ** 2).sum() for y in found)

            return total

        found = jax.grad(
            loss(lambda *x, ours=ours: ours(*x, implementation_backward=by)), argnums=every
        )(*arrays)
        expected = jax.grad(loss(in_float32(plain)), argnums=every)(*arrays)
        for one, other in zip(found, expected, strict=True):
            wrong = np.abs(np.asarray(one, np.float32) - np.asarray(other, np.float32))
            assert wrong.max() <= 0.02 * float(jnp.abs(other).max())


def test_without_a_backward_the_error_says_what_to_do() -> None:
    lse = jnp.zeros((1, 2, 4, 65))
    with pytest.raises(UnsupportedProblem, match='implementation_backward="xla"'):
        jax.grad(lambda q: aj.merge_state(q[None], lse)[0].astype(jnp.float32).sum())(Q)


@pytest.mark.parametrize("by", [None, "xla"])
def test_checkpoint_and_gradients_through_a_scan(by: Any) -> None:
    def block(q: Any) -> Any:
        return attend(q, implementation_backward=by)

    def deep(block: Any) -> Any:
        def loss(q: Any) -> Any:
            return (
                jax.lax.scan(lambda q, _: (block(q), None), q, None, length=2)[0]
                .astype(jnp.float32)
                .sum()
            )

        return jax.jit(jax.grad(loss))

    same(deep(jax.checkpoint(block))(Q), deep(block)(Q))
    per_batch = jax.vmap(
        jax.grad(
            lambda q, k, v: (
                attend(q[None], k[None], v[None], implementation_backward=by)
                .astype(jnp.float32)
                .sum()
            )
        )
    )
    whole = jax.grad(lambda q: attend(q, implementation_backward=by).astype(jnp.float32).sum())(Q)
    np.testing.assert_allclose(
        np.asarray(per_batch(Q, K, V), np.float32), np.asarray(whole, np.float32), atol=2**-6
    )


def test_gradients_keep_no_more_than_they_need() -> None:
    """Of q, k, v, out and the log of sums."""
    _, transposed = jax.vjp(attend, Q, K, V)
    kept = [x.shape for x in jax.tree.leaves(transposed) if hasattr(x, "shape") and x.shape]
    assert sorted(kept) == sorted([Q.shape, K.shape, V.shape, Q.shape, (2, 4, 65)])


def test_gradients_of_several_lengths_keep_no_more() -> None:
    """Nor those of jax.nn's signature; and kernels make them."""
    sums = jnp.array([0, 30, 30, 65], jnp.int32)
    q, k, v = Q[0], Q[0] + 1, Q[0] - 1  # an array that is given twice is kept once

    def varlen(q: Any, k: Any, v: Any) -> Any:
        return aj.flash_attn_varlen_func(q, k, v, sums, sums, 40, 40, causal=True)

    for function, (a, b, c) in ((varlen, (q, k, v)), (aj.dot_product_attention, (Q, K, V))):
        _, transposed = jax.vjp(function, a, b, c)
        kept = [x.shape for x in jax.tree.leaves(transposed) if getattr(x, "ndim", 0) > 1]
        lse = (4, 65) if a.ndim == 3 else (2, 4, 65)
        assert sorted(kept) == sorted([a.shape, b.shape, c.shape, a.shape, lse])
        gradient = jax.make_jaxpr(jax.grad(lambda *x, f=function: f(*x).astype("float32").sum()))
        assert "attention_backward" in str(gradient(a, b, c))


def test_gradients_of_several_lengths_and_of_sinks() -> None:
    """By kernels as by XLA."""
    sums_q, sums_k = (jnp.array(x, jnp.int32) for x in ([0, 30, 30, 65], [0, 20, 25, 70]))
    sinks = normal(9, 4, dtype=jnp.float32)

    def loss(q: Any, k: Any, v: Any, sinks: Any, by: Any) -> Any:
        o, lse = aj.flash_attn_varlen_func(
            *(q, k, v, sums_q, sums_k, 40, 50),
            causal=True,
            sinks=sinks,
            return_lse=True,
            implementation_backward=by,
        )
        weights = normal(12, *o.shape, dtype=jnp.float32)
        return (o.astype(jnp.float32) * weights).sum() + jnp.sin(lse).sum()

    ours, by_xla = (
        jax.grad(functools.partial(loss, by=by), argnums=(0, 1, 2, 3))(Q[0], K[0], V[0], sinks)
        for by in (None, "xla")
    )
    for one, other in zip(ours, by_xla, strict=True):
        wrong = np.abs(np.asarray(one, np.float32) - np.asarray(other, np.float32))
        assert one.dtype == other.dtype and wrong.max() <= 0.02 * float(jnp.abs(other).max())


# -- arguments -------------------------------------------------------------------------------------


def test_arrays_of_numpy_and_of_nothing() -> None:
    same(attend(np.asarray(Q), np.asarray(K), np.asarray(V)), attend(Q))
    out, lse = aj.flash_attn_func(Q[:, :0], K, V, return_lse=True)
    assert out.shape == (2, 0, 4, 64) and lse.shape == (2, 4, 0)
    out, lse = aj.flash_attn_func(Q, K[:, :0], V[:, :0], return_lse=True)
    assert not np.asarray(out).any() and (np.asarray(lse) == -np.inf).all()
    assert aj.gemm_nt(normal(0, 0, 64), normal(1, 8, 64)).shape == (0, 8)
    assert aj.rms_norm(normal(0, 0, 64), normal(1, 64)).shape == (0, 64)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: attend([[1.0]]),
            TypeError,
            "q must be an array of JAX or numpy, not builtins.list",
        ),
        (lambda: attend(Q, alibi_slopes=Q), UnsupportedProblem, "alibi_slopes"),
        (lambda: attend(Q, dropout_p=0.1), UnsupportedProblem, "dropout_p=0.1"),
        (lambda: attend(Q, window_size=[3]), TypeError, "window_size"),
        (lambda: attend(Q, implementation_backward="x"), ValueError, "implementation_backward='x'"),
        (lambda: attend(Q.astype(jnp.float32)), ValueError, "k has shape .* bfloat16; .* float32"),
        (
            lambda: aj.flash_attn_func(*(x.astype(jnp.float32) for x in (Q, K, V))),
            *(UnsupportedProblem, "dtype"),
        ),
        (lambda: attend(Q[0]), ValueError, "q has shape"),
        (lambda: attend(Q, layout="sbhd"), ValueError, "layout='sbhd'"),
        (lambda: aj.gemm_nt(normal(0, 2, 8), normal(1, 4, 7)), ValueError, "a and b have shapes"),
        (lambda: aj.rms_norm(normal(0, 2, 8), normal(1, 7)), ValueError, "weight"),
        (lambda: aj.merge_state(normal(0, 2, 8), normal(1, 7)), ValueError, "o has shape"),
    ],
)
def test_errors_name_the_argument(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_traced_options_are_refused() -> None:
    with pytest.raises((TypeError, ValueError, jax.errors.JAXTypeError)):
        jax.jit(lambda scale: attend(Q, softmax_scale=scale))(0.5)
