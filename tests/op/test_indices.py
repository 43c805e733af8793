"""Indices that callers give are read once, and of 64 bits none is another one of 32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn import asarray, flash_attn_varlen_func, flash_attn_with_kvcache
from amdattn.arrays.interchange import as_view
from amdattn.device import runtime
from amdattn.op import indices
from amdattn.ops.attention import lengths
from amdattn.ops.cache_attention import indices as decode_indices

BF16 = ml_dtypes.bfloat16
_INT32_MAX = 2**31 - 1
_WIDE = (0, -1, 3, _INT32_MAX, -(2**31), 2**31, 2**32 + 3, -(2**32) + 3, 2**63 - 1, -(2**63))


def bits(x: Any) -> Any:
    return np.asarray(x).view(np.uint8)


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("count", [1, 10, 255, 256, 257, 5000])
def test_64_bits_saturate_on_the_device(count: int, step: int) -> None:
    wide = np.resize(np.array(_WIDE, np.int64), count)
    given = asarray(wide.repeat(step))[::step]
    for least, most in ((-(2**31), _INT32_MAX), (0, 100)):
        view = indices.on_device(as_view(given, "x", 0), "x", 0, least, most)
        found = np.empty(count, np.int32)
        runtime.get().download(found.ctypes.data, view.address, found.nbytes, 0)
        runtime.get().synchronize(0)
        np.testing.assert_array_equal(found, wide.clip(least, most))


@pytest.mark.parametrize("sums", ["cu_seqlens_q", "cu_seqlens_k"])
@pytest.mark.parametrize("last", [2**32 + 8, 2**32 + 60, 2**40, 2**63 - 1])
def test_sums_of_64_bits_end_with_the_rows_that_there_are(last: int, sums: str) -> None:
    """Sequences never end beyond them, and 2^32 + 8 is not 8."""
    rng = np.random.default_rng(0)
    q, k, v = (asarray(rng.standard_normal((60, 2, 64), np.float32).astype(BF16)) for _ in range(3))

    def called(end: int) -> Any:
        given = {name: np.array([0, 8, 60], np.int64) for name in ("cu_seqlens_q", "cu_seqlens_k")}
        given[sums][2] = end
        arrays = {name: asarray(x) for name, x in given.items()}
        with amdattn.virtual.check():
            out = flash_attn_varlen_func(q, k, v, max_seqlen_q=60, max_seqlen_k=60, **arrays)
        return bits(out.numpy())

    np.testing.assert_array_equal(called(last), called(60))


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Any]:
    """Arrays that are written to as soon as they have been looked at."""
    seen: list[Any] = []
    original = indices.private

    def spoil(array: Any, label: str, **options: Any) -> Any:
        found = original(array, label, **options)
        if any(array is x for x in seen):
            array[...] = 77
        return found

    for module in (indices, lengths, decode_indices):
        monkeypatch.setattr(module, "private", spoil)
    for name in ("calls", "decode_plan"):
        monkeypatch.setattr(f"amdattn.ops.cache_attention.{name}.private", spoil)

    def watched(x: Any) -> Any:
        seen.append(x)
        return x

    return watched


def test_sums_on_the_host_are_read_once(writer: Callable[[Any], Any]) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((60, 2, 64), np.float32).astype(BF16) for _ in range(3))
    for place in (asarray, np.asarray):
        arrays = [place(x) for x in (q, k, v)]
        found = []
        for wrap in (writer, np.array):
            sums = [wrap(np.array([0, 8, 60], np.int32)) for _ in range(2)]
            found.append(bits(flash_attn_varlen_func(*arrays, *sums, 60, 60)))
        np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("queries", [1, 17])
@pytest.mark.parametrize("paged", [False, True])
def test_indices_of_caches_on_the_host_are_read_once(
    paged: bool, queries: int, writer: Callable[[Any], Any]
) -> None:
    rng = np.random.default_rng(0)
    shape = (12, 16, 2, 64) if paged else (3, 64, 2, 64)
    given: dict[str, Any] = {"cache_seqlens": np.array([40, 7, 33], np.int32)}
    if paged:
        given["block_table"] = np.arange(12, dtype=np.int32).reshape(3, 4)
    else:
        given["cache_batch_idx"] = np.array([2, 0, 1], np.int32)
        given["cache_leftpad"] = np.array([1, 2, 3], np.int32)
    q, k, v = (
        rng.standard_normal(x, np.float32).astype(BF16) for x in ((3, queries, 4, 64), shape, shape)
    )
    for place in (asarray, np.asarray):
        found = []
        for wrap in (writer, np.array):
            arrays = {name: wrap(x.copy()) for name, x in given.items()}
            found.append(bits(flash_attn_with_kvcache(place(q), place(k), place(v), **arrays)))
        np.testing.assert_array_equal(*found)


class Counted(np.ndarray):
    """An array that knows how often it was copied, or a copy of it was."""

    copies = 0

    def copy(self, *args: Any, **options: Any) -> Any:
        Counted.copies += 1
        return super().copy(*args, **options)


@pytest.mark.parametrize("queries", [1, 17])
def test_indices_of_pages_on_the_host_are_copied_once(queries: int) -> None:
    shape = (12, 16, 2, 64)
    table = np.arange(12, dtype=np.int32).reshape(3, 4)
    q, k, v = (np.zeros(x, BF16) for x in ((3, queries, 4, 64), shape, shape))
    for place in (asarray, np.asarray):
        arrays = [place(x) for x in (q, k, v)]
        for name in ("block_table", "cache_seqlens"):
            given = {"cache_seqlens": np.array([40, 7, 33], np.int32), "block_table": table}
            given[name] = given[name].view(Counted)
            Counted.copies = 0
            flash_attn_with_kvcache(*arrays, **given)
            assert Counted.copies == 1, name


def test_what_is_private_is_not_copied_again() -> None:
    for given in ([1, 2], np.arange(3), np.arange(4)[::2], np.zeros((2, 0), np.int64)):
        own = indices.private(given, "x")
        assert indices.private(own, "x") is own
        np.testing.assert_array_equal(own, given)
        assert isinstance(given, list) or not np.shares_memory(own, given)


@pytest.mark.parametrize("queries", [1, 17])
@pytest.mark.parametrize("page", [12, 2**31, 2**32 + 3, -2, -(2**32)])
def test_tables_on_the_host_beside_lengths_on_the_device(page: int, queries: int) -> None:
    """What no entry can be is refused, whichever are used; -1 stands for none."""
    q = asarray(np.zeros((3, queries, 4, 64), BF16))
    caches = [asarray(np.zeros((12, 16, 2, 64), BF16)) for _ in range(2)]
    seqlens = asarray(np.array([40, 7, 33], np.int32))
    table = np.arange(12).reshape(3, 4)
    table[1, 3] = -1
    flash_attn_with_kvcache(q, *caches, cache_seqlens=seqlens, block_table=table)
    table[1, 3] = page
    with pytest.raises(ValueError, match=rf"block_table\[1, 3\]={page} must be in 0\.\.11"):
        flash_attn_with_kvcache(q, *caches, cache_seqlens=seqlens, block_table=table)
    # Of lengths that are known here it is not used.
    for known in (np.array([40, 7, 33]), [40, 7, 33]):
        flash_attn_with_kvcache(q, *caches, cache_seqlens=known, block_table=table)


@pytest.mark.parametrize("queries", [1, 17])
def test_pages_before_a_window_may_be_gone_on_the_host_too(queries: int) -> None:
    q = asarray(np.zeros((1, queries, 2, 64), BF16))
    caches = [asarray(np.zeros((12, 16, 1, 64), BF16)) for _ in range(2)]
    table = np.arange(12).reshape(1, 12)
    first = (180 - queries - 20) // 16
    table[0, :first] = -1
    options: dict[str, Any] = {"cache_seqlens": 180, "window_size": (20, 0)}
    flash_attn_with_kvcache(q, *caches, **options, block_table=table)
    table[0, first] = -1
    with pytest.raises(ValueError, match=rf"block_table\[0, {first}\]=-1 must be in 0\.\.11"):
        flash_attn_with_kvcache(q, *caches, **options, block_table=table)
