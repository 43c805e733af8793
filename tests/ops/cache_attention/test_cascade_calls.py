"""`amdattn.cascade_attention` as users call it, beside attention without a cascade."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn import asarray, cascade_attention, flash_attn_with_kvcache
from amdattn.op.comparison import judge
from amdattn.ops.cache_attention import cascade_planning as planning, planned as cascade
from amdattn.ops.cache_attention.cascade_cases import OPERATION, CascadeCase, cases
from amdattn.ops.cache_attention.cascade_problem import CascadeProblem
from amdattn.ops.cache_attention.decode_problem import DecodeProblem

BF16 = ml_dtypes.bfloat16


def of_device(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: asarray(x) for name, x in inputs.items()}


def called(p: CascadeProblem, given: dict[str, Any], **more: Any) -> Any:
    names = ("softmax_scale", "causal", "softcap", "num_splits", "kv_layout", "rotary_interleaved")
    options = {name: getattr(p.own, name) for name in names} | more
    rows = {"k_prefix": None, "v_prefix": None} | given
    if p.prefix_pages:
        options["prefix_len"] = p.prefix_len
    return cascade_attention(**rows, **options, return_softmax_lse=p.return_lse)


def forget_plans() -> None:
    cascade.planned.cache_clear()
    cascade.planned_for.cache_clear()


def held(case: CascadeCase, seed: int = 0, on_device: bool = True) -> None:
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


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.slow), 1])
@pytest.mark.parametrize("one", list(cases(None)), ids=lambda one: one.title)
def test_cases_as_calls(one: CascadeCase, seed: int) -> None:
    held(one, seed)


def test_host_arrays_and_repeated_runs() -> None:
    one = list(cases(None))[1]
    held(one, on_device=False)
    given = of_device(one.inputs(0))
    found = [called(one.problem, given)[0].numpy().view(np.uint16) for _ in range(3)]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_a_prefix_of_the_cache_is_as_attention_without_a_cascade() -> None:
    """As engines have it: tables whose rows begin with the same pages."""
    rng = np.random.default_rng(2)
    cache = [
        asarray(rng.standard_normal((24, 16, 2, 64), np.float32).astype(BF16)) for _ in range(2)
    ]
    q = asarray(rng.standard_normal((3, 1, 4, 64), np.float32).astype(BF16))
    table = np.array([[3, 9, 1, 7 + b, 12 + b] for b in range(3)], np.int32)
    lengths = np.array([70, 49, 80], np.int32)
    sinks = asarray(rng.standard_normal(4, np.float32))
    must, must_lse = flash_attn_with_kvcache(
        q, *cache, cache_seqlens=asarray(lengths), block_table=asarray(table), causal=True,
        sinks=sinks, return_softmax_lse=True,
    )  # fmt: skip
    whole = asarray(table)
    out, lse = cascade_attention(
        *(q, None, None, *cache),
        prefix_table=whole[0, :3],
        block_table=whole[:, 3:],
        cache_seqlens=asarray(lengths - 48),
        causal=True,
        sinks=sinks,
        return_softmax_lse=True,
    )
    np.testing.assert_allclose(lse.numpy(), must_lse.numpy(), rtol=0, atol=1e-5)
    a, b = (x.numpy().astype(np.float32) for x in (out, must))
    np.testing.assert_allclose(a, b, rtol=0, atol=2**-7 * np.abs(b).max())


def test_caches_of_8_bit_floats() -> None:
    fp8 = amdattn.device_props().architecture.fp8
    for scales in ({}, {"k_descale": 0.5, "v_descale": 2.0}):
        own = DecodeProblem(
            *(3, 1, 80, 4, 2, 64), kv_dtype=fp8, page_size=16, num_pages=30, cache_seqlens=True,
            **scales,
        )  # fmt: skip
        problem = CascadeProblem(own, 50, 4, True)
        one = CascadeCase(problem, lengths=(80, 1, 33))
        inputs = one.inputs(0)
        given = of_device(inputs) | scales
        out, lse = called(problem, given)
        plain = dataclasses.replace(own, kv_dtype=own.dtype, k_descale=1.0, v_descale=1.0)
        wide = dict(inputs)
        for name, scale in (("k_cache", "k_descale"), ("v_cache", "v_descale")):
            rows = inputs[name].astype(np.float32) * scales.get(scale, 1.0)
            wide[name] = rows.astype(BF16)  # powers of two: nothing is lost
        must = OPERATION.reference(CascadeCase(CascadeProblem(plain, 50, 4, True)), wide)
        assert judge(out.numpy(), must["out"].values, must["out"].tolerance, 0.0)
        assert judge(lse.numpy(), must["lse"].values, must["lse"].tolerance, 0.0)


def test_steps_plan_nothing() -> None:
    one = list(cases(None))[1]
    held(one)
    before = cascade.planned_for.cache_info().misses, cascade.planned.cache_info().misses
    for seed in (1, 2):
        held(dataclasses.replace(one, lengths=(5 * seed, 96)), seed)
    after = cascade.planned_for.cache_info().misses, cascade.planned.cache_info().misses
    assert before == after


def test_explained() -> None:
    text = amdattn.plan_cascade(
        *(64, 1, 4096, 64, 8, 128), prefix_len=32768, device="MI300X", page_size=16
    ).explain()
    of_prefix = 32768 * 8 * 256 * 2
    assert f"{of_prefix} bytes, attended once by the 64 queries of 64 sequences" in text
    assert f"{63 * of_prefix} bytes less than by each" in text
    assert "cascade_merge_bf16" in text


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"k_prefix": None}, "k_prefix and prefix_table: both are None; one of them says"),
        ({"prefix_table": np.zeros(1, np.int32)}, "k_prefix and prefix_table: both were given"),
        ({"prefix_len": 9}, "prefix_len=9, but k_prefix has 33 rows"),
        ({"window_size": (9, 0)}, r"window_size=\(9, 0\) must be \(-1, -1\): all queries see"),
        ({"alibi_slopes": 1}, "alibi_slopes is not built"),
        ({"k_prefix": np.zeros((0, 2, 64), BF16)}, "prefix_len=0 must be in 1.."),
        ({"k_prefix": np.zeros((33, 1, 64), BF16)}, r"k_prefix has shape \(33, 1, 64\)"),
        ({"v_prefix": np.zeros((33, 2, 64), np.float16)}, "v_prefix has dtype float16"),
        (
            {"k_prefix": None, "v_prefix": None, "prefix_table": np.zeros(1, np.int32)},
            "the prefix can be in pages of the cache where that has pages",
        ),
        ({"cache_seqlens": [97, 1]}, r"cache_seqlens\[0\]=97 must be in 0..96"),
        (
            {"q": np.zeros((2, 5, 4, 64), BF16), "causal": True, "cache_seqlens": [9, 4]},
            r"cache_seqlens\[1\]=4 must be at least 5, with causal as many as the 5 queries",
        ),
        *(
            ({"k_prefix": None, "v_prefix": None, "prefix_table": table}, text)
            for table, text in (
                (3, "prefix_table=3 must be an array or a list of pages"),
                (np.zeros((1, 2), np.int32), r"prefix_table has shape \(1, 2\); it must be"),
            )
        ),
    ],
)
def test_refused(changed: dict[str, Any], text: str) -> None:
    cache = np.zeros((2, 96, 2, 64), BF16)
    prefix = np.zeros((33, 2, 64), BF16)
    given: dict[str, Any] = {"q": np.zeros((2, 1, 4, 64), BF16), "k_prefix": prefix}
    given |= {"v_prefix": prefix, "k_cache": cache, "v_cache": cache, "cache_seqlens": [9, 1]}
    with pytest.raises((ValueError, TypeError), match=text):
        cascade_attention(**{**given, **changed})


def test_pages_of_the_prefix_that_are_not_there() -> None:
    one = list(cases(None))[3]
    inputs = one.inputs(0)
    inputs["prefix_table"][2] = 30
    with pytest.raises(ValueError, match=r"prefix_table\[2\]=30 must be in 0..29, the pages of"):
        called(one.problem, inputs)
    given = of_device(inputs)
    with pytest.raises(amdattn.CheckError, match="s_trap 3"), amdattn.virtual.check():
        called(one.problem, given)
    for found in called(one.problem, given):
        assert np.isnan(found.numpy().astype(np.float32)).all()


def test_queries_with_other_strides() -> None:
    """Copied where the prefix is attended by kernels that read them as they lie."""
    one = list(cases(None))[2]
    inputs = one.inputs(0)
    given = of_device(inputs)
    must = called(one.problem, given)
    spread = np.concatenate([inputs["q"], inputs["q"]], axis=1)
    found = called(one.problem, given | {"q": asarray(spread)[:, : inputs["q"].shape[1]]})
    for a, b in zip(found, must, strict=True):
        np.testing.assert_array_equal(a.numpy().view(np.uint8), b.numpy().view(np.uint8))
    plan = cascade.planned(one.problem, amdattn.device_props())
    with pytest.raises(ValueError, match=r"q has batch stride .* unless the plan copies queries"):
        plan.run(**given | {"q": asarray(spread)[:, : inputs["q"].shape[1]]})


@pytest.mark.parametrize("is_decoded", [True, False])
@pytest.mark.parametrize(("batch", "prefix"), [(3, 60), (60, 700)])
def test_both_ways_to_attend_over_a_prefix(
    batch: int, prefix: int, is_decoded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel of decoding, or those of many rows, which take less time for longer prefixes."""
    own = DecodeProblem(batch, 2, 32, 8, 1, 64, cache_seqlens=True, causal=True)
    one = CascadeCase(CascadeProblem(own, prefix, 0, True), lengths=(32, 2, 17))
    if not is_decoded:
        monkeypatch.setattr(planning, "_least_decoding", lambda *_: None)
    forget_plans()
    plan = cascade.planned(one.problem, amdattn.device_props())
    assert (plan.launches[0].kernel.op == "attn_decode") == is_decoded
    held(one)
    forget_plans()


@pytest.mark.parametrize("device", ["MI300X", "MI355X"])
@pytest.mark.parametrize("prefix", [256, 1024, 2048, 4096, 8192, 16384, 65536])
@pytest.mark.parametrize("batch", [8, 64])
def test_the_way_over_a_prefix_is_the_one_of_least_estimate(
    batch: int, prefix: int, device: str
) -> None:
    """That of tiles of rows is of the tiles and parts that are launched, merging included."""
    plan = amdattn.plan_cascade(batch, 1, 512, 64, 8, 128, prefix_len=prefix, device=device)
    said = plan.as_dict()
    estimates = re.findall(r"([a-z ]+), (\d+) clk", said["prefix: instead"])
    clk = {name.strip(): int(value) for name, value in estimates}
    is_decoded = plan.launches[0].kernel.op == "attn_decode"
    assert is_decoded == (clk["decoding"] <= clk["tiles of rows"])
    if prefix not in (4096, 8192):  # far from where both take the same time
        assert is_decoded == (prefix < 4096)
    if not is_decoded:
        (taken,) = re.findall(r"tiles in \d+ parts ([\d ]+) clk;", said["prefix: KV split"])
        assert clk["tiles of rows"] > int(taken.replace(" ", "")) > 10_000
