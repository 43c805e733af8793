"""`gemm` and `grouped_gemm` in JAX: layouts, batches, groups, their gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import amdattn
import amdattn.jax as aj
from amdattn.errors import UnsupportedProblem

F32 = jnp.float32
SIZES = (7, 0, 13, 1)  # of groups, of 24 rows


def some(*shape: int, dtype: Any = jnp.bfloat16) -> jax.Array:
    """Normally distributed."""
    return jnp.asarray(np.random.default_rng(shape).standard_normal(shape), dtype)


def near(found: Any, wanted: Any, most: float = 0.02) -> None:
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    one, other = (np.asarray(x, np.float64) for x in (found, wanted))
    assert np.abs(one - other).max(initial=0) <= most * max(np.abs(other).max(initial=0), 1e-30)


def gradients(function: Any, *arrays: Any) -> Any:
    def loss(*given: Any) -> Any:
        return (function(*given).astype(F32) ** 2).sum()

    return jax.jit(jax.grad(loss, tuple(range(len(arrays)))))(*arrays)


def stored(layout: str, *front: int) -> tuple[jax.Array, jax.Array]:
    """A and b of 10 x 20 and 30 x 20."""
    of_a = (20, 10) if layout == "tn" else (10, 20)
    of_b = (30, 20) if layout == "nt" else (20, 30)
    return some(*front, *of_a), some(*front, *of_b)


@pytest.mark.parametrize("front", [(), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize("layout", ["nt", "nn", "tn"])
def test_layouts_of_batches(layout: str, front: tuple[int, ...]) -> None:
    """The product, and gradients by kernels beside XLA's."""
    a, b = stored(layout, *front)
    rows = a.swapaxes(-1, -2) if layout == "tn" else a
    columns = b.swapaxes(-1, -2) if layout == "nt" else b
    out = aj.gemm(a, b, layout=layout, out_dtype="float32")
    near(out, jnp.matmul(rows.astype(F32), columns.astype(F32), precision="highest"), 1e-5)
    c = some(*front, 10, 30)
    ours, xla = (
        gradients(
            lambda a, b, c, way=way: aj.gemm(
                *(a, b), layout=layout, c=c, beta=0.5, alpha=0.25, implementation_backward=way
            ),
            *(a, b, c),
        )
        for way in (None, "xla")
    )
    for one, other in zip(ours, xla, strict=True):
        near(one, other)


def test_the_same_as_without_jax() -> None:
    """Every bit, with all that an epilogue has."""
    a, b, bias, more = some(33, 40), some(48, 40), some(48), some(33, 24)
    options = {"activation": "silu_and_mul", "alpha": 0.5}
    found = aj.gemm(a, b, bias=bias, residual=more, **options)
    wanted = amdattn.gemm(
        *map(np.asarray, (a, b)), bias=np.asarray(bias), residual=np.asarray(more), **options
    )
    np.testing.assert_array_equal(np.asarray(found), wanted)


def test_axes_of_rows() -> None:
    """Those in front of a are its rows where b has none."""
    a, b = some(2, 5, 16), some(16, 6)
    found = aj.gemm(a, b, layout="nn", residual=some(2, 5, 6))
    wanted = aj.gemm(a.reshape(10, 16), b, layout="nn", residual=some(2, 5, 6).reshape(10, 6))
    np.testing.assert_array_equal(np.asarray(found).reshape(10, 6), np.asarray(wanted))


@pytest.mark.parametrize("layout", ["nt", "nn"])
@pytest.mark.parametrize("activation", [None, "gelu", "silu_and_mul"])
def test_groups(layout: str, activation: str | None) -> None:
    """Results as `ragged_dot`'s; gradients by kernels as by XLA; what is behind groups is 0."""
    rows = 32 if activation == "silu_and_mul" else 16
    a, bias = some(24, 40), some(4, rows)
    b = some(4, rows, 40) if layout == "nt" else some(4, 40, rows)
    sizes = jnp.asarray(SIZES, jnp.int32)

    def product(a: Any, b: Any, bias: Any, more: Any, way: str | None = None) -> Any:
        return aj.grouped_gemm(
            *(a, b, sizes),
            layout=layout,
            bias=bias,
            activation=activation,
            residual=more,
            implementation_backward=way,
        )

    more = some(24, 16)
    out = product(a, b, bias, more)
    assert not np.asarray(out[21:], np.float32).any() and out.shape == (24, 16)
    if activation is None:
        by_k = b.swapaxes(1, 2) if layout == "nt" else b
        plain = jax.lax.ragged_dot(*(x.astype(F32) for x in (a, by_k)), sizes, precision="highest")
        which = np.repeat(np.arange(4), SIZES)
        wanted = plain[:21] + bias[which].astype(F32) + more[:21].astype(F32)
        near(out[:21], wanted.astype(out.dtype), 0.01)
    ours, xla = (
        gradients(lambda *x, way=way: product(*x, way=way), a, b, bias, more)
        for way in (None, "xla")
    )
    for one, other in zip(ours, xla, strict=True):
        near(one, other)
    assert not np.asarray(ours[0][21:], np.float32).any()
    assert not np.asarray(ours[1][1], np.float32).any()  # of the group without rows


