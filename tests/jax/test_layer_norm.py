"""`amdattn.jax.layer_norm`: results, gradients by kernels and by XLA, the state of dropout."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import amdattn
import amdattn.jax

ROWS, COLUMNS, P = 6, 200, 0.25


def inputs(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> Any:
        return jnp.asarray(rng.standard_normal(shape, np.float32), jnp.bfloat16)

    x, weight = normal(2, 3, COLUMNS), normal(COLUMNS)
    return {"x": x, "weight": weight, "bias": normal(COLUMNS), "residual": normal(*x.shape)}


def state(seed: int = 7, offset: int = 5) -> Any:
    return jnp.asarray(np.array([seed, offset], np.int64).view(np.int32))


def bits(x: Any) -> Any:
    return np.asarray(x).view(np.uint16)


def test_the_same_as_outside_of_jax() -> None:
    given = inputs()
    found = jax.jit(amdattn.jax.layer_norm)(**given)
    must = amdattn.layer_norm(*map(np.asarray, given.values()))
    for one, other in zip(found, must, strict=True):
        np.testing.assert_array_equal(bits(one), bits(other))
    *found, after = amdattn.jax.layer_norm(**given, dropout_p=P, state=state())
    on_device = amdattn.asarray(np.asarray(state()))
    must = amdattn.layer_norm(*map(np.asarray, given.values()), dropout_p=P, state=on_device)
    for one, other in zip(found, must, strict=True):
        np.testing.assert_array_equal(bits(one), bits(other))
    np.testing.assert_array_equal(np.asarray(after), on_device.numpy())
    assert int(np.asarray(after).view(np.int64)[1]) == 6


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("names", [("x", "weight"), ("x", "weight", "bias", "residual")])
@pytest.mark.parametrize("rms", [False, True])
def test_gradients_by_kernels_are_those_of_xla(
    rms: bool, names: tuple[str, ...], dropout: bool
) -> None:
    given = {name: x for name, x in inputs(1).items() if name in names}
    if rms:
        given.pop("bias", None)
    options: dict[str, Any] = {"dropout_p": P, "state": state()} if dropout else {}
    function = amdattn.jax.rms_norm if rms else amdattn.jax.layer_norm

    def loss(implementation: str | None, **arrays: Any) -> Any:
        found = function(**arrays, **options, implementation_backward=implementation)
        each = [y for y in jax.tree.leaves(found) if y.dtype == jnp.bfloat16]
        return sum(jnp.sum(jnp.sin(y.astype(jnp.float32)) * (i + 1)) for i, y in enumerate(each))

    of = [
        jax.grad(lambda arrays, way=way: loss(way, **arrays))(given)  # type: ignore[misc]
        for way in (None, "xla")
    ]
    for name in given:
        by_kernels, by_xla = (np.asarray(each[name], np.float32) for each in of)
        most = np.abs(by_xla).max()
        np.testing.assert_allclose(by_kernels, by_xla, atol=2.0**-6 * most, err_msg=name)


def test_dropped_rows_are_not_parts_of_a_batch() -> None:
    """Of a mapped call each has its own state, and numbers its rows from 0."""
    x = inputs(2)["x"]
    weight = jnp.ones(COLUMNS, jnp.bfloat16)
    states = jnp.stack([state(1), state(2)])
    out, after = jax.vmap(lambda x, s: amdattn.jax.layer_norm(x, weight, dropout_p=P, state=s))(
        x, states
    )
    for i in range(2):
        alone, advanced = amdattn.jax.layer_norm(x[i], weight, dropout_p=P, state=states[i])
        np.testing.assert_array_equal(bits(out[i]), bits(alone))
        np.testing.assert_array_equal(np.asarray(after[i]), np.asarray(advanced))


@pytest.mark.parametrize("options", [{"dropout_p": P}, {"state": state()}])
def test_a_state_is_given_exactly_with_dropout(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a state is given exactly with dropout"):
        amdattn.jax.layer_norm(**inputs(), **options)
