"""Lengths, rows and pages that only the device knows: docs/decode.md says what they are worth."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn import asarray, flash_attn_with_kvcache
from amdattn.virtual import check

BF16 = ml_dtypes.bfloat16
_INT32_MAX = 2**31 - 1
# Few queries are attended by a kernel of decoding, more by the forward kernels.
_QUERIES = (1, 16, 17)
_SEQUENCES, _ROWS, _HEADS, _DIM = 3, 64, 2, 64


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(BF16)


class Step:
    """A call that appends to caches of three sequences and attends over them."""

    def __init__(self, queries: int, page_size: int = 0, seqlen_new: int = 2) -> None:
        pages = _SEQUENCES * _ROWS // page_size if page_size else _SEQUENCES
        cache = pages, page_size or _ROWS, _HEADS, _DIM
        self.before = {name: normal(*cache, seed=i) for i, name in enumerate(("k", "v"))}
        new = _SEQUENCES, seqlen_new, _HEADS, _DIM
        self.new = [normal(*new, seed=i) for i in (2, 3)] if seqlen_new else []
        self.q = normal(_SEQUENCES, queries, 2 * _HEADS, _DIM, seed=4)
        self.lengths = np.array([40, 7, 33], np.int32)
        self.table = np.arange(pages, dtype=np.int32).reshape(_SEQUENCES, -1) if page_size else None

    def __call__(self, **changed: Any) -> tuple[Any, Any, dict[str, Any]]:
        """Out, lse, and the caches after it; the kinds of errors that checked mode finds."""
        caches = {name: asarray(x) for name, x in self.before.items()}
        given: dict[str, Any] = {"cache_seqlens": self.lengths}
        given |= {"block_table": self.table} if self.table is not None else {}
        given |= changed
        arrays = {name: asarray(x) if hasattr(x, "shape") else x for name, x in given.items()}
        with check(raise_on=None) as found:
            out, lse = flash_attn_with_kvcache(
                *(asarray(self.q), caches["k"], caches["v"], *map(asarray, self.new)),
                **arrays,
                return_softmax_lse=True,
            )
        self.kinds = {finding.kind for finding in found.errors}
        after = {name: x.numpy() for name, x in caches.items()}
        return out.numpy().astype(np.float32), lse.numpy(), after


def same(a: Any, b: Any) -> bool:
    return bool((np.asarray(a).view(np.uint8) == np.asarray(b).view(np.uint8)).all())


@pytest.mark.parametrize("queries", _QUERIES)
@pytest.mark.parametrize(
    ("length", "wide"),
    [
        *((length, False) for length in (-1, 63, 64, _INT32_MAX, -(2**31))),
        *((length, True) for length in (-1, 63, 2**32 + 3, -(2**40) + 3, 2**63 - 1)),
    ],
)
def test_a_length_without_room_appends_nothing(length: int, wide: bool, queries: int) -> None:
    """No key is of that sequence; the others are as without it. Of 64 bits none counts modulo."""
    step = Step(queries)
    must_out, must_lse, must = step()
    assert step.kinds == set()
    lengths = step.lengths.astype(np.int64 if wide else np.int32)
    lengths[1] = length
    out, lse, after = step(cache_seqlens=lengths)
    assert step.kinds == {"trap"}
    for name, x in after.items():
        assert same(x[1], step.before[name][1])
        assert same(x[[0, 2]], must[name][[0, 2]])
    assert (out[1] == 0).all()
    assert (lse[1] == -np.inf).all()
    assert same(out[[0, 2]], must_out[[0, 2]])
    assert same(lse[[0, 2]], must_lse[[0, 2]])


@pytest.mark.parametrize("queries", _QUERIES)
@pytest.mark.parametrize("length", [-1, 65, _INT32_MAX])
def test_a_length_that_the_cache_has_not_is_of_no_keys(length: int, queries: int) -> None:
    """Without anything to append, in rows and in pages."""
    for page_size in (0, 16):
        step = Step(queries, page_size, seqlen_new=0)
        must, _, _ = step()
        assert step.kinds == set()
        out, lse, _ = step(cache_seqlens=np.array([40, length, 33], np.int32))
        assert step.kinds == {"trap"}
        assert (out[1] == 0).all()
        assert (lse[1] == -np.inf).all()
        assert same(out[[0, 2]], must[[0, 2]])


@pytest.mark.parametrize("queries", _QUERIES)
@pytest.mark.parametrize("row", [-1, 3, 2**31 - 1, -(2**31)])
def test_a_row_that_the_cache_has_not_is_written_to_by_nobody(row: int, queries: int) -> None:
    step = Step(queries)
    rows = np.array([2, 1, 0], np.int32)
    must_out, _, must = step(cache_batch_idx=rows)
    assert step.kinds == set()
    rows[0] = row
    out, lse, after = step(cache_batch_idx=rows)
    assert step.kinds == {"trap"}
    for name, x in after.items():
        assert same(x[2], step.before[name][2])
        assert same(x[:2], must[name][:2])
    assert (out[0] == 0).all()
    assert (lse[0] == -np.inf).all()
    assert same(out[1:], must_out[1:])


@pytest.mark.parametrize("queries", _QUERIES)
@pytest.mark.parametrize("pad", [-1, -(2**31), 65, _INT32_MAX, 2**32 + 1, -(2**32) + 1])
def test_padding_is_none_or_all(pad: int, queries: int) -> None:
    """Below 0 as 0, beyond the keys all of them; what is appended goes where it does without."""
    step = Step(queries)
    must_out, must_lse, must = step(cache_leftpad=np.array([1, 0, 3], np.int32))
    width = np.int64 if abs(pad) > 2**31 else np.int32
    out, lse, after = step(cache_leftpad=np.array([1, pad, 3], width))
    assert step.kinds == set()
    if pad > 0:
        assert (out[1] == 0).all()
        assert (lse[1] == -np.inf).all()
    others = [0, 2] if pad > 0 else [0, 1, 2]
    assert same(out[others], must_out[others])
    assert same(lse[others], must_lse[others])
    for name, x in after.items():
        assert same(x, must[name])


@pytest.mark.parametrize("queries", _QUERIES)
def test_two_sequences_that_append_to_the_same_row(queries: int) -> None:
    """Refused on the host, told in checked mode; without anything to append nothing is wrong."""
    step = Step(queries)
    rows = np.array([1, 0, 1], np.int32)
    step(cache_batch_idx=rows)
    assert "trap" in step.kinds
    for given in (rows, rows.tolist(), rows.astype(np.int64)):
        caches = [asarray(x) for x in step.before.values()]
        with pytest.raises(
            ValueError, match=r"cache_batch_idx\[2\]=1 is cache_batch_idx\[0\], too"
        ):
            flash_attn_with_kvcache(
                asarray(step.q),
                *caches,
                *map(asarray, step.new),
                cache_seqlens=asarray(step.lengths),
                cache_batch_idx=given,
            )
    reads = Step(queries, seqlen_new=0)
    reads(cache_batch_idx=rows)
    assert reads.kinds == set()


def test_more_sequences_than_workgroups_that_append_to_the_same_row() -> None:
    """One workgroup has both, so that no race tells."""
    count = 700
    cache = [asarray(np.zeros((count, 16, 1, 64), BF16)) for _ in range(2)]
    q, new = asarray(np.zeros((count, 1, 1, 64), BF16)), asarray(np.zeros((count, 1, 1, 64), BF16))
    rows = np.arange(count, dtype=np.int32)
    rows[count - 1] = 5
    with check(raise_on=None) as found:
        flash_attn_with_kvcache(
            *(q, *cache, new, new),
            cache_seqlens=asarray(np.arange(count, dtype=np.int32) % 15),
            cache_batch_idx=asarray(rows),
        )
    assert "trap" in {finding.kind for finding in found.errors}


@pytest.mark.parametrize("queries", _QUERIES)
@pytest.mark.parametrize("page", [-1, 12, _INT32_MAX, -(2**31)])
def test_new_keys_without_a_page_are_seen_and_written_nowhere(page: int, queries: int) -> None:
    """The usual -1 for "no slot", and what no page is: no other page changes."""
    step = Step(queries, page_size=16)
    step.lengths[:] = 40, 16, 33
    must_out, must_lse, must = step()
    table = step.table.copy()
    table[1, 1] = page
    out, lse, after = step(block_table=table)
    assert step.kinds == {"trap"}
    slot = step.table[1, 1]
    for name, x in after.items():
        assert same(x[slot], step.before[name][slot])
        others = np.arange(len(x)) != slot
        assert same(x[others], must[name][others])
    assert same(out, must_out)
    assert same(lse, must_lse)


@pytest.mark.parametrize("kind", ["as_q", "fp8"])
@pytest.mark.parametrize("kv_layout", ["NHD", "packed", "shuffled"])
@pytest.mark.parametrize("queries", _QUERIES)
def test_queries_that_see_a_page_that_is_not_there_are_nan(
    queries: int, kv_layout: str, kind: str
) -> None:
    """And no other, whatever other pages hold: also of what is appended beside old keys."""
    if kind == "fp8":
        element = np.dtype(getattr(ml_dtypes, amdattn.device_props().architecture.fp8))
    else:
        element = np.dtype(BF16)
    x = 16 // element.itemsize
    k, v = (normal(12, 16, _HEADS, _DIM, seed=i).astype(element) for i in (0, 1))
    if kv_layout != "NHD":
        k = k.reshape(12, 16, _HEADS, _DIM // x, x).transpose(0, 2, 3, 1, 4).copy()
        v = v.transpose(0, 2, 3, 1).copy()
    if kv_layout == "shuffled":
        v = v.reshape(12, _HEADS, _DIM, 16 // x, x).transpose(0, 1, 3, 2, 4).copy()
    q = asarray(normal(3, queries, 4, _DIM, seed=4))
    new = [asarray(normal(3, 1, _HEADS, _DIM, seed=i)) for i in (2, 3)]
    table = np.arange(12, dtype=np.int32).reshape(3, 4)

    def called(table: Any) -> tuple[Any, set[str], list[Any]]:
        caches = [asarray(k), asarray(v)]
        with check(raise_on=None) as found:
            out, lse = flash_attn_with_kvcache(
                *(q, *caches, *new),
                cache_seqlens=asarray(np.array([40, 36, 32], np.int32)),
                block_table=asarray(table),
                kv_layout=kv_layout,
                return_softmax_lse=True,
            )
        assert (
            np.isnan(lse.numpy()).all(axis=(1, 2)) == np.isnan(out.numpy()).all((1, 2, 3))
        ).all()
        kinds = {finding.kind for finding in found.errors}
        return out.numpy().astype(np.float32), kinds, [one.numpy() for one in caches]

    must, kinds, caches = called(table)
    assert kinds == set()
    for place, page in ((0, -1), (1, 12), (2, 1 << 30)):
        wrong = table.copy()
        wrong[1, place] = page
        out, kinds, after = called(wrong)
        assert kinds == {"trap"}
        assert np.isnan(out[1]).all()
        assert same(out[[0, 2]], must[[0, 2]])
        for x, y, old in zip(after, caches, (k, v), strict=True):
            changed = table[1, place] if place == 2 else -1
            for nth in range(12):
                assert same(x[nth], (old if nth == changed else y)[nth]), (place, nth)


@pytest.mark.parametrize("queries", _QUERIES)
def test_pages_of_64_bits_are_no_others(queries: int) -> None:
    """On the device 2^32 + 3 is no page 3, and as little -2^32."""
    step = Step(queries, page_size=16, seqlen_new=0)
    for page in (2**32 + 3, -(2**32), 2**63 - 1, -(2**63)):
        pages = step.table.astype(np.int64)
        pages[1, 0] = page
        out, _, _ = step(block_table=pages)
        assert step.kinds == {"trap"}
        assert np.isnan(out[1]).all()
