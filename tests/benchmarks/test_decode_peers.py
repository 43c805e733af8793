"""Decode beside its peers: layouts, which kernels are asked, and that a wrong one is found."""

from __future__ import annotations

import json

import numpy as np
import pytest

import amdattn
from amdattn.bench.kernels import Functions
from benchmarks import decode_peers
from benchmarks.decode_shapes import Floor, Shape
from benchmarks.peers import aiter_pa, vllm_decode
from benchmarks.peers.paged import Attempt, random_problem, worst_error

_TABLE = """qType,kvType,Gqa,Mtp,Msk,Hp,blkSz,knl_name,co_name,ps,qTile,quant_type
bf16,bf16,8,0,0,0,16,one,one.co,0,0,0
bf16,bf16,16,0,0,0,16,two,two.co,0,0,0
bf16,bf16,8,1,0,0,16,unmasked,unmasked.co,0,0,0
bf16,bf16,8,1,1,0,16,several,several.co,0,0,0
bf16,fp8,8,0,0,2,16,precise,precise.co,0,0,0
bf16,fp8,10,13,1,0,1024,three,three.co,0,0,0
bf16,fp8,0,0,1,1,256,shared,shared.co,1,16,6
"""


@pytest.fixture
def objects(tmp_path):
    """Of a table such as a checkout has."""
    folder = tmp_path / "hsa" / "gfx942" / "pa"
    folder.mkdir(parents=True)
    (folder / "pa_asm.csv").write_text(_TABLE)
    return aiter_pa.objects(tmp_path, "gfx942")


def names(objects, shape, kv_dtype="bfloat16"):
    return [one.name for one in aiter_pa.attempts(objects, shape, kv_dtype)]


def test_objects_by_group_and_queries(objects, tmp_path):
    """As the checkout's launcher finds them: of the group, or of it rounded up to eights."""
    assert names(objects, Shape(1, 1, 64, 8)) == ["one"]
    assert names(objects, Shape(1, 1, 32, 8)) == ["one"]
    assert names(objects, Shape(1, 1, 9, 1)) == ["two"]
    assert names(objects, Shape(1, 1, 64, 8, 4)) == ["several"]
    assert names(objects, Shape(1, 1, 64, 8, 5)) == []
    assert names(objects, Shape(1, 1, 8, 1), "fp8") == ["precise"]
    assert names(objects, Shape(1, 1, 10, 1, 3), "fp8") == ["three"]
    with pytest.raises(ValueError, match="is no checkout of ROCm/aiter"):
        aiter_pa.objects(tmp_path, "gfx950")


