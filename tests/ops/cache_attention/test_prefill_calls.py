"""Chunks of queries over a cache, as users call it: both functions, steps, graphs, far lengths."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn import asarray, flash_attn_varlen_func, flash_attn_with_kvcache
from amdattn.device import runtime
from amdattn.op.comparison import judge
from amdattn.ops.cache_attention import planned as decode
from amdattn.ops.cache_attention.cases import CacheCase
from amdattn.ops.cache_attention.prefill_cases import OPERATION, cases
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem

BF16 = ml_dtypes.bfloat16


def of_device(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: asarray(x) for name, x in inputs.items()}


def called(p: PrefillProblem, given: dict[str, Any], **more: Any) -> Any:
    """What the public function of a problem gives."""
    names = ("softmax_scale", "causal", "window_size", "softcap", "num_splits", "kv_layout")
    options = {name: getattr(p, name) for name in names} | more
    for name in ("k_descale", "v_descale"):
        if p.is_quantized and not getattr(p, f"{name}s"):
            options[name] = getattr(p, name)
    if not p.is_ragged:
        options |= {"rotary_interleaved": p.rotary_interleaved, "max_seqlen_k": p.max_seqlen_kv}
        return flash_attn_with_kvcache(**given, **options, return_softmax_lse=p.return_lse)
    renamed = {"k_cache": "k", "v_cache": "v", "cu_seqlens_kv": "cu_seqlens_k"}
    renamed["cache_seqlens"] = "seqused_k"
    given = {renamed.get(name, name): x for name, x in given.items()}
    given.setdefault("cu_seqlens_k", None)
    longest = {"max_seqlen_q": p.seqlen_q, "max_seqlen_k": p.max_seqlen_kv}
    options["max_total_k"] = p.max_total_kv
    return flash_attn_varlen_func(**given, **longest, **options, return_lse=p.return_lse)


def held(case: CacheCase, seed: int = 0, on_device: bool = True) -> dict[str, Any]:
    """A call of the public function against float64, the caches after it among the results."""
    inputs = case.inputs(seed)
    must = OPERATION.reference(case, inputs)
    given: dict[str, Any] = of_device(inputs) if on_device else inputs
    found = called(case.problem, given)
    results = dict(
        zip(("out", "lse"), found if case.problem.return_lse else (found,), strict=False)
    )
    for name in must:
        got: Any = results.get(name, given.get(name))
        got = got.numpy() if isinstance(got, amdattn.DeviceArray) else got
        compared = judge(got, must[name].values, must[name].tolerance, 0.0)
        assert compared, f"{case.title}: {name}: {compared.reason}"
        results[name] = got
    return results


def case(*sizes: int, lengths: tuple[int, ...] = (), **options: Any) -> CacheCase:
    chunks = options.pop("chunks", ())
    options = {"return_lse": True, "cache_seqlens": bool(lengths) and not chunks} | options
    options |= {"total_q": sum(chunks)} if chunks else {}
    problem = PrefillProblem(*sizes, **options)  # type: ignore[arg-type]
    return CacheCase(problem, lengths=lengths, chunks=chunks)


def bits(x: Any) -> Any:
    x = x.numpy() if isinstance(x, amdattn.DeviceArray) else x
    return x.view(np.uint8)


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("one", list(cases(None)), ids=lambda one: one.title)
def test_cases_as_calls(one: CacheCase, seed: int) -> None:
    held(one, seed)


@pytest.mark.parametrize(
    ("rows", "page_size"),
    [
        pytest.param(
            rows,
            page_size,
            marks=() if (rows, page_size) in ((1, 16), (65, 48)) else pytest.mark.slow,
        )
        for page_size in (16, 48, 256)
        for rows in (1, 17, 63, 64, 65, 129)
    ],
)
def test_lengths_around_pages_and_tiles(rows: int, page_size: int) -> None:
    """Also chunks of one query, sequences of one key and of none."""
    capacity = -(-300 // page_size) * page_size
    lengths = (0, 1, page_size - 1, page_size, page_size + 1, 127, 128, 129, 300)
    lengths = tuple(min(n, capacity) for n in lengths)
    chunks = (rows, 1, 0, rows, 2, 1, rows, 1, rows)
    sizes = len(lengths), max(chunks), capacity, 2, 1, 64
    held(case(*sizes, lengths=lengths, chunks=chunks, causal=True, page_size=page_size))


def test_host_arrays() -> None:
    held(case(2, 20, 96, 4, 2, 64, lengths=(96, 33), page_size=16), on_device=False)
    held(case(2, 20, 96, 4, 2, 64, lengths=(96, 33)), on_device=False)
    chunks = {"lengths": (96, 33), "chunks": (20, 3), "page_size": 16}
    held(case(2, 20, 96, 4, 2, 64, **chunks), on_device=False)


def test_the_same_bits_as_of_rows_that_were_gathered_before() -> None:
    """Where the same kernel runs on the same rows, of pages in any order; and every time."""
    one = case(2, 70, 160, 4, 2, 64, lengths=(160, 97), page_size=16, causal=True, num_splits=1)
    inputs = one.inputs(0)
    given = of_device(inputs)
    out, lse = called(one.problem, given)
    again, _ = called(one.problem, given)
    np.testing.assert_array_equal(bits(out), bits(again))
    keys = [int(n) for n in inputs["cache_seqlens"]]
    for name in ("k", "v"):
        pages = inputs[f"{name}_cache"][inputs["block_table"]].reshape(2, 160, 2, 64)
        inputs[name] = np.concatenate([pages[b, :n] for b, n in enumerate(keys)])
    q = inputs["q"].reshape(140, 4, 64)
    sums = np.array([0, 70, 140], np.int32), np.cumsum([0, *keys]).astype(np.int32)
    must, must_lse = flash_attn_varlen_func(
        *(asarray(x) for x in (q, inputs["k"], inputs["v"], *sums)),
        *(70, 160),
        causal=True,
        num_splits=1,
        return_lse=True,
    )
    np.testing.assert_array_equal(bits(out).reshape(140, 4, -1), bits(must).reshape(140, 4, -1))
    order = must_lse.numpy().reshape(4, 2, 70).transpose(1, 0, 2)
    np.testing.assert_array_equal(lse.numpy(), order)


@pytest.mark.parametrize(
    ("page_size", "interleaved", "dtype"),
    [
        (0, False, "float16"),
        (16, True, "bfloat16"),
        pytest.param(0, True, "bfloat16", marks=pytest.mark.slow),
        pytest.param(16, False, "float16", marks=pytest.mark.slow),
    ],
)
def test_rows_are_appended_as_decoding_appends_them(
    page_size: int, interleaved: bool, dtype: str
) -> None:
    """16 at a time or 40 at once: the same bits in the cache."""
    turned = {"rotary_dim": 48, "rotary_positions": 200, "rotary_interleaved": interleaved}
    sizes: dict[str, Any] = {"page_size": page_size, "dtype": dtype, "causal": True, **turned}
    one = case(2, 40, 160, 4, 2, 64, lengths=(17, 120), seqlen_new=40, **sizes)
    inputs = one.inputs(3)
    lengths = inputs["cache_seqlens"]
    at_once = of_device(inputs)
    called(one.problem, at_once)
    in_steps = of_device(inputs)
    for begin in range(0, 40, 10):
        step = {
            name: asarray(np.ascontiguousarray(inputs[name][:, begin : begin + 10]))
            for name in ("q", "k", "v")
        }
        step["cache_seqlens"] = asarray(lengths + begin)
        flash_attn_with_kvcache(**{**in_steps, **step}, causal=True, rotary_interleaved=interleaved)
    for name in ("k_cache", "v_cache"):
        np.testing.assert_array_equal(bits(at_once[name]), bits(in_steps[name]))


def test_caches_with_other_strides() -> None:
    """Read as they lie where rows are a whole number of steps apart, else copied; both told."""
    rng = np.random.default_rng(5)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape, np.float32).astype(BF16)

    q, both = normal(2, 20, 4, 64), normal(3, 2, 96, 2, 64)
    lengths = asarray(np.array([96, 30], np.int32))
    plain: list[Any] = [asarray(np.ascontiguousarray(both[:, i])) for i in (0, 1)]
    must = flash_attn_with_kvcache(asarray(q), *plain, cache_seqlens=lengths, causal=True)
    in_one = asarray(both)
    by_head = asarray(np.ascontiguousarray(both.transpose(0, 1, 3, 2, 4)))
    forms = (
        (in_one[:, 0], in_one[:, 1]),
        (by_head[:, 0].transpose(0, 2, 1, 3), by_head[:, 1].transpose(0, 2, 1, 3)),
        (plain[0], in_one[:, 1]),  # sequences of one are as far apart as two of the other
    )
    for k, v in forms:
        found = flash_attn_with_kvcache(asarray(q), k, v, cache_seqlens=lengths, causal=True)
        np.testing.assert_array_equal(bits(found), bits(must))
    spread = asarray(np.concatenate([q, q], axis=1))[:, :20]
    found = flash_attn_with_kvcache(spread, *plain, cache_seqlens=lengths, causal=True)
    np.testing.assert_array_equal(bits(found), bits(must))
    texts = [
        amdattn.plan_prefill(2, 20, 96, 4, 2, 64, device="MI300X", copies=copies).explain()
        for copies in ("", "q", "kv")
    ]
    assert "no keys or values: the cache is read as it lies; 0 bytes" in texts[0]
    assert "queries, as their strides need it; 40960 bytes" in texts[1]
    assert "keys and values (strides or lengths), room for 192" in texts[2]
    with pytest.raises(ValueError, match="out has batch stride 10240, which must be 5120, seqlen"):
        flash_attn_with_kvcache(
            asarray(q), *plain, causal=True, out=asarray(np.concatenate([q, q], axis=1))[:, :20]
        )
    plan = amdattn.plan_prefill(2, 20, 96, 4, 2, 64, num_pages=3, device=amdattn.device_props())
    with pytest.raises(ValueError, match="sequences of k_cache are 96 rows apart, those of"):
        plan.run(asarray(q), plain[0], in_one[:, 1])
    with pytest.raises(ValueError, match=r"q has batch stride .* unless the plan copies queries"):
        plan.run(spread, *plain)


@pytest.mark.parametrize(
    ("dim", "window", "lengths"),
    [(64, (50, 0), (65, 128, 1)), (64, (50, 0), (500, 300, 33)), (128, (150, 10), (512, 311, 7))],
)
def test_what_nobody_sees_counts_for_nothing(
    dim: int, window: tuple[int, int], lengths: tuple[int, ...]
) -> None:
    """Copies in memory that holds NaN; pages that repeat, and those that nothing names.

    Of a window only what some query sees is copied: the first of it to the first row.
    """
    sizes = 3, 33, 512, 2, 1, dim
    one = case(*sizes, lengths=lengths, page_size=16, window_size=window)
    inputs = one.inputs(0)
    inputs["block_table"][2] = inputs["block_table"][2][:2].repeat(16)
    must = OPERATION.reference(one, inputs)
    plan = decode.planned(one.problem, amdattn.device_props())
    workspace = plan.new_workspace()
    spoiled = np.full(workspace.nbytes // 2, np.nan, BF16)
    given = of_device(inputs)
    for _ in range(2):
        runtime.get().upload(workspace.address, spoiled.ctypes.data, spoiled.nbytes, 0)
        runtime.get().synchronize(0)
        out, lse = plan.run(**given, workspace=workspace)
        assert judge(out.numpy(), must["out"].values, must["out"].tolerance, 0.0)
        assert judge(lse.numpy(), must["lse"].values, must["lse"].tolerance, 0.0)
    region = plan.workspace["k_rows"]
    rows = np.empty(region.nbytes // 2, BF16)
    runtime.get().download(rows.ctypes.data, workspace.address + region.offset, region.nbytes, 0)
    runtime.get().synchronize(0)
    seen = sum(n - max(n - 33 - window[0], 0) for n in lengths)
    copied = rows.reshape(-1, dim).astype(np.float32)
    assert not np.isnan(copied[:seen]).any()
    assert np.isnan(copied[seen:]).all()


def test_steps_plan_nothing() -> None:
    """Lengths and pages on the device: other ones are no other plan, and no other memory."""
    one = case(2, 20, 160, 4, 2, 64, lengths=(33, 100), seqlen_new=20, page_size=16, causal=True)
    held(one, 0)
    of_caches = [decode.planned_for.cache_info().misses, decode.planned.cache_info().misses]
    for seed in (1, 2, 3):
        held(dataclasses.replace(one, lengths=(10 * seed, 140)), seed)
    found = [decode.planned_for.cache_info().misses, decode.planned.cache_info().misses]
    assert found == of_caches


def test_graphs_replay_with_other_lengths(hip_stream: Any) -> None:
    """Appending, pages and all: what is on the device then is what counts."""
    one = case(2, 20, 160, 4, 2, 64, lengths=(33, 100), seqlen_new=20, page_size=16, causal=True)
    plan = decode.planned(one.problem, amdattn.device_props())
    stream, device = runtime.stream_handle(hip_stream), runtime.get()
    given = of_device(one.inputs(0))
    workspace = plan.new_workspace()
    results = {
        "out": amdattn.empty((2, 20, 4, 64), "bfloat16"),
        "lse": amdattn.empty((2, 4, 20), "float32"),
    }
    plan.run(**given, **results, workspace=workspace)
    device.synchronize(0)
    hip = device.hip
    mode = hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
    device.check("hipStreamBeginCapture", hip.hipStreamBeginCapture(stream, mode))
    plan.run(**given, **results, workspace=workspace, stream=stream)
    graph = device.check("hipStreamEndCapture", hip.hipStreamEndCapture(stream))
    made = device.check("hipGraphInstantiate", hip.hipGraphInstantiateWithFlags(graph, 0))
    for seed, lengths in ((1, (140, 0)), (2, (64, 63))):
        inputs = dataclasses.replace(one, lengths=lengths).inputs(seed)
        must = OPERATION.reference(one, inputs)
        for name, x in inputs.items():
            device.upload(given[name].address, np.ascontiguousarray(x).ctypes.data, x.nbytes, 0)
        device.synchronize(0)
        device.check("hipGraphLaunch", hip.hipGraphLaunch(made, stream))
        device.synchronize(stream)
        for name, expected in must.items():
            got = {**given, **results}[name].numpy()
            assert judge(got, expected.values, expected.tolerance, 0.0), name
    device.check("hipGraphExecDestroy", hip.hipGraphExecDestroy(made))
    device.check("hipGraphDestroy", hip.hipGraphDestroy(graph))


def test_pages_that_are_not_there() -> None:
    """Refused where that is known, else NaN to the queries that see them; checked mode tells."""
    one = case(2, 20, 64, 2, 1, 64, lengths=(64, 20), page_size=16, causal=True)
    inputs = one.inputs(0)
    inputs["block_table"][0, 3] = 8
    with pytest.raises(ValueError, match=r"block_table\[0, 3\]=8 must be in 0..7"):
        called(one.problem, inputs)
    given = of_device(inputs)
    with (
        pytest.raises(amdattn.CheckError, match=r"cache_rows.*s_trap 3"),
        amdattn.virtual.check(),
    ):
        called(one.problem, given)
    out, lse = (x.numpy().astype(np.float32) for x in called(one.problem, given))
    inputs["block_table"][0, 3] = 7
    must = OPERATION.reference(one, inputs)["out"]
    sees = np.arange(64 - 20, 64) >= 48  # a query at that position
    assert np.isnan(out[0, sees]).all()
    assert np.isnan(lse[0][:, sees]).all()
    out[0, sees] = must.values[0, sees]
    assert judge(out, must.values, must.tolerance, 0.0)


def test_lengths_beyond_what_is_declared_are_of_no_keys() -> None:
    one = case(2, 20, 64, 2, 1, 64, lengths=(64, 48), page_size=16, max_seqlen_kv=48)
    inputs = one.inputs(0)
    with pytest.raises(ValueError, match=r"cache_seqlens\[0\]=64 must be in 0..48, max_seqlen"):
        called(one.problem, inputs | {"cache_seqlens": np.array([64, 48], np.int32)})
    for lengths in ((49, 48), (48, -5), (1000, 48)):
        given = of_device(inputs | {"cache_seqlens": np.array(lengths, np.int32)})
        with amdattn.virtual.check(raise_on=None) as checked:
            found, lse = called(one.problem, given)
        assert {finding.kind for finding in checked.errors} == {"trap"}
        known = np.array([n if 0 <= n <= 48 else 0 for n in lengths], np.int32)
        must = OPERATION.reference(one, inputs | {"cache_seqlens": known})
        assert judge(found.numpy(), must["out"].values, must["out"].tolerance, 0.0)
        assert judge(lse.numpy(), must["lse"].values, must["lse"].tolerance, 0.0)


def test_chunks_without_queries_or_sequences() -> None:
    cache = asarray(np.zeros((4, 16, 2, 64), BF16))
    table, sums = asarray(np.zeros((1, 4), np.int32)), asarray(np.zeros(2, np.int32))
    nothing = asarray(np.zeros((0, 4, 64), BF16))
    out, lse = flash_attn_varlen_func(
        nothing, cache, cache, sums, sums, 1, 1, block_table=table, return_lse=True
    )
    assert out.shape == (0, 4, 64) and lse.shape == (4, 0)


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"page_size": 24}, "UnsupportedProblem", r"page_size=24 is not built \(have multiples of"),
        ({"dtype": "float32"}, "UnsupportedProblem", "dtype=float32 is not built"),
        ({"head_dim": 264}, "UnsupportedProblem", "head_dim=264 is not built"),
        ({"num_splits": 17}, "UnsupportedProblem", "num_splits=17 is not built"),
        ({"copies": "v"}, "ValueError", "copies='v' must be one of"),
        ({"max_seqlen_kv": 97}, "ValueError", r"max_seqlen_kv=97 must be in 0..96"),
        (
            {"batch": 2**25, "seqlen_q": 17, "page_size": 16},
            "ValueError",
            r"max_total_kv=\d+ must be in 1..2147483647",
        ),
        (
            {"total_q": 9, "cache_seqlens": True, "seqlen_new": 1},
            "ValueError",
            "nothing is appended",
        ),
        ({"cache_seqlens": True, "seqlen_new": 40, "max_seqlen_kv": 30}, "ValueError", "k has 40"),
    ],
)
def test_refused(changed: dict[str, Any], error: str, text: str) -> None:
    sizes: dict[str, Any] = {"batch": 2, "seqlen_q": 20, "seqlen_kv": 96, "num_heads_q": 2}
    sizes |= {"num_heads_kv": 1, "head_dim": 64, "device": "MI300X"}
    kind = getattr(amdattn, error, ValueError)
    with pytest.raises(kind, match=text):
        amdattn.plan_prefill(**{**sizes, **changed})


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"round_mode": "rtz"}, r"round_mode=rtz with block_table is not built \(have rtne\)"),
        ({"top_left": True}, "top_left=True with block_table is not built"),
        ({"dropout_p": 0.5}, "dropout_p=0.5 with block_table is not built"),
        ({"alibi_slopes": 1}, "alibi_slopes is not built"),
        ({"block_table": None, "kv_layout": "packed"}, "kv_layout='packed' without block_table"),
        ({"block_table": None, "max_total_k": 5}, "max_total_k=5 without block_table"),
        ({"block_table": None, "seqused_k": [5]}, r"seqused_k=\[5\] without block_table"),
        ({"seqused_k": [5]}, "both of cu_seqlens_k and seqused_k were given; with block_table"),
        ({"cu_seqlens_k": None}, "neither of cu_seqlens_k and seqused_k were given"),
        (
            {"cu_seqlens_k": None, "seqused_k": [33]},
            r"seqused_k\[0\]=33 must be in 0..32, max_seqlen_k=32 is declared",
        ),
        (
            {"cu_seqlens_k": None, "seqused_k": [32], "max_total_k": 31},
            "the sum of seqused_k is 32; it may be 31, as max_total_k=31 is declared",
        ),
        (
            {"cu_seqlens_k": None, "seqused_k": [30], "block_table": np.full((1, 4), 4)},
            r"block_table\[0, 0\]=4 must be in 0..3, the pages of k_cache",
        ),
        ({"block_table": 5}, "block_table=5 must be an array or a list of rows"),
        ({"block_table": np.zeros(4, np.int32)}, r"block_table has shape \(4,\)"),
        ({"q": np.zeros((1, 9, 4, 64), BF16)}, r"q has shape .* must be \(total_q, num_heads_q"),
        (
            {"cu_seqlens_k": [0, 40]},
            r"cu_seqlens_k=\[0, 40\] must begin with 0, never fall and end with at most 32",
        ),
        ({"cu_seqlens_k": [0, 1, 2]}, r"cu_seqlens_k has shape \(3,\)"),
        ({"max_seqlen_k": -1}, "max_seqlen_k=-1 must be in"),
    ],
)
def test_refused_of_chunks_of_several_lengths(changed: dict[str, Any], text: str) -> None:
    cache = np.zeros((4, 16, 2, 64), BF16)
    given: dict[str, Any] = {"q": np.zeros((9, 4, 64), BF16), "k": cache, "v": cache}
    given |= {"cu_seqlens_q": [0, 9], "cu_seqlens_k": [0, 30], "max_seqlen_q": 9}
    given |= {"max_seqlen_k": 32, "block_table": np.zeros((1, 4), np.int32)}
    with pytest.raises((ValueError, TypeError), match=text):
        flash_attn_varlen_func(**{**given, **changed})


def test_max_seqlen_k_is_read() -> None:
    cache = np.zeros((2, 96, 2, 64), BF16)
    with pytest.raises(ValueError, match="max_seqlen_k=0 must be at least 1, or None"):
        flash_attn_with_kvcache(np.zeros((2, 20, 2, 64), BF16), cache, cache, max_seqlen_k=0)


def test_workspace_is_of_what_is_declared() -> None:
    sizes = 4, 2048, 131072, 64, 8, 128
    whole = amdattn.plan_prefill(*sizes, page_size=16, causal=True, device="MI300X")
    less = amdattn.plan_prefill(
        *sizes, page_size=16, causal=True, max_seqlen_kv=32768, max_total_kv=40000, device="MI300X"
    )
    of_row = 8 * 128 * 2
    assert whole.workspace["k_rows"].nbytes == 4 * 131072 * of_row
    assert less.workspace["k_rows"].nbytes == less.workspace["v_rows"].nbytes == 40000 * of_row
    assert "room for 40000 of all sequences" in less.explain()
    in_place = amdattn.plan_prefill(*sizes, causal=True, device="MI300X")
    assert in_place.workspace["kv_sums"].nbytes == 9 * 4
