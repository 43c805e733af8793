"""What `flash_attn_with_kvcache` refuses, on the host and on the device, before a launch."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn import asarray, flash_attn_with_kvcache, tuning
from amdattn.arch.architectures import ARCHITECTURES
from amdattn.arch.props import KNOWN_DEVICES
from amdattn.device import manifest
from amdattn.ops.cache_attention import planned as decode
from amdattn.ops.cache_attention.calls import CacheOptions
from amdattn.ops.cache_attention.decode_cases import OPERATION, cases
from tests.support.decode_rows import decode_rows

BF16 = ml_dtypes.bfloat16
ROWS = tuple(row for arch in ARCHITECTURES for row in decode_rows(arch))


@pytest.fixture(autouse=True)
def made_up_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Plans of kernels that cannot be launched."""
    caches = decode.planned, decode.planned_for
    monkeypatch.setattr(manifest, "kernels", lambda: ROWS)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def zeros(*shape: int, dtype: Any = BF16) -> Any:
    return np.zeros(shape, dtype)


def ints(*values: int) -> Any:
    return np.array(values, np.int32)


def call(on_device: bool, **changed: Any) -> Any:
    given = {
        "q": zeros(2, 1, 4, 64),
        "k_cache": zeros(2, 96, 2, 64),
        "v_cache": zeros(2, 96, 2, 64),
    }
    given |= changed
    if on_device:
        given = {
            name: asarray(x) if isinstance(x, np.ndarray) and name not in _INDICES else x
            for name, x in given.items()
        }
    return flash_attn_with_kvcache(**given)