@pytest.mark.parametrize(("dtype", "run"), [("bfloat16", 8), ("int8", 16)])
def test_packed_caches(objects, dtype, run):
    """K by runs of columns, V by runs of keys, as docs/studies/decode-design.md states."""
    (attempt,) = aiter_pa.attempts(objects, Shape(1, 1, 8, 1), "bfloat16")
    pages = np.arange(2 * 32 * 3 * 128, dtype=np.int64).reshape(2, 32, 3, 128)
    cut = (pages % 127).astype(np.int8) if dtype == "int8" else pages.astype(np.uint16)
    k, v = attempt.pack_k(cut), attempt.pack_v(cut)
    assert k.shape == (2, 3, 128 // run, 32, run)
    assert v.shape == (2, 3, 32 // run, 128, run)
    for page, key, head, column in ((0, 0, 0, 0), (1, 17, 2, 77), (1, 31, 1, 127), (0, 9, 2, 8)):
        value = cut[page, key, head, column]
        assert k[page, head, column // run, key, column % run] == value
        assert v[page, head, key // run, column, key % run] == value


def test_what_is_expected_is_what_ours_gives():
    """Two ways to say what attention over pages is."""
    shape = Shape(3, 70, 8, 2, queries=3)
    problem = random_problem(shape, [70, 16, 33], "bfloat16", 16)
    q, k, v, table, lengths = (
        amdattn.asarray(x)
        for x in (
            *(problem.q.reshape(3, 3, 8, 128), problem.k, problem.v),
            *(problem.table, problem.lengths),
        )
    )
    out = amdattn.flash_attn_with_kvcache(
        q, k, v, cache_seqlens=lengths, block_table=table, causal=True
    )
    found = np.asarray(out.numpy()).reshape(problem.q.shape)
    assert worst_error(found, problem.expected) < 5e-3


def test_scales_are_of_keys_and_heads():
    """An 8-bit problem times its scales is near a normal one, and not without them."""
    problem = random_problem(Shape(1, 64, 2, 2), [64], "fp8", 16)
    k = problem.k.astype(np.float64) * problem.k_scales.swapaxes(1, 2)[..., None]
    assert 0.9 < k.std() < 1.1
    assert np.ptp(problem.k_scales) > 0
    assert problem.k_scales.shape == (4, 2, 16)


class _Wrong(Attempt):
    """Launches nothing."""

    name, kv_dtype, page_size = "wrong", "bfloat16", 16

    def launches(self, shape, at):
        return ()


def test_a_kernel_that_is_wrong_is_not_timed():
    """Elements that are not written are NaN, which no tolerance takes."""
    with pytest.raises(ValueError, match="wrong is wrong by nan of a row"):
        decode_peers.verify(_Wrong(), Shape(1, 1024, 8, 1), Functions())


def test_a_worst_row_is_not_hidden_by_the_others():
    expected = np.ones((4, 8))
    out = expected.copy()
    out[2] = 1.5
    assert worst_error(out, expected) == pytest.approx(0.5)


def test_rows_and_bars(monkeypatch):
    """vLLM's bar is met by ours near the floor, AITER's by nothing but time."""
    monkeypatch.setattr(decode_peers, "ours_us", lambda *of, **options: 11.0)
    times = {"AITER": (10.9, "a"), "vLLM": (12.0, "b")}

    class Peers:
        names = ("AITER", "vLLM")

        def fastest(self, name, shape):
            return times[name]

    shape, least = Shape(1, 1024, 8, 1), Floor(52428.8, 2100)
    row = decode_peers.run(shape, Peers(), least, "bfloat16")
    assert [row["peers"][name]["met"] for name in Peers.names] == [False, True]
    assert "met by 0 of 1" in decode_peers.summary([row], "AITER")
    monkeypatch.setattr(
        decode_peers, "ours_us", lambda *of, is_quantized: 5.0 if is_quantized else 11.6
    )
    row = decode_peers.run(shape, Peers(), least, "bfloat16")
    assert not row["peers"]["vLLM"]["met"]
    assert decode_peers.cells(row, ["vLLM"])[-2:] == ["12.0", "1.03"]
    row = decode_peers.run(shape, Peers(), least, "fp8")
    assert row["peers"]["AITER"]["ratio"] == pytest.approx(10.9 / 5.0)
    assert "least" not in row["peers"]["AITER"]
    row = decode_peers.run(shape, Peers(), least, "int8", with_readings=True)
    assert "ratio" not in row["peers"]["AITER"]
    assert decode_peers.summary([row], "AITER") == "AITER: nothing to compare."


def test_fields_of_compiled_kernels(tmp_path):
    """Pairs of kernels for the heads, and splits that are not far too many."""
    fields = {"group": 8, "heads_q": 8, "heads_kv": 1, "page_size": 16, "symbol": "s", "waves": 4}
    for kind in vllm_decode.KINDS:
        for splits in (4, 128):
            made = {**fields, "kind": kind, "splits": splits, "lds": 0}
            (tmp_path / f"{kind}{splits}.json").write_text(json.dumps(made))
    every = vllm_decode.compiled(tmp_path)

    def splits_for(shape, kv_dtype="bfloat16"):
        return [one.name for one in vllm_decode.attempts(every, shape, kv_dtype)]

    assert splits_for(Shape(1, 1024, 8, 1)) == ["128 splits", "4 splits"]
    assert splits_for(Shape(128, 1024, 8, 1)) == ["4 splits"]
    assert splits_for(Shape(1, 1024, 64, 8)) == []
    assert splits_for(Shape(1, 1024, 8, 1), "fp8") == []
    (tmp_path / "other.json").write_text(json.dumps(fields))
    with pytest.raises(ValueError, match="has not the fields of Compiled"):
        vllm_decode.compiled(tmp_path)
