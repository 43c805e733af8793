"""`amdattn.flash_attn_with_kvcache` as users call it: kinds of caches and arrays, steps, graphs."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn import asarray, flash_attn_with_kvcache
from amdattn.device import manifest, runtime
from amdattn.op.comparison import judge
from amdattn.ops.cache_attention.cases import CacheCase
from amdattn.ops.cache_attention.decode_cases import OPERATION
from amdattn.ops.cache_attention.decode_problem import DecodeProblem

BF16 = ml_dtypes.bfloat16
_LENGTHS = (0, 1, 63, 64, 65, 127, 128, 129, 1000)


def of_device(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: asarray(x) for name, x in inputs.items()}


def options_of(problem: DecodeProblem) -> dict[str, Any]:
    """What a caller says for a problem besides the arrays."""
    names = ("softmax_scale", "causal", "window_size", "softcap", "rotary_interleaved")
    options = {name: getattr(problem, name) for name in (*names, "num_splits", "kv_layout")}
    if problem.is_quantized:
        for name in ("k_descale", "v_descale"):
            if not getattr(problem, f"{name}s"):
                options[name] = getattr(problem, name)
    return {**options, "return_softmax_lse": problem.return_lse}


def held(case: CacheCase, seed: int = 0, on_device: bool = True) -> None:
    """A call of the public function against float64, the caches after it among the results."""
    inputs = case.inputs(seed)
    must = OPERATION.reference(case, inputs)
    given: dict[str, Any] = of_device(inputs) if on_device else inputs
    found = flash_attn_with_kvcache(**given, **options_of(case.problem))
    results = dict(
        zip(("out", "lse"), found if case.problem.return_lse else (found,), strict=False)
    )
    for name in must:
        got: Any = results.get(name, given.get(name))
        got = got.numpy() if isinstance(got, amdattn.DeviceArray) else got
        compared = judge(got, must[name].values, must[name].tolerance, 0.0)
        assert compared, f"{case.title}: {name}: {compared.reason}"


def case(*sizes: int, lengths: tuple[int, ...] = (), **options: Any) -> CacheCase:
    options = {"return_lse": True, "cache_seqlens": bool(lengths), **options}
    return CacheCase(DecodeProblem(*sizes, **options), lengths=lengths)  # type: ignore[arg-type]


@pytest.mark.parametrize("num_splits", [0, 1, 3])
@pytest.mark.parametrize("page_size", [0, 16, 64, 256])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_lengths_around_tiles(page_size: int, num_splits: int, dtype: str) -> None:
    pages = {"page_size": page_size, "num_pages": 9 * 1024 // page_size + 5} if page_size else {}
    sizes = 9, 1, 1024, 8, 2, 64
    held(case(*sizes, lengths=_LENGTHS, dtype=dtype, num_splits=num_splits, **pages))


@pytest.mark.parametrize("dtype", [BF16, np.float16])
@pytest.mark.parametrize("rise", [0.25, 7.0, 9.0, 40.0, -40.0])
def test_scores_that_rise_from_turn_to_turn(rise: float, dtype: Any) -> None:
    # By `rise` in base 2 every 128 keys: by less than what a row's reference is kept for, and more.
    # Of the other head that shares the keys scores are alike: it has the same bits whatever the
    # first one has.
    keys, dim = 1024, 128
    rng = np.random.default_rng(7)
    k = (rng.standard_normal((1, keys, 1, dim)) * 0.1).astype(dtype)
    k[..., 0] = (np.arange(keys) // 128 / 8).astype(dtype)[None, :, None]
    v = rng.standard_normal((1, keys, 1, dim)).astype(dtype)
    q = np.zeros((2, 1, 1, 2, dim), dtype)
    q[0, ..., 0, 0] = rise * 8
    q[:, ..., 1, 1:] = rng.standard_normal(dim - 1)
    scale = float(np.log(2))  # scores in base 2
    k_cache, v_cache = asarray(k), asarray(v)
    found = []
    for one in q:
        out = flash_attn_with_kvcache(
            asarray(one), k_cache, v_cache, softmax_scale=scale, num_splits=1
        )
        assert isinstance(out, amdattn.DeviceArray)
        found.append(out.numpy())
    for one, got in zip(q, found, strict=True):
        scores = scale * one[0, 0].astype(np.float64) @ k[0, :, 0].T.astype(np.float64)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        must = weights / weights.sum(-1, keepdims=True) @ v[0, :, 0].astype(np.float64)
        error = np.sqrt(((got[0, 0].astype(np.float64) - must) ** 2).mean(-1) / (must**2).mean(-1))
        assert error.max() < 8e-3
    assert (found[0][..., 1, :] == found[1][..., 1, :]).all()


@pytest.mark.parametrize(
    "lengths",
    [
        (640, 600, 577, 640),  # alike: a part of each for every tile
        (0, 1, 2600, 130),  # not alike: equal shares
        (300,) * 3 + (130,) * 63,  # more than the lanes of a wave, of which the first are longer
        (130,) * 130,  # alike, and enough for one part of each
    ],
)
def test_ways_to_share_work(lengths: tuple[int, ...]) -> None:
    keys = -(-max(lengths) // 16) * 16
    pages = {"page_size": 16, "num_pages": len(lengths) * keys // 16}
    held(case(len(lengths), 1, keys, 2, 1, 64, lengths=lengths, **pages))


@pytest.mark.parametrize("seqlen_q", [1, 2, 5, 16])
@pytest.mark.parametrize("group", [1, 3, 4, 8])
def test_groups_and_queries(seqlen_q: int, group: int) -> None:
    sizes = 3, seqlen_q, 200, 2 * group, 2, 64
    held(case(*sizes, lengths=(200, 17, 128), causal=group > 1))


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("seqlen_new", [1, 2, 5])
@pytest.mark.parametrize("page_size", [0, 16])
def test_appending(seqlen_new: int, interleaved: bool, page_size: int) -> None:
    held(
        case(
            *(4, seqlen_new, 320, 4, 2, 64),
            lengths=(0, 62, 127, 320 - seqlen_new),
            causal=seqlen_new != 2,
            seqlen_new=seqlen_new,
            page_size=page_size,
            rotary_dim=32,
            rotary_positions=340,
            rotary_interleaved=interleaved,
        )
    )


def test_steps_of_decoding_are_attention_of_all_before() -> None:
    """A cache that grows by calls is, after each, the keys that were appended; no plan is new."""
    from amdattn.ops.attention.reference import attention
    from amdattn.ops.cache_attention import planned as decode

    rng = np.random.default_rng(1)
    k, v = (rng.standard_normal((2, 70, 2, 64), np.float32).astype(BF16) for _ in range(2))
    caches: list[Any] = [asarray(np.full((2, 70, 2, 64), np.nan, BF16)) for _ in range(2)]
    lengths = asarray(np.zeros(2, np.int32))
    plans = 0
    for step in range(64, 70):
        at = slice(0, 64) if step == 64 else slice(step - 1, step)
        if step > 64:
            q = rng.standard_normal((2, 1, 4, 64), np.float32).astype(BF16)
            new: list[Any] = [asarray(np.ascontiguousarray(x[:, at])) for x in (k, v)]
            runtime.get().upload(
                lengths.address, np.full(2, step - 1, np.int32).ctypes.data, lengths.nbytes, 0
            )
            out = flash_attn_with_kvcache(
                asarray(q), caches[0], caches[1], new[0], new[1], cache_seqlens=lengths
            )
            must, _ = attention(q, k[:, :step], v[:, :step])
            np.testing.assert_allclose(out.numpy().astype(np.float64), must, atol=0.02)
            plans = plans or decode.planned_for.cache_info().misses
            assert decode.planned_for.cache_info().misses == plans
        else:
            for cache, x in zip(caches, (k, v), strict=True):
                host = cache.numpy()
                host[:, at] = x[:, at]
                runtime.get().upload(cache.address, host.ctypes.data, host.nbytes, 0)
                runtime.get().synchronize(0)
    for cache, x in zip(caches, (k, v), strict=True):
        np.testing.assert_array_equal(cache.numpy()[:, :69], x[:, :69])


def test_forms_of_lengths() -> None:
    """Ints, lists and arrays of both widths, on the host and on the device, give the same bits."""
    one = case(3, 1, 96, 4, 2, 64, lengths=(40, 40, 40))
    inputs = of_device(one.inputs(0))
    lengths = np.full(3, 40)
    del inputs["cache_seqlens"]
    wanted = flash_attn_with_kvcache(**inputs, cache_seqlens=asarray(lengths.astype(np.int32)))
    for form in (
        *(40, np.int64(40), [40, 40, 40], lengths, lengths.astype(np.int32)),
        *(asarray(lengths), asarray(np.full(6, 40, np.int32))[::2]),
    ):
        found = flash_attn_with_kvcache(**inputs, cache_seqlens=form)
        np.testing.assert_array_equal(found.numpy().view(np.uint16), wanted.numpy().view(np.uint16))


def test_a_full_cache_needs_no_lengths() -> None:
    held(case(2, 1, 130, 4, 2, 128))
    held(case(2, 1, 130, 4, 2, 128), on_device=False)


def test_caches_in_one_array_and_results_that_are_given() -> None:
    """Keys and values of a page next to each other, as engines have them."""
    one = case(2, 2, 128, 4, 2, 64, lengths=(100, 31), page_size=32, causal=True)
    inputs = one.inputs(0)
    both = asarray(np.stack([inputs.pop("k_cache"), inputs.pop("v_cache")], axis=1))
    given = of_device(inputs)
    caches: dict[str, Any] = {"k_cache": both[:, 0], "v_cache": both[:, 1]}
    plain = flash_attn_with_kvcache(**given, **caches, causal=True)
    out = amdattn.empty((2, 2, 4, 64), BF16)
    lse = amdattn.empty((2, 4, 2), np.float32)
    found = flash_attn_with_kvcache(**given, **caches, causal=True, out=out, lse=lse)
    assert found == (out, lse)
    np.testing.assert_array_equal(out.numpy().view(np.uint16), plain.numpy().view(np.uint16))
    must = OPERATION.reference(one, one.inputs(0))
    for name, got in (("out", out), ("lse", lse)):
        assert judge(got.numpy(), must[name].values, must[name].tolerance, 0.0)


def test_appending_to_caches_in_one_array() -> None:
    """Their pages lie between each other's, and no element is of both."""
    one = case(2, 1, 128, 4, 2, 64, lengths=(100, 31), page_size=32, seqlen_new=1)
    inputs = one.inputs(0)
    must = OPERATION.reference(one, inputs)
    both = asarray(np.stack([inputs.pop("k_cache"), inputs.pop("v_cache")], axis=1))
    caches: dict[str, Any] = {"k_cache": both[:, 0], "v_cache": both[:, 1]}
    given: dict[str, Any] = of_device(inputs)
    out = flash_attn_with_kvcache(**given, **caches)
    for name, got in (("out", out), *caches.items()):
        assert judge(got.numpy(), must[name].values, must[name].tolerance, 0.0), name


