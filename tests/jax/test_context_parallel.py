"""A sequence over devices of the host gives what one device gives of the whole of it."""

from __future__ import annotations

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

import amdattn.jax as aj

if len(jax.devices("cpu")) < 8:
    pytest.skip("JAX has looked for devices before", allow_module_level=True)

METHODS = ("ring", "all_gather", "ulysses")
HEAD_DIM = 64
# Half a bfloat16's spacing, of its value: of a ring's steps, of results, of one device's results.
# Those of probabilities are many and average out.
ROUNDINGS = 3 * 2.0**-8
RMS = 2.0**-8  # of the result's; one row that saw a wrong key would be more
LSE = 4e-6


def normal(seed: int, *shape: int, dtype: Any = jnp.bfloat16) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32), dtype)


def operands(
    seqlen: int, heads: int, kv_heads: int, *, batch: int = 1, keys: int | None = None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    keys = keys or seqlen
    return (
        normal(0, batch, seqlen, heads, HEAD_DIM),
        normal(1, batch, keys, kv_heads, HEAD_DIM),
        normal(2, batch, keys, kv_heads, HEAD_DIM),
    )


def mesh_of(num_devices: int) -> Mesh:
    return Mesh(np.array(jax.devices("cpu")[:num_devices]), ("cp",))


def mapped(method: str, mesh: Mesh, **options: Any) -> Any:
    """The function on whole arrays in the order of shards, with the log of sums."""

    def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> Any:
        return aj.context_parallel_attention(q, k, v, "cp", method, return_lse=True, **options)

    rows = P(None, "cp")
    return jax.shard_map(
        attention, mesh=mesh, in_specs=(rows,) * 3, out_specs=(rows, P(None, None, "cp"))
    )


def over_devices(method: str, num_devices: int, *qkv: jax.Array, **options: Any) -> Any:
    """Result in the sequence's order."""
    function = jax.jit(mapped(method, mesh_of(num_devices), **options))
    if options.get("order") != "zigzag":
        return function(*qkv)
    orders = [aj.zigzag_order(x.shape[1], num_devices) for x in qkv]
    o, lse = function(*(x[:, order] for x, order in zip(qkv, orders, strict=True)))
    back = aj.zigzag_order(qkv[0].shape[1], num_devices, inverse=True)
    return o[:, back], lse[:, :, back]


def compare(found: Any, expected: Any, v: jax.Array) -> None:
    o, of_one = (np.asarray(x[0], np.float32) for x in (found, expected))
    assert found[0].dtype == expected[0].dtype and o.shape == of_one.shape
    allowed = ROUNDINGS * np.abs(np.asarray(v, np.float32)).max()
    np.testing.assert_allclose(o, of_one, rtol=0, atol=allowed)
    assert np.square(o - of_one).mean() <= RMS**2 * np.square(of_one).mean()
    np.testing.assert_allclose(found[1], expected[1], rtol=LSE, atol=LSE)


def check(
    method: str,
    num_devices: int,
    rows: int,
    heads: tuple[int, int],
    causal: bool,
    window: tuple[int, int],
    order: str,
) -> None:
    qkv = operands(num_devices * rows, *heads)
    options = {"causal": causal, "window_size": window}
    expected = aj.flash_attn_func(*qkv, **options, return_lse=True)
    found = over_devices(method, num_devices, *qkv, **options, order=order)
    compare(found, expected, qkv[2])


NONE = (-1, -1)
# Devices, rows of each, heads of queries and of keys, causal, window, order.
CASES = [
    (2, 33, (2, 2), False, NONE, "contiguous"),
    (4, 64, (4, 4), True, NONE, "contiguous"),
    (4, 64, (4, 2), True, NONE, "zigzag"),
    (4, 33, (4, 1), True, NONE, "contiguous"),
    (2, 64, (4, 1), True, (70, 0), "zigzag"),
    (4, 33, (4, 2), False, (40, 20), "contiguous"),
    (8, 16, (8, 4), True, NONE, "contiguous"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_equals_one_device(method: str, case: Any) -> None:
    check(method, *case)


MASKS = [
    *((False, window) for window in (NONE, (0, 0), (5, -1), (-1, 5), (33, 31), (64, 0), (200, 70))),
    *((False, window) for window in ((-1, 100), (100, -1))),
    *((True, window) for window in (NONE, (33, -1), (100, 5))),
]


@pytest.mark.slow
@pytest.mark.parametrize(("causal", "window"), MASKS, ids=str)
@pytest.mark.parametrize("num_devices", [1, 2, 4, 8])
@pytest.mark.parametrize("method", METHODS)
def test_masks(method: str, num_devices: int, causal: bool, window: tuple[int, int]) -> None:
    for rows, order in ((33, "contiguous"), (34, "contiguous"), (34, "zigzag")):
        check(method, num_devices, rows, (8, 8), causal, window, order)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["contiguous", "zigzag"])
@pytest.mark.parametrize(("num_devices", "kv_heads"), [*product((2, 4, 8), (8, 4, 2))])
@pytest.mark.parametrize("method", METHODS)
def test_heads(method: str, num_devices: int, kv_heads: int, order: str) -> None:
    for causal in (False, True):
        check(method, num_devices, 64, (8, kv_heads), causal, NONE, order)


@pytest.mark.slow
@pytest.mark.parametrize("num_devices", [3, 5, 6, 7])
@pytest.mark.parametrize("method", METHODS[:2])
def test_numbers_of_devices(method: str, num_devices: int) -> None:
    for causal, window in ((False, NONE), (True, NONE), (False, (20, 9))):
        check(method, num_devices, 18, (2, 1), causal, window, "contiguous")
        check(method, num_devices, 18, (2, 1), causal, window, "zigzag")


@pytest.mark.parametrize("method", METHODS)
def test_options_and_dtypes(method: str) -> None:
    q, k, _ = (x.astype(jnp.float16) for x in operands(64, 2, 2, batch=2))
    v = normal(3, 2, 64, 2, 128, dtype=jnp.float16)  # of another head_dim
    options = {"softmax_scale": 0.3, "softcap": 2.0, "causal": True}
    expected = aj.flash_attn_func(q, k, v, **options, return_lse=True)
    compare(over_devices(method, 2, q, k, v, **options), expected, v)


@pytest.mark.parametrize("method", METHODS)
def test_other_numbers_of_keys(method: str) -> None:
    """Without a mask, as of a decoder that looks at an encoder's result."""
    for order, keys in (("zigzag", 40), ("contiguous", 22)):
        qkv = operands(64, 2, 2, keys=keys)
        expected = aj.flash_attn_func(*qkv, return_lse=True)
        compare(over_devices(method, 2, *qkv, order=order), expected, qkv[2])


@pytest.mark.parametrize("method", METHODS)
def test_without_elements(method: str) -> None:
    q, k, v = operands(32, 2, 2)
    o, lse = over_devices(method, 2, q, k[:, :0], v[:, :0], causal=True)
    assert o.shape == q.shape and not o.any() and np.isneginf(lse).all()
    o, lse = over_devices(method, 2, q[:, :0], k, v)
    assert o.shape == (1, 0, 2, HEAD_DIM) and lse.shape == (1, 2, 0)


@pytest.mark.parametrize("method", METHODS)
def test_beside_other_axes(method: str) -> None:
    """Batches along one axis of the mesh, mapped or left to XLA; sequences along two."""
    qkv = operands(64, 2, 2, batch=2)
    expected = aj.flash_attn_func(*qkv, causal=True)
    mesh = Mesh(np.array(jax.devices("cpu")[:4]).reshape(2, 2), ("dp", "cp"))

    def function(axes: Any, spec: P, **options: Any) -> Any:
        def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> Any:
            return aj.context_parallel_attention(q, k, v, axes, method, causal=True)

        return jax.shard_map(attention, mesh=mesh, in_specs=spec, out_specs=spec, **options)

    cut = P("dp", "cp")
    put = [jax.device_put(x, NamedSharding(mesh, cut)) for x in qkv]
    for found in (
        jax.jit(function("cp", cut))(*put),
        jax.jit(function("cp", P(None, "cp"), axis_names={"cp"}))(*put),
        function("cp", cut)(*qkv),  # outside of jit
    ):
        assert tuple(found.sharding.spec) == ("dp", "cp")
        compare((found, 0), (expected, 0), qkv[2])
    if method != "ulysses":  # which has two heads for four devices
        both = P(None, ("dp", "cp"))
        compare((jax.jit(function(("dp", "cp"), both))(*qkv), 0), (expected, 0), qkv[2])


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("ring", {"causal": True}),
        pytest.param("ring", {"window_size": (20, 9)}, marks=pytest.mark.slow),
        ("all_gather", {"causal": True}),
        ("ulysses", {"causal": True}),
    ],
    ids=str,
)
@pytest.mark.parametrize("by", [None, pytest.param("xla", marks=pytest.mark.slow)])
def test_gradients(method: str, options: Any, by: Any) -> None:
    """Of both results, through the exchange of shards and the merging of parts."""
    qkv = operands(32, 2, 1)
    weights = normal(4, 1, 32, 2, HEAD_DIM, dtype=jnp.float32)

    def gradients(attention: Any) -> Any:
        def loss(*qkv: jax.Array) -> Any:
            o, lse = attention(*qkv)
            return (o.astype(jnp.float32) * weights).sum() + jnp.sin(lse).sum()

        return jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(*qkv)

    options = {**options, "implementation_backward": by}
    expected = gradients(lambda *qkv: aj.flash_attn_func(*qkv, return_lse=True, **options))
    found = gradients(mapped(method, mesh_of(2), **options))
    for of_shards, of_one in zip(found, expected, strict=True):
        allowed = 4 * 2.0**-8 * np.abs(np.asarray(of_one, np.float32)).max()
        assert allowed > 1e-3
        # Rounded results of steps, and gradients of each, added up in bfloat16.
        np.testing.assert_allclose(
            *(np.asarray(x, np.float32) for x in (of_shards, of_one)), rtol=0, atol=allowed
        )
