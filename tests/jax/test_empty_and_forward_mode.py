"""Arrays without elements, as jax.nn takes them; and forward mode, which there is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import amdattn.jax as aj
from amdattn.errors import UnsupportedProblem

X = jnp.ones((1, 8, 2, 64), jnp.bfloat16)
BY_XLA = {"implementation_backward": "xla"}


@pytest.mark.parametrize(
    ("of_q", "of_k"),
    [
        ((1, 0, 2, 64), (1, 5, 2, 64)),
        ((1, 3, 2, 64), (1, 0, 2, 64)),
        ((0, 3, 2, 64), (0, 3, 2, 64)),
        ((3, 2, 64), (0, 2, 64)),
    ],
    ids=["queries", "keys", "batch", "keys, no batch"],
)
@pytest.mark.parametrize("is_causal", [False, True])
def test_arrays_without_elements(of_q: Any, of_k: Any, is_causal: bool) -> None:
    q, k = jnp.ones(of_q, jnp.bfloat16), jnp.ones(of_k, jnp.bfloat16)
    found = aj.dot_product_attention(q, k, k, is_causal=is_causal)
    expected = jax.nn.dot_product_attention(q, k, k, is_causal=is_causal)
    assert found.shape == expected.shape and (found == expected).all()
    with pytest.raises(ValueError, match="must be finite"):
        aj.dot_product_attention(q, k, k, scale=float("nan"))


def test_heads_have_to_agree_without_elements() -> None:
    q, k = jnp.ones((1, 0, 3, 64), jnp.bfloat16), jnp.ones((1, 5, 2, 64), jnp.bfloat16)
    with pytest.raises(ValueError, match="num_heads_kv=2 must divide num_heads_q=3"):
        aj.dot_product_attention(q, k, k)


def varlen(x: Any) -> Any:
    sums = jnp.array([0, 8], jnp.int32)
    return aj.flash_attn_varlen_func(x[0], x[0], x[0], sums, sums, 8, 8, **BY_XLA)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("dot_product_attention", lambda x: aj.dot_product_attention(x, x, x, **BY_XLA)),
        ("flash_attn_func", lambda x: aj.flash_attn_func(x, x, x, **BY_XLA)),
        ("flash_attn_varlen_func", varlen),
        ("gemm_nt", lambda x: aj.gemm_nt(x[0, :, 0], x[0, :, 1], **BY_XLA)),
        ("rms_norm", lambda x: aj.rms_norm(x[0, :, 0], x[0, 0, 0], **BY_XLA)),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_forward_mode_is_refused_in_words(name: str, function: Callable[[Any], Any]) -> None:
    for derive in (
        lambda: jax.jvp(function, (X,), (X,)),
        lambda: jax.jacfwd(lambda x: function(x).sum())(X),
    ):
        with pytest.raises(UnsupportedProblem, match=f"{name} has a first derivative in reverse"):
            derive()