def test_fixed_splits_make_sequences_independent_of_each_other() -> None:
    one = case(4, 1, 700, 4, 2, 64, lengths=(700, 3, 400, 129), num_splits=3)
    inputs = one.inputs(0)
    together = flash_attn_with_kvcache(**of_device(inputs), num_splits=3).numpy()
    for b in range(4):
        alone = {name: np.ascontiguousarray(x[b : b + 1]) for name, x in inputs.items()}
        found = flash_attn_with_kvcache(**of_device(alone), num_splits=3).numpy()
        np.testing.assert_array_equal(found[0].view(np.uint16), together[b].view(np.uint16))


def test_any_number_of_workgroups_is_right() -> None:
    """Of shares that begin and end anywhere, also more than there is work."""
    one = case(3, 1, 1000, 4, 2, 64, lengths=(1000, 0, 517))
    plan = OPERATION.planned(one.problem, runtime.device_props())
    choice = OPERATION.choices(one.problem, plan.props, manifest.kernels()).items[0]
    found = OPERATION.choices(one.problem, plan.props, manifest.kernels())
    inputs = one.inputs(0)
    must = OPERATION.reference(one, inputs)
    for count in (1, 2, 3, 7, 48, 61):
        other = dataclasses.replace(choice, num_workgroups=count)
        made = OPERATION.plan_of(one.problem, plan.props, other, found)
        views, stream = made.views_of(of_device(inputs), None)
        out, lse = made.execute(asarray(inputs["q"]), views, (None, None), "", stream)
        for name, got in (("out", out), ("lse", lse)):
            compared = judge(got.numpy(), must[name].values, must[name].tolerance, 0.0)
            assert compared, f"{count} workgroups: {name}: {compared.reason}"


