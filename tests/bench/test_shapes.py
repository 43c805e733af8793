"""Shapes and presets."""

import numpy as np
import pytest

from amdattn.bench.shapes import PRESETS, Shape, preset
from benchmarks.peers.one_launch import kv_range_of_tiles

SHAPE = Shape(2, 8, 2, 300, 500, 64)


def test_presets():
    assert len(preset("moonmath")) == 9 and len(set(preset("moonmath"))) == 9
    for shapes in PRESETS.values():
        for shape in shapes:
            assert shape.flops > 0 and str(shape.head_dim) in str(shape)
    with pytest.raises(ValueError, match="preset='none' must be one of moonmath"):
        preset("none")


def test_strides():
    assert SHAPE.strides("q") == {"batch": 300 * 8 * 64, "seq": 8 * 64, "head": 64}
    bhsd = Shape(2, 8, 2, 300, 500, 64, layout="bhsd")
    assert bhsd.strides("v") == {"batch": 2 * 500 * 64, "head": 500 * 64, "seq": 64}


def test_flops():
    assert SHAPE.flops == 4 * 2 * 8 * 300 * 500 * 64
    assert Shape(1, 1, 1, 64, 64, 128, causal=True).flops == 4 * (64 * 65 // 2) * 128
    # Three queries are the last of five: they see 3, 4 and 5 keys. Of five queries, three keys:
    # the first two see none.
    assert Shape(1, 1, 1, 3, 5, 64, causal=True).flops == 4 * 12 * 64
    assert Shape(1, 1, 1, 5, 3, 64, causal=True).flops == 4 * 6 * 64
    assert Shape(1, 1, 1, 4, 4, 64, window=(1, 0)).flops == 4 * 7 * 64


def test_names():
    assert str(SHAPE) == "b2 h8/2 s300x500 d64"
    assert str(Shape(1, 4, 4, 9, 9, 128, True, "bhsd")) == "b1 h4 s9 d128 causal bhsd"


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((1, 3, 2, 1, 1, 1), "num_heads_kv=2 must divide"),
        ((0, 1, 1, 1, 1, 1), "batch=0"),
        ((1, 1, 1, 1, 1, 1, False, "sbhd"), "layout='sbhd' must be one of"),
    ],
)
def test_malformed(sizes, message):
    with pytest.raises(ValueError, match=message):
        Shape(*sizes)


def test_windows_and_head_sizes():
    shape = Shape(1, 4, 2, 100, 300, 192, True, head_dim_v=128, window=(127, -1), sinks=True)
    assert str(shape) == "b1 h4/2 s100x300 d192/128 causal window 127/- sinks"
    assert shape.masked and shape.flops == 2 * 4 * 100 * 128 * (192 + 128)
    assert shape.strides("q")["head"] == 192 and shape.strides("o")["head"] == 128
    assert not SHAPE.masked and SHAPE.head_dim_v == 64
    with pytest.raises(ValueError, match="window_size"):
        Shape(1, 1, 1, 8, 8, 64, window=(-2, 0))


@pytest.mark.parametrize("window", [(-1, -1), (40, -1), (50, 70), (-1, 20), (0, 0)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("rows", "keys"), [(300, 300), (200, 333), (333, 200)])
def test_ranges_of_tiles_hold_all_that_is_visible(window, causal, rows, keys):
    shape = Shape(1, 1, 1, rows, keys, 64, causal, window=window)
    left, right = shape.problem("rtne").window
    begin, end = kv_range_of_tiles(shape, 64, 32, np.arange(-(-rows // 64)))
    diagonal = np.arange(rows)[:, None] + keys - rows
    key = np.arange(keys)[None, :]
    visible = (key <= diagonal + right) | (right < 0)
    visible &= (key >= diagonal - left) | (left < 0)
    for tile, (first, last) in enumerate(zip(begin, end, strict=True)):
        seen = np.flatnonzero(visible[64 * tile : 64 * tile + 64].any(0))
        assert first % 32 == 0 and last % 32 == 0 and last >= first
        if len(seen):
            assert first == seen[0] // 32 * 32
            assert seen[-1] < last
