"""Caches of 8-bit floats, and pages that do not lie in rows, through the public function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn import asarray, flash_attn_with_kvcache
from amdattn.dtypes import as_dtype
from amdattn.ops.cache_attention.layouts import LAYOUTS
from tests.ops.cache_attention.test_decode_calls import case, held

_LENGTHS = (0, 1, 15, 16, 17, 63, 64, 65, 129, 300)


def fp8() -> str:
    """The 8-bit float of the device."""
    return amdattn.device_props().architecture.fp8


@pytest.mark.parametrize("num_splits", [0, 2])
@pytest.mark.parametrize(("layout", "page_size"), [("NHD", 0), ("NHD", 16), ("packed", 64)])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_8_bits(head_dim: int, layout: str, page_size: int, num_splits: int) -> None:
    sizes, options = (10, 1, 320, 8, 2, head_dim), {"page_size": page_size, "kv_layout": layout}
    scaled = {"k_descales": bool(num_splits), "v_descales": bool(num_splits)}
    scaled |= {} if num_splits else {"k_descale": 0.37, "v_descale": 2.6}
    scaled |= {"num_splits": num_splits}
    held(case(*sizes, lengths=_LENGTHS, kv_dtype=fp8(), **options, **scaled))


@pytest.mark.parametrize("head_dim", [8, 24, 72, 120, 200])
def test_heads_that_end_within_a_load(head_dim: int) -> None:
    sizes = 3, 2, 100, 4, 2, head_dim
    held(case(*sizes, lengths=(100, 17, 64), kv_dtype=fp8(), head_dim_v=head_dim // 16 * 8 + 8))


@pytest.mark.parametrize(("head_dim", "is_quantized"), [(128, False), (128, True), (256, False)])
def test_more_pages_than_lanes(head_dim: int, is_quantized: bool) -> None:
    """A wave knows those of 4096 keys of its workgroup at a time."""
    kv_dtype = fp8() if is_quantized else "bfloat16"
    options = {"page_size": 16, "num_splits": 1, "lengths": (8250, 4097), "kv_dtype": kv_dtype}
    held(case(2, 1, 8256, 2, 1, head_dim, **options))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("is_quantized", [False, True])
@pytest.mark.parametrize("page_size", [16, 48, 256])
@pytest.mark.parametrize("layout", ["packed", "shuffled"])
def test_layouts(layout: str, page_size: int, is_quantized: bool, dtype: str) -> None:
    kv_dtype = fp8() if is_quantized else dtype
    options = {"kv_layout": layout, "page_size": page_size, "kv_dtype": kv_dtype, "dtype": dtype}
    sizes = 10, 2, 768, 6, 2, 128
    held(case(*sizes, lengths=_LENGTHS, causal=True, head_dim_v=72, **options))


@pytest.mark.parametrize("seqlen_new", [1, 5])
@pytest.mark.parametrize("kind", ["as_q", "fp8"])
@pytest.mark.parametrize("layout", ["NHD", "packed", "shuffled"])
def test_appending(layout: str, kind: str, seqlen_new: int) -> None:
    quantized: dict[str, Any] = {"kv_dtype": fp8(), "k_descales": True, "v_descale": 0.5}
    held(
        case(
            *(4, seqlen_new, 320, 4, 2, 64),
            lengths=(0, 62, 127, 320 - seqlen_new),
            causal=True,
            seqlen_new=seqlen_new,
            page_size=16,
            kv_layout=layout,
            **(quantized if kind == "fp8" else {}),
            rotary_dim=32,
            rotary_positions=340,
        )
    )


def test_what_does_not_fit_into_8_bits_becomes_the_greatest_number() -> None:
    element = as_dtype(fp8()).numpy()
    caches = [asarray(np.zeros((1, 16, 1, 64), element)) for _ in range(2)]
    q = asarray(np.zeros((1, 1, 1, 64), np.float16))
    large = np.full((1, 1, 1, 64), 60000, np.float16)
    large[..., 1], large[..., 2] = -60000, np.nan
    lengths = asarray(np.zeros(1, np.int32))
    flash_attn_with_kvcache(q, *caches, asarray(large), asarray(large), cache_seqlens=lengths)
    for cache in caches:
        found = cache.numpy()[0, 0, 0].astype(np.float32)
        most = 448.0 if fp8().endswith("fn") else 240.0
        assert found[0] == most
        assert found[1] == -most
        assert np.isnan(found[2])


@pytest.mark.parametrize("on_device", [False, True])
def test_bytes_are_the_8_bit_floats_of_the_device(on_device: bool) -> None:
    rng = np.random.default_rng(0)
    element = as_dtype(fp8()).numpy()
    q = rng.standard_normal((2, 1, 4, 64), np.float32).astype(np.float16)
    k, v = (rng.standard_normal((2, 40, 2, 64), np.float32).astype(element) for _ in range(2))
    place: Any = asarray if on_device else np.asarray
    must = flash_attn_with_kvcache(place(q), place(k), place(v), k_descale=0.5)
    as_bytes = [place(x.view(np.uint8)) for x in (k, v)]
    found = flash_attn_with_kvcache(place(q), *as_bytes, k_descale=0.5)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(must))


@pytest.mark.parametrize("shape", [(), (1,), (2,)])
@pytest.mark.parametrize("on_device", [False, True])
def test_scales_of_one_and_of_each_head(shape: tuple[int, ...], on_device: bool) -> None:
    rng = np.random.default_rng(0)
    element = as_dtype(fp8()).numpy()
    place: Any = asarray if on_device else np.asarray
    q = place(rng.standard_normal((2, 1, 4, 64), np.float32).astype(np.float16))
    caches = [
        place(rng.standard_normal((2, 40, 2, 64), np.float32).astype(element)) for _ in range(2)
    ]
    scales = place(np.full(shape, 0.25, np.float32))
    must = flash_attn_with_kvcache(q, *caches, k_descale=0.25, v_descale=0.25)
    found = flash_attn_with_kvcache(q, *caches, k_descale=scales, v_descale=scales)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(must))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("cache", ["k_cache", "v_cache"])
def test_rows_of_a_layout_are_its_inverse(layout: str, cache: str) -> None:
    rows = np.arange(3 * 32 * 2 * 48).reshape(3, 32, 2, 48)
    one = LAYOUTS[layout][cache]
    lying = one.of_rows(rows, 8)
    assert one.sizes(lying.shape) == {"page": 3, "seq": 32, "head": 2, "column": 48}
    np.testing.assert_array_equal(one.rows(lying), rows)


def test_places_of_elements_are_those_of_the_libraries() -> None:
    """Key t of a page, head h, channel d, with x = 8: as their kernels index."""
    rows = np.arange(3 * 32 * 2 * 48).reshape(3, 32, 2, 48)
    k = LAYOUTS["packed"]["k_cache"].of_rows(rows, 8)
    v = LAYOUTS["packed"]["v_cache"].of_rows(rows, 8)
    shuffled = LAYOUTS["shuffled"]["v_cache"].of_rows(rows, 8)
    for page, t, h, d in ((0, 0, 0, 0), (1, 13, 1, 29), (2, 31, 0, 47)):
        assert k[page, h, d // 8, t, d % 8] == rows[page, t, h, d]
        assert v[page, h, d, t] == rows[page, t, h, d]
        assert shuffled[page, h, t // 8, d, t % 8] == rows[page, t, h, d]


def call(**changed: Any) -> Any:
    """A call with a cache of 8-bit floats, but for what is changed."""
    element = as_dtype(fp8()).numpy()
    given: dict[str, Any] = {
        "q": np.zeros((1, 1, 2, 64), np.float16),
        "k_cache": np.zeros((2, 16, 1, 64), element),
        "v_cache": np.zeros((2, 16, 1, 64), element),
        "block_table": [[1, 0]],
    }
    return flash_attn_with_kvcache(**{**given, **changed})


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"k_descale": 0.0}, r"k_descale=0.0 must be in "),
        ({"v_descale": -1.0}, r"v_descale=-1.0 must be in "),
        ({"k_descale": "1"}, r"k_descale='1' "),
        ({"k_descale": np.ones(3, np.float32)}, r"k_descale has shape \(3,\); it must be a number"),
        ({"k_descale": np.ones(1)}, r"k_descale has .*float64"),
        ({"kv_layout": "HND"}, r"kv_layout='HND' must be one of NHD, packed, shuffled"),
        ({"kv_layout": "packed"}, r"k_cache has shape \(2, 16, 1, 64\); it must be \(pages"),
        ({"v_cache": np.zeros((2, 16, 1, 64), np.float16)}, r"v_cache has .*float16"),
    ],
)
def test_what_is_refused(changed: dict[str, Any], told: str) -> None:
    with pytest.raises((ValueError, TypeError), match=told):
        call(**changed)


def test_scales_need_elements_of_8_bits() -> None:
    cache = np.zeros((2, 16, 1, 64), np.float16)
    with pytest.raises(ValueError, match=r"k_descale was given, but .* type float16"):
        call(k_cache=cache, v_cache=cache, k_descale=2.0)


def test_the_8_bit_float_of_another_device_is_refused() -> None:
    other = "float8_e4m3fnuz" if fp8() == "float8_e4m3fn" else "float8_e4m3fn"
    cache = np.zeros((2, 16, 1, 64), as_dtype(other).numpy())
    with pytest.raises(amdattn.UnsupportedProblem, match=f"kv_dtype={other}"):
        call(k_cache=cache, v_cache=cache)


def test_layouts_are_of_pages_and_of_whole_chunks() -> None:
    element = as_dtype(fp8()).numpy()
    k, v = np.zeros((2, 1, 4, 16, 16), element), np.zeros((2, 1, 64, 16), element)
    call(k_cache=k, v_cache=v, kv_layout="packed")
    with pytest.raises(ValueError, match="kv_layout='packed' is of caches with pages"):
        call(k_cache=k, v_cache=v, kv_layout="packed", block_table=None)
    with pytest.raises(ValueError, match=r"head_dim=72 with .* must be a multiple of 16"):
        call(k_cache=k, v_cache=v, kv_layout="packed", q=np.zeros((1, 1, 2, 72), np.float16))
