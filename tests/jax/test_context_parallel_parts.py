"""Blocks, orders, balance and errors of context_parallel_attention; the page's example."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec as P

import amdattn.jax as aj
from amdattn.errors import UnsupportedProblem
from amdattn.jax.context_parallel import order
from amdattn.jax.context_parallel.blocks import visible
from tests.support.paths import ROOT

if len(jax.devices("cpu")) < 8:
    pytest.skip("JAX has looked for devices before", allow_module_level=True)

ROWS = P(None, "cp")


def normal(seed: int, *shape: int) -> jax.Array:
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return jnp.asarray(values, jnp.bfloat16)


def mesh_of(num_devices: int) -> Mesh:
    return Mesh(np.array(jax.devices("cpu")[:num_devices]), ("cp",))


def seen(rows: int, keys: int, offset: int, window: tuple[int, int]) -> Any:
    """By definition, pair by pair."""
    distance = np.arange(keys)[None] - np.arange(rows)[:, None] - offset
    left, right = (side if side >= 0 else 10**6 for side in window)
    return (distance >= -left) & (distance <= right)


@pytest.mark.parametrize(("rows", "keys"), [*product((1, 2, 5), (1, 3, 4))])
def test_blocks_hold_what_is_seen(rows: int, keys: int) -> None:
    """Every pair, once; kernels get windows around their diagonal, and no row without a key."""
    for offset, left, right in product(range(-11, 12), range(-1, 9), range(-1, 9)):
        expected = seen(rows, keys, offset, (left, right))
        block = visible(offset, rows, keys, (left, right))
        if block is None:
            assert not expected.any()
            continue
        part = np.zeros_like(expected)
        inner = part[slice(*block.rows), slice(*block.keys)]
        inner[:] = seen(*inner.shape, 0, block.window)
        assert min(block.window) >= -1 and inner.any(axis=1).all()
        np.testing.assert_array_equal(part, expected)


# -- orders ----------------------------------------------------------------------------------------


def test_zigzag_order() -> None:
    np.testing.assert_array_equal(aj.zigzag_order(8, 2), [0, 1, 6, 7, 2, 3, 4, 5])
    for num_devices in (1, 2, 3, 8):
        there = aj.zigzag_order(12 * num_devices, num_devices)
        back = aj.zigzag_order(12 * num_devices, num_devices, inverse=True)
        np.testing.assert_array_equal(there[back], np.arange(12 * num_devices))
    assert aj.zigzag_order(0, 4).shape == (0,)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ((12, 8), ValueError, r"seqlen=12 must be a multiple of 2 \* num_devices=16"),
        ((-16, 8), ValueError, "seqlen=-16"),
        ((16, 0), ValueError, "num_devices=0 must be >= 1"),
        ((16.0, 2), TypeError, "seqlen"),
        ((16, True), TypeError, "num_devices"),
    ],
    ids=str,
)
def test_zigzag_order_refuses(arguments: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        aj.zigzag_order(*arguments)


@pytest.mark.parametrize("num_devices", [1, 2, 3, 4, 5, 8])
def test_shards_are_exchanged(num_devices: int) -> None:
    """Over the mesh, and on one device, to the order that is public; and back."""
    rows = 6 * num_devices
    x = jnp.arange(2 * rows * 3).reshape(2, rows, 3)
    expected = x[:, aj.zigzag_order(rows, num_devices)]

    def over_mesh(change: Any, x: jax.Array) -> jax.Array:
        function = jax.shard_map(
            lambda x: change(x, "cp", 1), mesh=mesh_of(num_devices), in_specs=ROWS, out_specs=ROWS
        )
        return jax.jit(function)(x)

    np.testing.assert_array_equal(over_mesh(order.to_zigzag, x), expected)
    np.testing.assert_array_equal(over_mesh(order.to_contiguous, expected), x)
    np.testing.assert_array_equal(order.in_zigzag(x, num_devices, 1), expected)
    np.testing.assert_array_equal(order.in_sequence(expected, num_devices, 1), x)
    for parity in (0, 1):
        pairs = order.destinations(num_devices, parity)
        assert sorted(to for _, to in pairs) == list(range(num_devices))


# -- programs --------------------------------------------------------------------------------------


def traced(method: str, num_devices: int, rows: int, **options: Any) -> Any:
    """The jaxpr on one device."""
    shape = jax.ShapeDtypeStruct((1, num_devices * rows, 8, 64), jnp.bfloat16)
    function = jax.shard_map(
        lambda q, k, v: aj.context_parallel_attention(q, k, v, "cp", method, **options),
        mesh=mesh_of(num_devices),
        in_specs=ROWS,
        out_specs=ROWS,
    )
    return jax.make_jaxpr(function)(shape, shape, shape)


def equations(jaxpr: Any) -> Iterator[Any]:
    """Of a program and all that it calls, in their order."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation
        for inner in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")
        ):
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def flops(jaxpr: Any) -> int:
    return sum(
        equation.params["problem"].flops
        for equation in equations(jaxpr)
        if equation.primitive.name == "amdattn" and equation.params["operation"] == "attention"
    )


