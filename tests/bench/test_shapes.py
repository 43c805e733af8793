"""Shapes and presets."""

import pytest

from amdattn.bench.shapes import PRESETS, Shape, preset

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
    assert Shape(1, 1, 1, 64, 64, 128, causal=True).flops == 2 * 64 * 64 * 128


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
