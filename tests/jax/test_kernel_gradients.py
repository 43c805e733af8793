"""Gradients of products and of normalised rows by kernels, under JAX's transformations."""

from __future__ import annotations

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

import amdattn.jax as aj

BF16, F32 = jnp.bfloat16, jnp.float32
OF_PLAIN = 2.0


def normal(seed: int, *shape: int, dtype: Any = BF16) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape, F32).astype(dtype)


A, B, BIAS = normal(0, 3, 13, 104), normal(1, 62, 104) / 10, normal(2, 62)
X, WEIGHT, ADDED = normal(3, 4, 33, 200), normal(4, 200), normal(5, 4, 33, 200)


def total(out: Any) -> Any:
    """Some sum of all results, with weights that 16 bits hold."""
    return sum(
        (y.astype(F32) * normal(9 + i, *y.shape, dtype=jnp.float16).astype(F32)).sum()
        for i, y in enumerate(jax.tree.leaves(out))
    )


def product(a: Any, b: Any, bias: Any = None, by: Any = None, **options: Any) -> Any:
    return aj.gemm_nt(a, b, bias, implementation_backward=by, **options)


def norm(x: Any, weight: Any, residual: Any = None, by: Any = None) -> Any:
    return aj.rms_norm(x, weight, residual, 1e-5, implementation_backward=by)


def gradients(function: Any, arrays: Any, **options: Any) -> Any:
    def loss(*arrays: Any) -> Any:
        return total(function(*arrays, **options))

    return jax.jit(jax.grad(loss, argnums=tuple(range(len(arrays)))))(*arrays)


def relative(one: Any, exact: Any) -> float:
    one, exact = np.asarray(one, np.float64), np.asarray(exact, np.float64)
    return float(np.linalg.norm(one - exact) / np.linalg.norm(exact))


def same(found: Any, expected: Any) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


# -- how exact -------------------------------------------------------------------------------------


def plain_product(a: Any, b: Any, bias: Any, of_out: Any, activation: Any) -> Any:
    """16-bit operands of products, sums in float32, the derivative in float32."""
    wide = [x.astype(F32) for x in (a.reshape(-1, a.shape[-1]), b)]
    sums = jnp.matmul(wide[0], wide[1].T, precision="highest") + bias.astype(F32)
    (of_sums,) = jax.vjp(functools.partial(activated, activation=activation), sums)[1](of_out)
    rounded = of_sums.astype(a.dtype).astype(F32)
    found = (
        jnp.matmul(rounded, wide[1], precision="highest").reshape(a.shape),
        jnp.matmul(rounded.T, wide[0], precision="highest"),
        of_sums.sum(0),
    )
    return [x.astype(a.dtype) for x in found]


def activated(x: Any, activation: str | None) -> Any:
    if activation is None:
        return x
    by = {
        "silu": jax.nn.silu,
        "gelu": functools.partial(jax.nn.gelu, approximate=False),
        "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
    }[activation.removesuffix("_and_mul")]
    if activation.endswith("_and_mul"):
        gate, factor = jnp.split(x, 2, axis=-1)
        return by(gate) * factor
    return by(x)


@pytest.mark.parametrize("dtype", [BF16, jnp.float16])
@pytest.mark.parametrize("activation", [None, "gelu", "silu_and_mul", "gelu_tanh"])
def test_products_are_as_exact_as_plain_ones(activation: Any, dtype: Any) -> None:
    arrays = tuple(x.astype(dtype) for x in (A, B, BIAS))
    found = gradients(product, arrays, activation=activation)
    wide = [np.asarray(x, np.float64) for x in arrays]
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        rows = jnp.asarray(wide[0].reshape(-1, wide[0].shape[-1]))
        sums = rows @ jnp.asarray(wide[1]).T + jnp.asarray(wide[2])
        of_out = normal(9, *A.shape[:-1], activated(sums, activation).shape[-1], dtype=jnp.float16)
        rounded = of_out.astype(dtype).reshape(len(rows), -1)
        exact_of_sums = jax.vjp(functools.partial(activated, activation=activation), sums)[1](
            rounded.astype(jnp.float64)
        )[0]
        exact = [
            np.asarray(x)
            for x in (exact_of_sums @ wide[1], exact_of_sums.T @ rows, exact_of_sums.sum(0))
        ]
    plain = plain_product(*arrays, rounded.astype(F32), activation)
    for ours, theirs, must, given in zip(found, plain, exact, arrays, strict=True):
        assert (ours.shape, ours.dtype) == (given.shape, dtype)
        of_shape = must.reshape(given.shape)
        assert relative(ours, of_shape) <= OF_PLAIN * max(relative(theirs, of_shape), 1e-5)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("of_weight", [BF16, F32])
