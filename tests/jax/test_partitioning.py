"""Programs over eight devices of the host: what is cut runs in parts, and equals the whole."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

import amdattn.jax as aj

if len(jax.devices("cpu")) < 8:
    pytest.skip("JAX has looked for devices before", allow_module_level=True)

MESH = Mesh(np.array(jax.devices("cpu")[:8]).reshape(2, 4), ("dp", "tp"))


def normal(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape, jnp.bfloat16)


Q, K, V = normal(0, 2, 64, 8, 64), normal(1, 2, 64, 4, 64), normal(2, 2, 64, 4, 64)


@pytest.fixture(params=[True, False], ids=["shardy", "gspmd"])
def partitioner(request: pytest.FixtureRequest) -> Any:
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", request.param)
    yield request.param
    jax.config.update("jax_use_shardy_partitioner", before)


def put(x: Any, *spec: Any) -> Any:
    return jax.device_put(x, NamedSharding(MESH, P(*spec)))


def same(found: Any, expected: Any) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def spec_of(x: Any) -> tuple[Any, ...]:
    spec = tuple(x.sharding.spec)
    while spec and spec[-1] is None:
        spec = spec[:-1]
    return spec


def collectives(function: Any, *arguments: Any) -> list[str]:
    text = function.lower(*arguments).compile().as_text()
    return re.findall(r"\b(all-gather|all-reduce|all-to-all|collective-permute)\(", text)


@pytest.mark.parametrize(
    "spec",
    [("dp", None, "tp"), ("dp",), (None, None, "tp"), (), ("dp", None, None, None)],
    ids=str,
)
def test_batch_and_heads_are_cut(partitioner: bool, spec: tuple[Any, ...]) -> None:
    function = jax.jit(lambda q, k, v: aj.flash_attn_func(q, k, v, causal=True, return_lse=True))
    arguments = [put(x, *spec) for x in (Q, K, V)]
    assert not collectives(function, *arguments)
    out, lse = function(*arguments)
    same((out, lse), aj.flash_attn_func(Q, K, V, causal=True, return_lse=True))
    cut = {axis: i for i, axis in enumerate(spec) if axis}
    assert spec_of(out) == tuple(x for x in P(*spec))[: max(cut.values(), default=-1) + 1]
    assert set(spec_of(lse)) - {None} == set(cut)


def test_outside_of_jit(partitioner: bool) -> None:
    arguments = [put(x, "dp", None, "tp") for x in (Q, K, V)]
    out = aj.flash_attn_func(*arguments)
    assert spec_of(out) == ("dp", None, "tp")
    same(out, aj.flash_attn_func(Q, K, V))


def test_other_axes_are_gathered_first(partitioner: bool) -> None:
    function = jax.jit(lambda q, k, v: aj.flash_attn_func(q, k, v, causal=True))
    arguments = [put(x, None, "tp") for x in (Q, K, V)]
    assert "all-gather" in collectives(function, *arguments)
    same(function(*arguments), aj.flash_attn_func(Q, K, V, causal=True))


def test_kv_heads_that_the_mesh_does_not_divide(partitioner: bool) -> None:
    k, v = K[:, :, :2], V[:, :, :2]
    arguments = put(Q, None, None, "tp"), put(k), put(v)
    with pytest.raises(Exception, match=r"num_heads_kv=2 cannot be cut in 4 parts.*'tp'"):
        jax.jit(aj.flash_attn_func)(*arguments)
    cut_in_two = Mesh(np.array(jax.devices("cpu")[:2]), ("tp",))
    arguments = [
        jax.device_put(x, NamedSharding(cut_in_two, P(None, None, "tp"))) for x in (Q, k, v)
    ]
    same(jax.jit(aj.flash_attn_func)(*arguments), aj.flash_attn_func(Q, k, v))


def test_lengths_and_layouts(partitioner: bool) -> None:
    lengths = jnp.array([40, 7], jnp.int32)

    def padded(q: Any, k: Any, v: Any, lengths: Any) -> Any:
        return aj.dot_product_attention(q, k, v, key_value_seq_lengths=lengths, is_causal=True)

    arguments = [*(put(x, "dp", None, "tp") for x in (Q, K, V)), put(lengths, "dp")]
    function = jax.jit(padded)
    assert "all-gather" not in collectives(function, *arguments)
    same(function(*arguments), padded(Q, K, V, lengths))
    heads_first = [x.swapaxes(1, 2) for x in (Q, K, V)]

    def bhsd(q: Any, k: Any, v: Any) -> Any:
        return aj.flash_attn_func(q, k, v, layout="bhsd")

    out = jax.jit(bhsd)(*(put(x, "dp", "tp") for x in heads_first))
    assert spec_of(out) == ("dp", "tp")
    same(out, bhsd(*heads_first))


def test_products_and_norms(partitioner: bool) -> None:
    a, b, weight = normal(3, 16, 256), normal(4, 64, 256), normal(5, 256)
    by_rows = jax.jit(aj.gemm_nt)
    assert not collectives(by_rows, put(a, "dp"), put(b))
    np.testing.assert_allclose(
        np.asarray(by_rows(put(a, "dp"), put(b, "tp")), np.float32),
        np.asarray(aj.gemm_nt(a, b), np.float32),
        atol=0.25,
    )
    out = by_rows(put(a, "dp"), put(b, "tp"))
    assert spec_of(out) == ("dp", "tp")
    norm = jax.jit(aj.rms_norm)
    assert not collectives(norm, put(a, "dp"), put(weight))
    same(norm(put(a, "dp"), put(weight)), aj.rms_norm(a, weight))


@pytest.mark.parametrize("by", [None, "xla"])
def test_gradients_and_vmap(partitioner: bool, by: Any) -> None:
    def loss(q: Any, k: Any, v: Any) -> Any:
        out = aj.flash_attn_func(q, k, v, causal=True, implementation_backward=by)
        return (out.astype(jnp.float32) ** 2).sum()

    gradients = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
    cut = [put(x, "dp", None, "tp") for x in (Q, K, V)]
    found = gradients(*cut)
    if by is None:
        assert not collectives(gradients, *cut)
    for one, other in zip(found, gradients(Q, K, V), strict=True):
        np.testing.assert_allclose(
            np.asarray(one, np.float32), np.asarray(other, np.float32), atol=0.1
        )
    mapped = jax.jit(jax.vmap(aj.flash_attn_func))
    stacked = [jnp.stack([x, x * 2]) for x in (Q, K, V)]
    same(mapped(*(put(x, None, "dp", None, "tp") for x in stacked)), mapped(*stacked))


def test_shard_map(partitioner: bool) -> None:
    spec = P("dp", None, "tp")
    mapped = jax.shard_map(aj.flash_attn_func, mesh=MESH, in_specs=spec, out_specs=spec)
    same(jax.jit(mapped)(Q, K, V), aj.flash_attn_func(Q, K, V))
    same(mapped(Q, K, V), aj.flash_attn_func(Q, K, V))


def test_shard_map_over_one_of_two_axes() -> None:
    """The other axis is XLA's to cut."""
    spec = P("dp")
    mapped = jax.jit(
        jax.shard_map(
            aj.flash_attn_func, mesh=MESH, in_specs=spec, out_specs=spec, axis_names={"dp"}
        )
    )
    arguments = [put(x, "dp", None, "tp") for x in (Q, K, V)]
    same(mapped(*arguments), aj.flash_attn_func(Q, K, V))


def test_one_device_of_several() -> None:
    there = jax.devices("cpu")[3]
    out = aj.flash_attn_func(*(jax.device_put(x, there) for x in (Q, K, V)))
    assert out.devices() == {there}
    same(out, aj.flash_attn_func(Q, K, V))