def branches_of(jaxpr: Any) -> list[list[int]]:
    return [
        [flops(branch) for branch in equation.params["branches"]]
        for equation in equations(jaxpr)
        if equation.primitive.name == "cond"
    ]


@pytest.mark.parametrize("given", ["contiguous", "zigzag"])
@pytest.mark.parametrize("method", ["ring", "all_gather"])
def test_causal_work_is_balanced(method: str, given: str) -> None:
    """Whatever a device's index makes it do is as much, but for the diagonal's triangles."""
    conditions = branches_of(traced(method, 4, 64, causal=True, order=given))
    assert len(conditions) == (3 if method == "ring" else 1)
    for branches in conditions:
        assert min(branches) > 0.99 * max(branches)
    contiguous = branches_of(traced(method, 4, 63, causal=True))
    assert all(min(branches) < 0.3 * max(branches) for branches in contiguous)


@pytest.mark.parametrize(
    ("options", "moves"),
    [
        ({}, 7),
        ({"window_size": (16, 0)}, 1),
        ({"window_size": (0, 16)}, 1),
        ({"window_size": (17, 0)}, 2),
        ({"window_size": (17, 33)}, 5),
        ({"window_size": (100, 100)}, 7),
        ({"window_size": (0, 0)}, 0),
        ({"window_size": (-1, 16)}, 7),
    ],
    ids=str,
)
def test_ring_goes_as_far_as_windows_reach(options: Any, moves: int) -> None:
    names = [each.primitive.name for each in equations(traced("ring", 8, 16, **options))]
    assert names.count("ppermute") == 2 * moves  # of keys and of values


@pytest.mark.parametrize(
    ("method", "kinds"),
    [
        ("ring", {"ppermute"}),
        ("all_gather", {"all_gather", "reduce_scatter"}),
        ("ulysses", {"all_to_all"}),
    ],
)
@pytest.mark.parametrize("options", [{}, {"causal": True, "order": "zigzag"}], ids=str)
def test_gradients_move_as_much_again(method: str, kinds: set[str], options: Any) -> None:
    """Bytes that a device receives, as the page has them; every attention has its backward."""
    num_devices, rows = 4, 16
    q, k = (jax.ShapeDtypeStruct((1, num_devices * rows, n, 64), jnp.bfloat16) for n in (8, 4))
    function = jax.shard_map(
        lambda q, k, v: aj.context_parallel_attention(q, k, v, "cp", method, **options),
        mesh=mesh_of(num_devices),
        in_specs=ROWS,
        out_specs=ROWS,
    )

    def loss(q: Any, k: Any, v: Any) -> Any:
        return function(q, k, v).astype(jnp.float32).sum()

    found = [*equations(jax.make_jaxpr(jax.grad(loss, argnums=(0, 1, 2)))(q, k, k))]
    received = {"ppermute": 1.0, "all_gather": num_devices - 1.0}
    moved: dict[str, float] = {}
    for each in found:
        name = each.primitive.name
        if name in (*received, "all_to_all", "reduce_scatter", "psum"):
            share = received.get(name, 1 - 1 / num_devices)
            nbytes = sum(x.aval.size * x.aval.dtype.itemsize for x in each.invars)
            moved[name] = moved.get(name, 0) + share * nbytes
    of_q, of_kv = (heads * rows * 64 * 2 for heads in (8, 2 * 4))
    forward = (num_devices - 1) * of_kv
    if method == "ulysses":
        forward = (2 * of_q + of_kv) * (num_devices - 1) // num_devices
    assert set(moved) == kinds
    assert sum(moved.values()) == 2 * forward
    calls = [each.params["operation"] for each in found if each.primitive.name == "amdattn"]
    assert calls.count("attention_backward") == calls.count("attention") > 0


def test_shards_travel_under_attention() -> None:
    """The next keys and values set out before attention of those that are there."""
    names = [each.primitive.name for each in equations(traced("ring", 4, 16))]
    order_of = [name for name in names if name in ("ppermute", "amdattn")]
    step = ["amdattn"] * 2  # attention, and what merges it
    assert order_of == [
        *("ppermute", "ppermute", "amdattn"),
        *("ppermute", "ppermute", *step) * 2,
        *step,
    ]


def test_no_collective_is_under_a_condition() -> None:
    for method, options in product(
        ("ring", "all_gather", "ulysses"), ({"causal": True}, {"window_size": (30, 20)})
    ):
        for equation in equations(traced(method, 8, 16, **options)):
            if equation.primitive.name == "cond":
                inner = {
                    e.primitive.name for b in equation.params["branches"] for e in equations(b)
                }
                assert not inner & {"ppermute", "all_gather", "all_to_all"}