def test_norms_are_those_of_float32(of_weight: Any, residual: bool) -> None:
    """But for one rounding of each result."""
    arrays = (X, WEIGHT.astype(of_weight), *([ADDED] if residual else []))
    found = gradients(norm, arrays)
    by_xla = gradients(norm, arrays, by="xla")
    for one, other, given in zip(found, by_xla, arrays, strict=True):
        assert (one.shape, one.dtype) == (given.shape, given.dtype)
        assert relative(one, other) <= 2.0**-8


# -- transformations -------------------------------------------------------------------------------


def test_programs_hold_kernels_for_all_of_it() -> None:
    def lowered(by: Any) -> str:
        def loss(x: Any, w: Any, b: Any, r: Any) -> Any:
            return total(aj.gemm_nt(norm(x, w, r, by)[0], b, implementation_backward=by))

        arrays = X, WEIGHT, normal(6, 16, 200), ADDED
        both = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2, 3)))
        return str(both.lower(*arrays).as_text())

    ours, by_xla = lowered(None), lowered("xla")
    assert ours.count("custom_call @amdattn.gemm(") == 3 and "dot_general" not in ours
    assert ours.count("custom_call @amdattn.rms_norm_backward(") == 1
    assert by_xla.count("custom_call @amdattn.") == 2 and "dot_general" in by_xla


def test_they_keep_no_more_than_they_need() -> None:
    def kept(function: Any, *arrays: Any) -> list[Any]:
        leaves = jax.tree.leaves(jax.vjp(function, *arrays)[1])
        return sorted(x.shape for x in leaves if hasattr(x, "shape") and x.shape)

    rows = (A.size // A.shape[-1], A.shape[-1])
    assert kept(product, A, B, BIAS) == sorted([rows, B.shape])
    assert kept(norm, X, WEIGHT) == sorted([X.shape, WEIGHT.shape])
    assert kept(norm, X, WEIGHT, ADDED) == sorted([X.shape, WEIGHT.shape])


def test_checkpoint_scan_and_the_same_bits() -> None:
    square = normal(7, 200, 200) / 14

    def block(x: Any) -> Any:
        return product(norm(x, WEIGHT), square, activation="silu")

    def deep(block: Any) -> Any:
        def loss(x: Any) -> Any:
            return total(jax.lax.scan(lambda x, _: (block(x), None), x, None, length=2)[0])

        return jax.jit(jax.grad(loss))

    once = deep(block)(X)
    same(deep(block)(X), once)
    same(deep(jax.checkpoint(block))(X), once)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
def test_vmap(axes: Any) -> None:
    for function, arrays in ((product, (A[0], B)), (norm, (X[0], WEIGHT))):
        several = [
            x if at is None else jnp.stack([x, -2 * x, x / 4])
            for x, at in zip(arrays, axes, strict=True)
        ]

        def each(*arrays: Any, function: Any = function) -> Any:
            return jax.grad(lambda *given: total(function(*given)), argnums=(0, 1))(*arrays)

        found = jax.vmap(each, in_axes=axes)(*several)
        for i in range(3):
            alone = each(*(x if at is None else x[i] for x, at in zip(several, axes, strict=True)))
            for one, other in zip(found, alone, strict=True):
                np.testing.assert_allclose(
                    np.asarray(one[i], np.float32), np.asarray(other, np.float32), 2**-6, 2**-6
                )


def test_meshes_exchange_sums_only() -> None:
    """Rows that devices share: dx stays where it is; sums of groups are gathered, and added."""
    mesh = Mesh(np.array(jax.devices("cpu")[:4]), ("dp",))

    def loss(x: Any, w: Any) -> Any:
        return total(norm(x, w))

    function = jax.jit(jax.grad(loss, argnums=(0, 1)))
    x = normal(8, 8, 64, 72)
    cut = (
        jax.device_put(x, NamedSharding(mesh, P("dp"))),
        jax.device_put(WEIGHT[:72], NamedSharding(mesh, P())),
    )
    text = function.lower(*cut).compile().as_text()
    found = re.findall(r" = (\S+) (?:all-\w+|collective-permute|reduce-scatter)\(", text)
    assert [each.split("{")[0] for each in found] == ["f32[32,72]"]  # 512 rows in groups of 16
    for one, other in zip(function(*cut), function(x, WEIGHT[:72]), strict=True):
        np.testing.assert_allclose(
            np.asarray(one, np.float32), np.asarray(other, np.float32), 2**-7, 2**-7
        )


def test_shapes_of_one_row_and_of_nothing() -> None:
    for x in (X[0, 0], X[:1, :1], X[:, :0]):
        found = gradients(norm, (x, WEIGHT))
        assert [y.shape for y in found] == [x.shape, WEIGHT.shape]
    found = gradients(product, (A[:, :0], B))
    assert [y.shape for y in found] == [(3, 0, 104), B.shape]
