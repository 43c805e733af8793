"""Chunks of queries over a cache: operands on the host, paddings, and what callers call them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from amdattn import flash_attn_varlen_func, flash_attn_with_kvcache
from amdattn.device import runtime
from amdattn.op.comparison import judge
from amdattn.ops.cache_attention.prefill_cases import OPERATION
from tests.ops.cache_attention.test_prefill_calls import bits, called, case, of_device

BF16 = ml_dtypes.bfloat16


def test_host_caches_of_any_strides() -> None:
    """Also such that no kernel reads both as they lie."""
    one = case(2, 20, 96, 4, 2, 64, lengths=(96, 33))
    inputs = one.inputs(0)
    must, _ = called(one.problem, inputs)
    k, v = inputs["k_cache"], inputs["v_cache"]
    for given in (
        {"k_cache": np.asfortranarray(k), "v_cache": v[::-1].copy()[::-1]},
        {"k_cache": v_of_twice(k), "v_cache": v},
        {"k_cache": k, "v_cache": v_of_twice(v)},
    ):
        out, _ = called(one.problem, inputs | given)
        np.testing.assert_array_equal(bits(out), bits(must))


def v_of_twice(x: Any) -> Any:
    """The same, sequences twice as far apart."""
    return np.repeat(x, 2, axis=0)[::2]


@pytest.mark.parametrize("heads_kv", [1, 4])
def test_host_caches_of_one_key(heads_kv: int) -> None:
    """Whose step is none: sequences follow each other all the same."""
    rng = np.random.default_rng(0)
    q = rng.standard_normal((3, 20, 4, 64)).astype(BF16)
    k, v = (rng.standard_normal((3, 1, heads_kv, 64)).astype(BF16) for _ in range(2))
    out = flash_attn_with_kvcache(q, k, v, cache_seqlens=np.ones(3, np.int32))
    must = np.broadcast_to(np.repeat(v, 4 // heads_kv, axis=2), q.shape)
    np.testing.assert_array_equal(bits(out), bits(must))


def test_rows_of_no_sequence_stay_as_they_are_on_the_host() -> None:
    options: dict[str, Any] = {"lengths": (40, 20), "chunks": (9, 3), "page_size": 16}
    inputs = case(2, 9, 48, 4, 2, 64, **options).inputs(0)
    q = np.concatenate([inputs["q"]] * 2)
    out, lse = np.full(q.shape, 7, q.dtype), np.full((4, len(q)), 7, np.float32)
    pages = {"k": inputs["k_cache"], "v": inputs["v_cache"], "block_table": inputs["block_table"]}
    sums = inputs["cu_seqlens_q"], inputs["cu_seqlens_kv"]
    flash_attn_varlen_func(
        q, pages.pop("k"), pages.pop("v"), *sums, 9, 40, **pages, out=out, lse=lse
    )
    assert np.all(out[12:] == 7) and np.all(lse[:, 12:] == 7)
    assert not np.any(np.all(out[:12] == 7, axis=-1)) and np.all(lse[:, :12] != 7)


def test_padding_beyond_the_keys_that_were_there() -> None:
    """New keys in it are appended; their rows are not among those that are copied."""
    fp8 = runtime.device_props().architecture.fp8
    padded = {"cache_leftpad": True, "num_pages": 4, "seqlen_new": 33, "causal": True}
    one = case(4, 33, 130, 2, 1, 64, lengths=(90, 20, 0, 50), **padded, kv_dtype=fp8)
    inputs = one.inputs(0)
    inputs["cache_leftpad"] = np.array([91, 50, 33, 3], np.int32)
    must, given = OPERATION.reference(one, inputs), of_device(inputs)
    found = dict(zip(("out", "lse"), called(one.problem, given), strict=True)) | given
    for name, of in must.items():
        compared = judge(found[name].numpy(), of.values, of.tolerance, 0.0)
        assert compared, f"{name}: {compared.reason}"


def test_small_operands_on_the_host_beside_others_on_the_device() -> None:
    """Sinks and scales are copied in every call, as lengths are; not while a graph is captured."""
    fp8 = runtime.device_props().architecture.fp8
    scaled = {"k_descales": True, "v_descales": True, "kv_dtype": fp8, "sinks": True}
    for rows in (1, 20):
        inputs = case(2, rows, 64, 4, 2, 64, lengths=(64, 33), **scaled).inputs(0)
        given = of_device(inputs)
        must = flash_attn_with_kvcache(**given)
        for name in ("sinks", "k_descale", "v_descale"):
            out = flash_attn_with_kvcache(**given | {name: inputs[name]})
            np.testing.assert_array_equal(bits(out), bits(must))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"max_total_k": 0}, "max_total_k=0 must be at least 1, or None"),
        ({"v": np.zeros((5, 16, 2, 64), BF16)}, r"^v has shape \(5, 16, 2, 64\)"),
        ({"k": np.zeros((4, 16, 2, 72), BF16)}, r"^k has shape \(4, 16, 2, 72\)"),
    ],
)
def test_chunks_name_what_callers_know(changed: dict[str, Any], text: str) -> None:
    cache = np.zeros((4, 16, 2, 64), BF16)
    given: dict[str, Any] = {"q": np.zeros((9, 4, 64), BF16), "k": cache, "v": cache}
    given |= {"cu_seqlens_q": [0, 9], "cu_seqlens_k": [0, 30], "block_table": [[0, 1]]}
    with pytest.raises(ValueError, match=text):
        flash_attn_varlen_func(**given | {"max_seqlen_q": 9, "max_seqlen_k": 30} | changed)
