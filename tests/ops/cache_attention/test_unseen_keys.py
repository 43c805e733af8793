"""What no query sees is no term of a sum, nor is a page of it looked up; windows without an end."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn import asarray, flash_attn_varlen_func, flash_attn_with_kvcache
from amdattn.virtual import check

BF16 = ml_dtypes.bfloat16
_INT32_MAX = 2**31 - 1
_LAYOUTS = ("NHD", "packed", "shuffled")


def element_of(kind: str) -> Any:
    name = amdattn.device_props().architecture.fp8 if kind == "fp8" else kind
    return np.dtype(getattr(ml_dtypes, name) if name != "float16" else name)


def laid(k: Any, v: Any, page: int, layout: str) -> tuple[Any, Any]:
    """Rows (keys, heads, columns) in pages."""
    heads, dim = k.shape[-2:]
    k, v = (x.reshape(-1, page, heads, dim) for x in (k, v))
    if layout == "NHD":
        return k, v
    x = 16 // k.dtype.itemsize
    k = k.reshape(-1, page, heads, dim // x, x).transpose(0, 2, 3, 1, 4).copy()
    v = v.transpose(0, 2, 3, 1)
    if layout == "shuffled":
        v = v.reshape(-1, heads, dim, page // x, x).transpose(0, 1, 3, 2, 4)
    return k, v.copy()


def normal(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape, np.float32).astype(BF16)


def bits(x: Any) -> Any:
    return x.numpy().view(np.uint8)


@pytest.mark.parametrize("queries", [1, 5, 16, 17, 40])
@pytest.mark.parametrize("layout", _LAYOUTS)
@pytest.mark.parametrize("kind", ["bfloat16", "float16", "fp8"])
def test_windows_over_pages(kind: str, layout: str, queries: int) -> None:
    """NaN in K and V before the first key that is seen, in its page, too; those pages are gone."""
    element, rng = element_of(kind), np.random.default_rng(0)
    dtype = np.dtype(np.float16) if kind == "float16" else np.dtype(BF16)
    page, keys, left = 32, 256, 21
    k, v = (rng.standard_normal((keys, 1, 64), np.float32).astype(element) for _ in range(2))
    q = asarray(rng.standard_normal((1, queries, 2, 64), np.float32).astype(dtype))
    for length in (keys, 200, 77, 40):
        first = max(0, length - queries - left)
        found = []
        for nan in (False, True):
            spoiled = [x.copy() for x in (k, v)]
            for x in spoiled:
                x[:first], x[length:] = (np.nan, np.nan) if nan else (0, 0)
            table = np.arange(keys // page, dtype=np.int32)[None]
            if nan:
                table[0, : first // page] = -1
                table[0, -(-length // page) :] = 1 << 30
            caches = [asarray(x) for x in laid(*spoiled, page, layout)]
            with check(raise_on=None) as checked:
                out, lse = flash_attn_with_kvcache(
                    *(q, *caches),
                    cache_seqlens=asarray(np.array([length], np.int32)),
                    block_table=asarray(table),
                    window_size=(left, 0),
                    kv_layout=layout,
                    return_softmax_lse=True,
                )
            assert not checked.errors
            found.append((out, lse))
        (must, must_lse), (out, lse) = found
        assert not np.isnan(out.numpy().astype(np.float32)).any()
        np.testing.assert_array_equal(bits(out), bits(must))
        np.testing.assert_array_equal(bits(lse), bits(must_lse))


@pytest.mark.parametrize("used", [False, True])
def test_windows_over_pages_of_chunks_that_differ_in_length(used: bool) -> None:
    """A sequence of one query beside one of 300: its window, not that of the longest."""
    rng, page, left = np.random.default_rng(0), 16, 20
    lengths, chunks = (640, 512), (300, 1)
    k, v = (normal(rng, 2, 640, 1, 64) for _ in range(2))
    q = asarray(normal(rng, sum(chunks), 2, 64))
    sums = [asarray(np.cumsum([0, *x]).astype(np.int32)) for x in (chunks, lengths)]
    found = []
    for nan in (False, True):
        spoiled, table = [k.copy(), v.copy()], np.arange(80, dtype=np.int32).reshape(2, 40)
        for b in range(2):
            first = lengths[b] - chunks[b] - left
            for x in spoiled:
                x[b, :first] = np.nan if nan else 0
            table[b, : first // page] = -1 if nan else table[b, : first // page]
        caches = [asarray(x.reshape(80, page, 1, 64)) for x in spoiled]
        counts: dict[str, Any] = {"cu_seqlens_k": None if used else sums[1]}
        if used:
            counts["seqused_k"] = asarray(np.array(lengths, np.int32))
        with check(raise_on=None) as checked:
            found.append(
                flash_attn_varlen_func(
                    *(q, *caches, sums[0]),
                    **counts,
                    max_seqlen_q=300,
                    max_seqlen_k=640,
                    causal=True,
                    window_size=(left, 0),
                    block_table=asarray(table),
                )
            )
        assert not checked.errors
    assert not np.isnan(found[1].numpy().astype(np.float32)).any()
    np.testing.assert_array_equal(bits(found[0]), bits(found[1]))


@pytest.mark.parametrize("queries", [1, 16, 17])
@pytest.mark.parametrize(("page", "layout"), [(0, "NHD"), *((16, layout) for layout in _LAYOUTS)])
def test_keys_that_are_appended_and_seen_by_none(layout: str, page: int, queries: int) -> None:
    """More new keys than queries, under a window; in padding; in the caches as they are given."""
    rng, keys, new, left = np.random.default_rng(0), 160, 70, 9
    old = 61
    first = old + new - queries - left
    k, v = (normal(rng, keys, 1, 64) for _ in range(2))
    k_new, v_new = (normal(rng, 1, new, 1, 64) for _ in range(2))
    q = asarray(normal(rng, 1, queries, 2, 64))
    found = []
    for value in (0, np.nan):
        given = [x.copy() for x in (k, v, k_new, v_new)]
        for x in given[:2]:
            x[:first] = value
        for x in given[2:]:
            x[0, : first - old] = value
        caches = laid(*given[:2], page, layout) if page else tuple(x[None] for x in given[:2])
        arrays = [asarray(x) for x in (*caches, *given[2:])]
        table = np.arange(keys // page, dtype=np.int32)[None] if page else None
        options: dict[str, Any] = {"block_table": asarray(table)} if page else {}
        out = flash_attn_with_kvcache(
            *(q, *arrays),
            cache_seqlens=asarray(np.array([old], np.int32)),
            window_size=(left, 0),
            kv_layout=layout,
            **options,
        )
        found.append(out)
        after = [x.numpy() for x in arrays[:2]]
        if not page:
            for x, y in zip(after, given[2:], strict=True):
                np.testing.assert_array_equal(
                    x[:, old : old + new].view(np.uint16), y.view(np.uint16)
                )
    assert not np.isnan(found[1].numpy().astype(np.float32)).any()
    np.testing.assert_array_equal(bits(found[0]), bits(found[1]))


@pytest.mark.parametrize("queries", [1, 16, 17])
@pytest.mark.parametrize("pad", [5, 63, 64, 100])
def test_padding(pad: int, queries: int) -> None:
    """Of keys that are appended into it, too."""
    rng, old, new = np.random.default_rng(0), 62, 10
    k, v = (normal(rng, 1, 96, 1, 64) for _ in range(2))
    k_new, v_new = (normal(rng, 1, new, 1, 64) for _ in range(2))
    q = asarray(normal(rng, 1, queries, 2, 64))
    found = []
    for value in (0, np.nan):
        given = [x.copy() for x in (k, v, k_new, v_new)]
        for x in given[:2]:
            x[0, : min(pad, old)] = value
        for x in given[2:]:
            x[0, : max(0, pad - old)] = value
        found.append(
            flash_attn_with_kvcache(
                *(q, *map(asarray, given)),
                cache_seqlens=asarray(np.array([old], np.int32)),
                cache_leftpad=asarray(np.array([pad], np.int32)),
            )
        )
    assert not np.isnan(found[1].numpy().astype(np.float32)).any()
    np.testing.assert_array_equal(bits(found[0]), bits(found[1]))


@pytest.mark.parametrize("queries", [1, 3, 16, 17])
@pytest.mark.parametrize("page", [0, 16])
def test_windows_that_reach_as_far_as_a_number_goes(page: int, queries: int) -> None:
    """Sides near 2^31 are no ends: the same bits as without."""
    rng, keys = np.random.default_rng(0), 96
    k, v = (normal(rng, 2 * keys, 1, 64) for _ in range(2))
    shape = (-1, page, 1, 64) if page else (2, keys, 1, 64)
    caches = [asarray(x.reshape(shape)) for x in (k, v)]
    q = asarray(normal(rng, 2, queries, 2, 64))
    given: dict[str, Any] = {"cache_seqlens": asarray(np.array([96, 33], np.int32))}
    if page:
        given["block_table"] = asarray(np.arange(2 * keys // page, dtype=np.int32).reshape(2, -1))

    def called(window: tuple[int, int], **more: Any) -> list[Any]:
        found = flash_attn_with_kvcache(
            q, *caches, **given, window_size=window, return_softmax_lse=True, **more
        )
        return [bits(x) for x in found]

    must, causal = called((-1, -1)), called((-1, 0))
    for far in (_INT32_MAX, _INT32_MAX - 1, _INT32_MAX - 33, _INT32_MAX - keys, 2**30, 2**30 + 1):
        for window in ((-1, far), (far, -1), (far, far)):
            for x, y in zip(called(window), must, strict=True):
                np.testing.assert_array_equal(x, y)
        for window, more in (((far, 0), {}), ((far, far), {"causal": True})):
            for x, y in zip(called(window, **more), causal, strict=True):
                np.testing.assert_array_equal(x, y)


def test_rotary_positions_are_those_of_a_window_that_sees_all() -> None:
    """A window, however wide, turns each query by its own place."""
    rng = np.random.default_rng(0)
    q = asarray(normal(rng, 1, 4, 2, 64))
    new = [asarray(normal(rng, 1, 4, 1, 64)) for _ in range(2)]
    angles = [asarray(normal(rng, 96, 16)) for _ in range(2)]
    found = []
    for window in ((20, 3), (_INT32_MAX, _INT32_MAX)):
        caches = [asarray(np.zeros((1, 64, 1, 64), BF16)) for _ in range(2)]
        out = flash_attn_with_kvcache(
            *(q, *caches, *new, *angles),
            cache_seqlens=asarray(np.array([10], np.int32)),
            window_size=window,
        )
        found.append(bits(out))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("far", [_INT32_MAX - 2, _INT32_MAX - 40, 2**30])
def test_windows_of_sequences_that_reach_as_far(far: int) -> None:
    """With the lengths as they are, and with more promised than there are."""
    rng = np.random.default_rng(0)
    q, k, v = (asarray(normal(rng, 90, 2, 64)) for _ in range(3))
    sums = asarray(np.array([0, 50, 90], np.int32))
    for longest in (50, 90):
        must = flash_attn_varlen_func(q, k, v, sums, sums, longest, longest)
        for window in ((-1, far), (far, -1), (far, far)):
            out = flash_attn_varlen_func(q, k, v, sums, sums, longest, longest, window_size=window)
            np.testing.assert_array_equal(bits(out), bits(must))
