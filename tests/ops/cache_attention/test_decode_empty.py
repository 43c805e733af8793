"""Arrays without elements, and forms of options that other libraries have, on host and device."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from amdattn import asarray, flash_attn_func, flash_attn_with_kvcache
from amdattn.errors import UnsupportedProblem

BF16 = ml_dtypes.bfloat16


def normal(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32).astype(BF16)


@pytest.fixture(params=["host", "device"])
def place(request: pytest.FixtureRequest) -> Any:
    return asarray if request.param == "device" else lambda x: x


def on_host(x: Any) -> Any:
    return np.asarray(x.numpy() if hasattr(x, "numpy") else x, np.float32)


def table(*shape: int) -> Any:
    return np.zeros(shape, np.int32)


@pytest.mark.parametrize("queries", [3, 30])
@pytest.mark.parametrize(
    ("cache", "pages"),
    [((2, 0, 2, 64), None), ((4, 16, 2, 64), (2, 0)), ((0, 16, 2, 64), (2, 1))],
    ids=["no rows", "no pages of a sequence", "no pages"],
)
def test_caches_without_keys(place: Any, queries: int, cache: Any, pages: Any) -> None:
    """Rows that see no key are 0, and their lse is the sink, if there is one."""
    q, k = place(normal(2, queries, 4, 64)), place(normal(*cache))
    v = place(normal(*cache[:3], 32))
    more = {} if pages is None else {"block_table": place(table(*pages)), "cache_seqlens": 0}
    out, lse = flash_attn_with_kvcache(q, k, v, return_softmax_lse=True, **more)
    assert out.shape == (2, queries, 4, 32) and not on_host(out).any()
    assert lse.shape == (2, 4, queries) and (on_host(lse) == -np.inf).all()
    sinks = np.arange(4, dtype=np.float32)
    _, lse = flash_attn_with_kvcache(q, k, v, sinks=sinks, return_softmax_lse=True, **more)
    assert (on_host(lse) == sinks[None, :, None]).all()


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)])
def test_no_queries(place: Any, shape: tuple[int, int]) -> None:
    k = place(normal(max(1, shape[0]), 40, 2, 64) if shape[0] else normal(0, 40, 2, 64))
    out, lse = flash_attn_with_kvcache(
        place(normal(*shape, 4, 64)),
        k,
        k if shape[0] else place(normal(0, 40, 2, 64)),
        return_softmax_lse=True,
    )
    assert out.shape == (*shape, 4, 64) and lse.shape == (shape[0], 4, shape[1])


def test_keys_are_appended_without_queries() -> None:
    before, new = normal(2, 64, 2, 64), normal(2, 1, 2, 64)
    k, v = asarray(before.copy()), asarray(before.copy())
    lengths = asarray(np.array([3, 9], np.int32))
    out = flash_attn_with_kvcache(
        asarray(normal(2, 0, 4, 64)), k, v, asarray(new), asarray(new), cache_seqlens=lengths
    )
    assert out.shape == (2, 0, 4, 64)
    expected = before.copy()
    expected[0, 3], expected[1, 9] = new[0, 0], new[1, 0]
    for cache in (k, v):
        assert (cache.numpy().view(np.uint16) == expected.view(np.uint16)).all()


def test_no_keys_to_append_are_none(place: Any) -> None:
    q, k, v = (place(normal(2, n, h, 64)) for n, h in ((3, 4), (64, 2), (64, 2)))
    none = place(normal(2, 0, 2, 64))
    some = flash_attn_with_kvcache(q, k, v, none, none, cache_seqlens=20)
    assert (on_host(some) == on_host(flash_attn_with_kvcache(q, k, v, cache_seqlens=20))).all()
    with pytest.raises(ValueError, match="both must have as many rows and heads"):
        flash_attn_with_kvcache(q, k, v, none, place(normal(2, 1, 2, 64)), cache_seqlens=20)


def test_what_is_wrong_is_said_without_elements_too(place: Any) -> None:
    new, empty = place(normal(2, 1, 2, 64)), place(normal(2, 0, 2, 64))
    with pytest.raises(ValueError, match=r"k has 1 rows a sequence; k_cache.* has room for 0"):
        flash_attn_with_kvcache(place(normal(2, 3, 4, 64)), empty, empty, new, new, cache_seqlens=0)
    with pytest.raises(ValueError, match="num_heads_kv=2 must divide num_heads_q=3"):
        flash_attn_with_kvcache(place(normal(2, 0, 3, 64)), new, new)
    with pytest.raises(UnsupportedProblem, match="softcap"):
        flash_attn_with_kvcache(place(normal(2, 0, 4, 64)), new, new, softcap=1e-30)


@pytest.mark.parametrize("queries", [2, 30])
def test_scales_of_batch_and_heads(place: Any, queries: int) -> None:
    """As FlashAttention-3 has them, if all sequences have the same."""
    bits = np.random.default_rng(0).integers(0, 100, (2, 64, 2, 64), np.uint8)
    q, k = place(normal(2, queries, 4, 64)), place(bits)
    v, each = place(bits.copy()), np.array([1.5, 2.5], np.float32)
    expected = on_host(flash_attn_with_kvcache(q, k, v, k_descale=each, v_descale=each))
    expanded = np.broadcast_to(each, (2, 2))
    for scales in (expanded, np.stack([each, each])):
        found = flash_attn_with_kvcache(q, k, v, k_descale=scales, v_descale=scales)
        assert (on_host(found) == expected).all()
    with pytest.raises(UnsupportedProblem, match="other scales for each sequence"):
        flash_attn_with_kvcache(q, k, v, k_descale=np.array([[1, 2], [3, 4]], np.float32))
    if place is asarray:
        with pytest.raises(UnsupportedProblem, match=r"strides \(2, 1\) on the device"):
            flash_attn_with_kvcache(q, k, v, k_descale=asarray(np.stack([each, each])))


@pytest.mark.parametrize("window", [(None, None), (3, None), (None, 0), [None, None]])
def test_a_window_of_none_is_without_limit(window: Any) -> None:
    q = normal(1, 8, 2, 64)
    plain = tuple(-1 if side is None else side for side in window)
    for attend in (flash_attn_func, flash_attn_with_kvcache):
        found, expected = (attend(q, q.copy(), q.copy(), window_size=w) for w in (window, plain))
        assert (on_host(found) == on_host(expected)).all()


def test_numbers_for_all_sequences_are_in_no_place() -> None:
    """A length that is given as an int goes where q is, so that it is not what is misplaced."""
    q, k, v = (normal(1, n, 2, 64) for n in (3, 40, 40))
    for given in ((asarray(q), k, v), (q, asarray(k), asarray(v))):
        with pytest.raises(TypeError, match="must be in the same place") as caught:
            flash_attn_with_kvcache(*given, cache_seqlens=0)
        assert "cache_seqlens" not in str(caught.value)


def test_bits_of_bfloat16_get_a_hint() -> None:
    bits = normal(1, 8, 2, 64).view(np.uint16)
    for attend in (flash_attn_func, flash_attn_with_kvcache):
        with pytest.raises(UnsupportedProblem, match=r"pass x.view\(ml_dtypes.bfloat16\)"):
            attend(bits, bits.copy(), bits.copy())