def test_a_graph_replays_with_other_lengths(hip_stream: Any) -> None:
    """Appending, too: what a step differs in from the one before is in device memory."""
    one = case(3, 1, 300, 4, 2, 64, lengths=(5, 299, 128), seqlen_new=1, page_size=0)
    plan, stream = OPERATION.planned(one.problem, runtime.device_props()), hip_stream
    handle, device = runtime.stream_handle(stream), runtime.get()
    arrays = of_device(one.inputs(0))
    out, lse = amdattn.empty((3, 1, 4, 64), BF16), amdattn.empty((3, 4, 1), np.float32)
    given = {"out": out, "lse": lse, "workspace": plan.new_workspace()}
    plan.run(**arrays, **given)  # type: ignore[attr-defined]
    device.synchronize(0)
    hip = device.hip
    mode = hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
    device.check("hipStreamBeginCapture", hip.hipStreamBeginCapture(handle, mode))
    with pytest.raises(ValueError, match="cache_seqlens must be an int32 array in device memory"):
        plan.run(**{**arrays, "cache_seqlens": 5}, **given, stream=stream)  # type: ignore[attr-defined]
    plan.run(**arrays, **given, stream=stream)  # type: ignore[attr-defined]
    graph = device.check("hipStreamEndCapture", hip.hipStreamEndCapture(handle))
    made = device.check("hipGraphInstantiate", hip.hipGraphInstantiateWithFlags(graph, 0))
    for seed in (1, 2):
        inputs = one.inputs(seed)
        for name, x in inputs.items():
            device.upload(arrays[name].address, np.ascontiguousarray(x).ctypes.data, x.nbytes, 0)
        device.synchronize(0)
        device.check("hipGraphLaunch", hip.hipGraphLaunch(made, handle))
        device.synchronize(handle)
        results = {**arrays, "out": out, "lse": lse}
        for name, must in OPERATION.reference(one, inputs).items():
            assert judge(results[name].numpy(), must.values, must.tolerance, 0.0), name
    device.check("hipGraphExecDestroy", hip.hipGraphExecDestroy(made))
    device.check("hipGraphDestroy", hip.hipGraphDestroy(graph))


@pytest.mark.parametrize("page", [-1, 4, 1 << 30])
def test_a_page_that_is_not_there_is_reported_in_checked_mode(page: int) -> None:
    """Queries that see it are NaN; what is behind the last key may name any."""
    from amdattn.virtual import check

    caches = [asarray(np.ones((4, 16, 1, 64), BF16)) for _ in range(2)]
    q, lengths = asarray(np.ones((1, 1, 1, 64), BF16)), asarray(np.full(1, 17, np.int32))

    def kinds(table: list[int]) -> set[str]:
        pages = asarray(np.array([table], np.int32))
        with check(raise_on=None) as found:
            flash_attn_with_kvcache(q, *caches, cache_seqlens=lengths, block_table=pages)
        return {finding.kind for finding in found.errors}

    assert kinds([3, 0, page]) == set()
    assert kinds([0, page, 1]) == {"trap"}
    out = flash_attn_with_kvcache(
        q, *caches, cache_seqlens=lengths, block_table=asarray(np.array([[0, page]], np.int32))
    )
    assert np.isnan(out.numpy().astype(np.float32)).all()
