"""Calls with random shapes and options against float64."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

import amdattn
from tests.support.attention.masked import attention, varlen
from tests.support.problems import ATTENTION_CALLS


def arrays(call, lengths):
    """Q, k, v and sinks; several lengths one after the other."""
    dtype, head_dim, head_dim_v, _ = call["member"]
    element = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16
    kv_heads, group = call["heads"]
    rng = np.random.default_rng(call["seed"])

    def normal(*shape):
        return rng.standard_normal(shape, np.float32)

    q = normal(*lengths[0], kv_heads * group, head_dim).astype(element)
    k = normal(*lengths[1], kv_heads, head_dim).astype(element)
    v = normal(*lengths[1], kv_heads, head_dim_v).astype(element)
    return q, k, v, normal(kv_heads * group) if call["sinks"] else None


def close(got, expected, mode):
    out, lse = got
    np.testing.assert_allclose(
        out.astype(np.float64), expected[0], rtol=0.01, atol=0.03 if mode == "rtz" else 0.015
    )
    np.testing.assert_allclose(lse, expected[1], atol=2e-3, rtol=1e-5)


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
)
@given(call=ATTENTION_CALLS)
def test_random_calls(call):
    run(call)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(call=ATTENTION_CALLS)
def test_many_random_calls(call):
    run(call)


def run(call):
    masking = {name: call[name] for name in ("causal", "window_size", "top_left")}
    mode = call["member"][-1]
    options = {**masking, "round_mode": mode, "num_splits": call["num_splits"], "return_lse": True}
    if call["varlen"]:
        rows, keys = (list(side) for side in zip(*call["lengths"], strict=True))
        q, k, v, sinks = arrays(call, [(sum(rows),), (sum(keys),)])
        cu_q, cu_k = (np.cumsum([0, *x]).astype(np.int32) for x in (rows, keys))
        got = amdattn.flash_attn_varlen_func(
            q, k, v, cu_q, cu_k, max(rows), max(keys), sinks=sinks, **options
        )
        close(got, varlen(q, k, v, cu_q, cu_k, sinks=sinks, **masking), mode)
        return
    rows, keys = call["lengths"][0]
    batch = len(call["lengths"])
    q, k, v, sinks = arrays(call, [(batch, rows), (batch, keys)])
    expected = attention(q, k, v, sinks=sinks, **masking)
    order = (0, 1, 2, 3) if call["layout"] == "bshd" else (0, 2, 1, 3)
    out, lse = amdattn.flash_attn_func(
        *(x.transpose(order) for x in (q, k, v)), sinks=sinks, layout=call["layout"], **options
    )
    close((out.transpose(order), lse), expected, mode)