_INDICES = ("cache_seqlens", "cache_batch_idx", "cache_leftpad", "block_table")
_PAGED = {"k_cache": zeros(7, 32, 2, 64), "v_cache": zeros(7, 32, 2, 64)}
_NEW = {"k": zeros(2, 3, 2, 64), "v": zeros(2, 3, 2, 64)}
_TURNED = {"rotary_cos": zeros(96, 16), "rotary_sin": zeros(96, 16)}


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"alibi_slopes": zeros(4)}, r"alibi_slopes is not built \(have None\)"),
        ({"k": zeros(2, 1, 2, 64)}, "k was given, but v=None; both must be, or neither"),
        ({"v": zeros(2, 1, 2, 64)}, "v was given, but k=None; both must be, or neither"),
        ({"rotary_cos": zeros(96, 16)}, "rotary_cos was given, but rotary_sin=None"),
        (_TURNED, "rotary_cos was given without k; it must be None there"),
        (_NEW, "cache_seqlens=None says that the cache is full"),
        ({"q": zeros(2, 4, 64)}, r"q has shape \(2, 4, 64\); it must be \(batch, seqlen_q, num_h"),
        (
            {"q": zeros(3, 1, 4, 64)},
            "k_cache has 2 sequences; without cache_batch_idx it must have",
        ),
        ({"v_cache": zeros(2, 95, 2, 64)}, r"v_cache has shape \(2, 95, 2, 64\); this call needs"),
        ({"k_cache": zeros(2, 96, 2, 32)}, r"k_cache has shape .* this call needs \(2, 96, 2, 64"),
        ({"v_cache": zeros(2, 96, 2, 64, dtype=np.float16)}, "v_cache has dtype float16"),
        ({"cache_seqlens": 97}, r"cache_seqlens\[0\]=97 must be in 0..96, keys that the cache"),
        ({"cache_seqlens": [5, -1]}, r"cache_seqlens\[1\]=-1 must be in 0..96"),
        ({"cache_seqlens": np.array([5, 2**40])}, r"cache_seqlens\[1\]=1099511627776 must be in"),
        ({"cache_seqlens": [5, 2, 3]}, r"cache_seqlens has shape \(3,\) and dtype int32; it must"),
        ({"cache_seqlens": zeros(2)}, "cache_seqlens has shape .* and dtype bfloat16; it must be"),
        ({**_NEW, "cache_seqlens": 94}, r"\[0\]=94 must be in 0..93, .* beside those of k"),
        ({"cache_batch_idx": ints(0, 2)}, r"cache_batch_idx\[1\]=2 must be in 0..1, the sequences"),
        ({"cache_leftpad": [0, 97]}, r"cache_leftpad\[1\]=97 must be in 0..96, the rows"),
        (
            {**_PAGED, "block_table": [[0, 1], [2, 3]], "cache_batch_idx": ints(0, 1)},
            "cache_batch_idx was given with block_table",
        ),
        (
            {**_PAGED, "block_table": [[0, 1], [2, 3]], "cache_leftpad": ints(0, 1)},
            "cache_leftpad was given with block_table",
        ),
        (
            {**_PAGED, "block_table": [[0, 1], [2, 7]]},
            r"block_table\[1, 1\]=7 must be in 0..6, the pages of k_cache",
        ),
        (
            {**_PAGED, "block_table": [[0, 9], [-1, 9]], "cache_seqlens": [32, 1]},
            r"block_table\[1, 0\]=-1 must be in 0..6",
        ),
        (
            {**_PAGED, **_NEW, "block_table": [[0, 1], [2, 9]], "cache_seqlens": [3, 30]},
            r"block_table\[1, 1\]=9 must be in 0..6",
        ),
        ({"block_table": [[0, 1, 2], [3, 4]], **_PAGED}, "block_table is no array of ints"),
        ({"block_table": ints(1, 2), **_PAGED}, r"block_table has shape \(2,\); it must be \(bat"),
        ({"k_cache": zeros(7, 40, 2, 64), "block_table": [[0], [1]]}, "page_size=40 is not built"),
        (
            {**_NEW, "rotary_cos": zeros(95, 16), "rotary_sin": zeros(95, 16), "cache_seqlens": 9},
            "rotary_cos has 95 positions; it must have at least 96",
        ),
        (
            {**_NEW, "rotary_cos": zeros(96, 33), "rotary_sin": zeros(96, 33), "cache_seqlens": 9},
            "rotary_dim=66 .* must be a multiple of 16 and at most head_dim=64",
        ),
        ({"num_splits": 200}, "num_splits=200 must be in 0..128"),
        *(
            ({"softcap": cap}, rf"softcap={cap} is not built \(have 0.0, 0.0009765625..1024.0\)")
            for cap in (1e-4, 1025.0)
        ),
        ({"num_splits": -1}, "num_splits=-1 must be in 0..128"),
        ({"kv_layout": "packed"}, "kv_layout='packed' .* block_table must be given"),
        (
            {**_PAGED, "cache_seqlens": np.int64(5), "block_table": [[999, 0], [0, 0]]},
            r"block_table\[0, 0\]=999 must be in 0\.\.",
        ),
        ({"sinks": zeros(4)}, "sinks has dtype bfloat16; this call needs float32"),
        ({"sinks": zeros(3, dtype=np.float32)}, r"sinks has shape \(3,\)"),
    ],
)
def test_refused(changed: dict[str, Any], text: str, on_device: bool) -> None:
    with pytest.raises(ValueError, match=text):
        call(on_device, **changed)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"softcap": "2"}, "softcap='2' must be a number"),
        ({"causal": 1}, "causal=1 must be a bool"),
        ({"window_size": 4}, r"window_size=4 must be a pair"),
        ({"cache_seqlens": 2.5}, "cache_seqlens must be a numpy.ndarray"),
        ({**_PAGED, "block_table": 3}, "block_table=3 must be an array or a list of rows"),
        ({**_NEW, "cache_seqlens": 9}, "k_cache is written in place: it must be in device memory"),
    ],
)
def test_wrong_kinds(changed: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        call(False, **changed)


@pytest.mark.parametrize("name", ["q", "k_cache", "v_cache"])
def test_what_must_be_given(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} must be a numpy.ndarray"):
        call(False, **{name: None})


@pytest.mark.parametrize(
    ("name", "good", "equal"),
    [
        ("causal", True, 1),
        ("rotary_interleaved", True, 1),
        ("num_splits", 1, True),
        ("softcap", 1.0, True),
        ("softmax_scale", 1.0, True),
        ("window_size", (1, 0), (True, 0)),
        ("window_size", (1, 0), (1, 0.0)),
    ],
)
def test_values_that_are_equal_only_are_read(name: str, good: object, equal: object) -> None:
    """True is equal to 1, and so is 1.0: no plan of the one is found for the other."""
    plain = CacheOptions(None, False, (-1, -1), 0.0, True, 0, "NHD", None, None)
    assert plain._replace(**{name: good}).are_plain
    wrong = plain._replace(**{name: equal})
    assert wrong == plain._replace(**{name: good}) and not wrong.are_plain
    with pytest.raises(TypeError, match=name):
        wrong.read()


def test_memory_that_loads_do_not_take() -> None:
    flat = asarray(zeros(2 * 96 * 2 * 64 + 8))
    shifted = flat[1:-7].reshape(2, 96, 2, 64)
    with pytest.raises(ValueError, match=r"v_cache has address .* must be a multiple of 16 bytes"):
        call(True, v_cache=shifted)
    wide = asarray(zeros(2, 96, 2, 68))
    with pytest.raises(ValueError, match=r"k_cache has head stride .* multiple of 8 elements"):
        call(True, k_cache=wide[..., :64])
    backward = asarray(zeros(2, 96, 2, 64))[:, ::-1]
    with pytest.raises(
        ValueError, match=r"k_cache has seq stride -128, which must be in 0..33554432"
    ):
        call(True, k_cache=backward)
    spread = amdattn.empty((2, 4, 2), np.float32)[:, :, :1]
    with pytest.raises(ValueError, match="lse has head stride 2, which must be 1, without gaps"):
        call(True, lse=spread)
    shared = asarray(zeros(2, 96, 2, 64))
    with pytest.raises(ValueError, match="v_cache overlaps k_cache in memory"):
        call(True, k_cache=shared, v_cache=shared, **_NEW, cache_seqlens=9)
    table = asarray(np.zeros((2, 4), np.int64))[:, ::2]
    with pytest.raises(ValueError, match=r"block_table has strides .* the last one must be 1"):
        call(True, **_PAGED, block_table=table)


def test_benchmarks_have_contents_for_every_operand() -> None:
    for case in cases(None):
        plan = OPERATION.planned(case.problem, KNOWN_DEVICES["MI300X"])
        made = tuning.random_operands(plan)
        for spec in plan.specs().values():
            if spec.present:
                assert made[spec.name].shape == spec.shape
            if spec.present and spec.host_check is not None and spec.name != "sinks":
                least, most = made[spec.name].numpy().min(), made[spec.name].numpy().max()
                assert 0 <= least <= most <= max(case.problem.seqlen_kv, case.problem.num_pages - 1)


def test_supports_decode_answers_as_plan_decode_raises() -> None:
    """The same words, and arguments with which there is a kernel."""
    sizes = 2, 1, 4096, 16, 2, 128
    found = amdattn.supports_decode(*sizes, device="MI300X", page_size=16)
    assert found
    plan = amdattn.plan_decode(*sizes, device="MI300X", page_size=16)
    assert found.reason == f"kernel {plan.launches[0].kernel.name}"
    wrong: dict[str, Any] = {"seqlen_q": 20, "head_dim": 300, "page_size": 8, "head_dim_v": 128}
    asked = {"batch": 2, "seqlen_kv": 4096, "num_heads_q": 16, "num_heads_kv": 2} | wrong
    refused = amdattn.supports_decode(**asked, device="MI300X")
    assert not refused
    with pytest.raises(amdattn.UnsupportedProblem, match=re.escape(refused.reason)):
        amdattn.plan_decode(**asked, device="MI300X")
    assert refused.nearest == {"seqlen_q": 16, "head_dim": 256, "page_size": 16}
    assert amdattn.supports_decode(**asked | refused.nearest, device="MI300X")
    unknown = dataclasses.replace(KNOWN_DEVICES["MI300X"], arch="gfx90a")
    answer = amdattn.supports_decode(*sizes, device=unknown)
    assert not answer
    assert "attn_decode kernels for" in answer.reason
    with pytest.raises(ValueError, match="batch=0"):
        amdattn.supports_decode(0, *sizes[1:], device="MI300X")