def test_example_of_the_page() -> None:
    page = (ROOT / "docs" / "context-parallelism.md").read_text("utf-8")
    example = page.split("```python\n")[1].split("```")[0]
    assert "jax.devices()" in example
    namespace: dict[str, Any] = {}
    exec(example.replace("jax.devices()", "jax.devices()[:2]"), namespace)
    x = normal(0, 1, 32, 2, 64)
    found, expected = namespace["attention"](x, x, x), aj.flash_attn_func(x, x, x, causal=True)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(
        *(np.asarray(each, np.float32) for each in (found, expected)), rtol=0, atol=0.05
    )


# -- errors ----------------------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], Any, str]] = [
    ({"method": "rings"}, ValueError, r"method='rings' must be one of \('ring', 'all_gather'"),
    ({"method": None}, TypeError, "method"),
    ({"order": "zig"}, ValueError, r"order='zig' must be one of \('contiguous', 'zigzag'\)"),
    ({"axis_name": "dp"}, ValueError, "axis_name='dp' is no axis"),
    ({"axis_name": ("cp", "dp")}, ValueError, r"axis_name=\('cp', 'dp'\) is no axis"),
    ({"axis_name": 3}, TypeError, "axis_name=3"),
    ({"order": "zigzag", "rows": 33}, ValueError, "q has 33 rows .* order='zigzag'"),
    ({"order": "zigzag", "keys": 33}, ValueError, "k has 33 rows .* order='zigzag'"),
    ({"causal": True, "keys": 16}, UnsupportedProblem, "q has 32 rows .* k has 16; .*causal=True"),
    ({"window_size": (3, 3), "keys": 64}, UnsupportedProblem, r"window_size=\(3, 3\)"),
    ({"window_size": (3, -2)}, ValueError, r"window_size=\(3, -2\)"),
    ({"window_size": 3}, TypeError, "window_size"),
    ({"causal": 1}, TypeError, "causal"),
    ({"return_lse": 1}, TypeError, "return_lse"),
    ({"softcap": -1.0}, ValueError, "softcap=-1.0"),
    ({"implementation_backward": "ours"}, ValueError, "implementation_backward='ours'"),
    ({"method": "ulysses", "heads": 3}, UnsupportedProblem, "q has 3 heads; method='ulysses' over"),
    (
        {"method": "ulysses", "heads": 12, "kv_heads": 3},
        UnsupportedProblem,
        "k and v have 3 heads; method='ulysses' over 2 devices",
    ),
    ({"heads": 3, "kv_heads": 2}, ValueError, "num_heads_kv=2 must divide num_heads_q=3"),
    ({"dtype": jnp.float32}, UnsupportedProblem, "float32"),
]


@pytest.mark.parametrize(("options", "error", "match"), REFUSED, ids=str)
def test_refused(options: dict[str, Any], error: Any, match: str) -> None:
    given = {"rows": 32, "heads": 2, "dtype": jnp.bfloat16, "axis_name": "cp", **options}
    rows, heads, dtype = (given.pop(name) for name in ("rows", "heads", "dtype"))
    keys, kv_heads = given.pop("keys", rows), given.pop("kv_heads", heads)
    q, k = (jnp.zeros((1, 2 * n, h, 64), dtype) for n, h in ((rows, heads), (keys, kv_heads)))

    def attention(q: jax.Array, k: jax.Array) -> Any:
        return aj.context_parallel_attention(q, k, k, **given)

    mapped = jax.shard_map(attention, mesh=mesh_of(2), in_specs=ROWS, out_specs=ROWS)
    with pytest.raises(error, match=match):
        jax.jit(mapped)(q, k)


def test_refused_outside_of_shard_map() -> None:
    x = jnp.zeros((1, 32, 2, 64), jnp.bfloat16)
    with pytest.raises(ValueError, match=r"axis_name='cp' is no axis .* inside jax.shard_map"):
        aj.context_parallel_attention(x, x, x, "cp")
    with pytest.raises(ValueError, match="divisible"):  # shards that differ: JAX's own
        jax.shard_map(
            lambda x: aj.context_parallel_attention(x, x, x, "cp"),
            mesh=mesh_of(2),
            in_specs=ROWS,
            out_specs=ROWS,
        )(x[:, :31])


def test_refused_operands() -> None:
    x = jnp.zeros((1, 32, 2, 64), jnp.bfloat16)

    def call(q: Any, k: Any, v: Any) -> Any:
        return jax.shard_map(
            lambda x: aj.context_parallel_attention(
                *(y(x) for y in (q, k, v)), axis_name="cp", method="ring"
            ),
            mesh=mesh_of(2),
            in_specs=ROWS,
            out_specs=ROWS,
        )(x)

    def same(x: jax.Array) -> jax.Array:
        return x

    for arguments, error, match in (
        ((same, same, lambda x: x[:, :-1]), ValueError, "v has seq=15 but k has seq=16"),
        ((lambda x: x[0], same, same), ValueError, "q has shape"),
        ((same, lambda x: x.astype(jnp.float16), same), ValueError, "float16"),
        ((same, lambda x: [1, 2], same), TypeError, "k must be an array"),
    ):
        with pytest.raises(error, match=match):
            call(*arguments)