@pytest.mark.parametrize("n", [1, 7, 9])
def test_groups_of_odd_columns(n: int) -> None:
    """Gradients where no kernel takes n as it is."""
    a, b, sizes = some(24, 40), some(4, n, 40), jnp.asarray(SIZES, jnp.int32)
    ours, xla = (
        gradients(
            lambda a, b, way=way: aj.grouped_gemm(a, b, sizes, implementation_backward=way), a, b
        )
        for way in (None, "xla")
    )
    for one, other in zip(ours, xla, strict=True):
        near(one, other)


def test_groups_of_k() -> None:
    """A product of each group's rows, and the gradient by XLA alone."""
    a, b, sizes = some(24, 10), some(24, 18), jnp.asarray(SIZES, jnp.int32)
    out = aj.grouped_gemm(a, b, sizes, layout="tn", out_dtype="float32")
    at = np.cumsum((0, *SIZES))
    for i, (first, end) in enumerate(zip(at, at[1:], strict=False)):
        own = (np.asarray(x[first:end], np.float64) for x in (a, b))
        np.testing.assert_allclose(out[i], next(own).T @ next(own), atol=1e-4)

    def loss(a: Any, way: str | None) -> Any:
        out = aj.grouped_gemm(a, b, sizes, layout="tn", implementation_backward=way)
        return out.astype(F32).sum()

    with pytest.raises(UnsupportedProblem, match="layout='tn' with groups=4"):
        jax.grad(loss)(a, None)
    assert jax.grad(loss)(a, "xla").shape == a.shape


def test_gradients_are_kernels() -> None:
    """Three launches, and no product of XLA's."""
    a, b, sizes = some(24, 40), some(4, 16, 40), jnp.asarray(SIZES, jnp.int32)

    def loss(a: Any, b: Any) -> Any:
        return aj.grouped_gemm(a, b, sizes).astype(F32).sum()

    text = jax.jit(jax.grad(loss, (0, 1))).lower(a, b).as_text()
    assert text.count("custom_call @amdattn.gemm(") in (2, 3) and "dot_general" not in text


@pytest.mark.parametrize("m, n, k", [(0, 6, 8), (4, 0, 8), (4, 6, 0), (0, 0, 0)])
@pytest.mark.parametrize("layout", ["nt", "nn", "tn"])
def test_nothing(m: int, n: int, k: int, layout: str) -> None:
    """Of no k what is added alone."""
    a = some(k, m) if layout == "tn" else some(m, k)
    b = some(n, k) if layout == "nt" else some(k, n)
    more = some(m, n)
    out = aj.gemm(a, b, layout=layout, residual=more)
    assert out.shape == (m, n)
    if k == 0:
        np.testing.assert_array_equal(np.asarray(out), np.asarray(more))
    sizes = jnp.asarray([k, 0] if layout == "tn" else [m, 0], jnp.int32)
    grouped = aj.grouped_gemm(a, b if layout == "tn" else jnp.stack([b, b]), sizes, layout=layout)
    assert grouped.shape == ((2, m, n) if layout == "tn" else (m, n))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda a, b: aj.gemm(a, b, layout="tt"), ValueError, "layout='tt' must be one of"),
        (lambda a, b: aj.gemm(a, b, layout="nn"), ValueError, r"a and b have shapes \(10, 20\)"),
        (lambda a, b: aj.gemm(a, b, beta=2.0), ValueError, "beta=2.0 is the factor of c"),
        (lambda a, b: aj.gemm(a, b, c=a, residual=a), ValueError, "c and residual were given"),
        (lambda a, b: aj.gemm(a, b, residual=a), ValueError, r"residual has shape \(10, 20\)"),
        (lambda a, b: aj.gemm(a, b[:7], activation="silu_and_mul"), ValueError, "even number"),
        (lambda a, b: aj.gemm(a[None], b[None, None]), ValueError, "a and b have shapes"),
        (lambda a, b: aj.grouped_gemm(a, b, None), TypeError, "group_sizes is None"),
        (lambda a, b: aj.grouped_gemm(a, b, a), ValueError, "group_sizes has shape"),
        (lambda a, b: aj.grouped_gemm(a, b, jnp.arange(2)), ValueError, "as many groups"),
    ],
)
def test_refused(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call(some(10, 20), some(30, 20))
