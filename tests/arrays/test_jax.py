"""JAX arrays go in and come back, without this package importing jax."""

import numpy as np
import pytest

import amdattn
from amdattn.testing import attention, attention_rounded, compare

jax = pytest.importorskip("jax")
jnp = jax.numpy


def test_cpu_arrays_go_in_and_come_back():
    keys = jax.random.split(jax.random.key(1), 3)
    q, k, v = (jax.random.normal(key, (1, 40, 2, 128), jnp.bfloat16) for key in keys)
    out, lse = amdattn.flash_attn_func(q, k, v, return_lse=True)
    assert isinstance(out, jax.Array) and out.dtype == jnp.bfloat16
    assert isinstance(lse, jax.Array) and lse.shape == (1, 2, 40)
    host = [np.asarray(x) for x in (q, k, v)]
    held = compare(np.asarray(out), attention(*host)[0], attention_rounded(*host))
    assert held, held.reason
    # Usable in further JAX code.
    assert jnp.isfinite((out.astype(jnp.float32) @ jnp.ones((128, 1))).sum())


def test_mixes_with_numpy_on_the_host():
    x = jnp.ones((1, 4, 1, 128), jnp.bfloat16)
    assert isinstance(amdattn.flash_attn_func(x, np.asarray(x), np.asarray(x)), jax.Array)
    assert type(amdattn.flash_attn_func(np.asarray(x), x, x)) is np.ndarray


def test_jax_arrays_cannot_be_written():
    x = jnp.ones((1, 4, 1, 128), jnp.bfloat16)
    with pytest.raises(TypeError, match="out is a JAX array"):
        amdattn.flash_attn_func(x, x, x, out=x)


def test_traced_arrays_are_refused():
    x = jnp.ones((1, 4, 1, 128), jnp.bfloat16)
    with pytest.raises(TypeError, match=r"q must be .*tracer.*amdattn\.jax"):
        jax.jit(amdattn.flash_attn_func)(x, x, x)


def test_asarray():
    x = jax.random.normal(jax.random.key(2), (3, 5), jnp.bfloat16)
    np.testing.assert_array_equal(amdattn.asarray(x).numpy(), np.asarray(x))


def test_scalars_that_are_arrays():
    x = jax.random.normal(jax.random.key(3), (1, 9, 1, 64), jnp.bfloat16)
    for scale in (0.1, 2.0):
        out = amdattn.flash_attn_func(x, x, x, softmax_scale=jnp.float32(scale))
        expected = amdattn.flash_attn_func(x, x, x, softmax_scale=float(np.float32(scale)))
        np.testing.assert_array_equal(np.asarray(out), np.asarray(expected))
    traced = jax.jit(lambda s: amdattn.flash_attn_func(np.asarray(x), x, x, softmax_scale=s))
    with pytest.raises(TypeError, match=r"softmax_scale is a .*cannot be read"):
        traced(0.1)


def test_deleted_arrays():
    x = jnp.ones((1, 4, 1, 128), jnp.bfloat16)
    gone = x + 1
    gone.delete()
    with pytest.raises(ValueError, match="k is a JAX array that was deleted"):
        amdattn.flash_attn_func(x, gone, x)
