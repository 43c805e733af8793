"""Descriptions of a kernel's arguments: both forms, placement, and every way to write one wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amdattn.checking.arguments import Buffer, Scalar, place, read_arguments
from amdattn.device.code_object import Argument, KernelInfo
from amdattn.dtypes import as_dtype

TEXT = """
# what is reduced
x    in     float32[16, 256]  normal seed=3
i    inout  int32[8] integers low=-5 high=5; out out bfloat16[16]
lock zero   uint32[4]
n    int32  -4096
s    float32 0.5
"""


def test_the_text_form() -> None:
    assert read_arguments(TEXT) == (
        Buffer("x", "in", as_dtype("float32"), (16, 256), "normal", seed=3),
        Buffer("i", "inout", as_dtype("int32"), (8,), "integers", low=-5, high=5),
        Buffer("out", "out", as_dtype("bfloat16"), (16,)),
        Buffer("lock", "zero", as_dtype("uint32"), (4,)),
        Scalar("n", "int32", -4096),
        Scalar("s", "float32", 0.5),
    )
    assert read_arguments("") == ()


def test_files(tmp_path: Path) -> None:
    text = tmp_path / "args.txt"
    text.write_text(TEXT)
    assert read_arguments(f"@{text}") == read_arguments(TEXT)
    rows: list[dict[str, Any]] = [
        {"name": "x", "role": "in", "dtype": "float32", "shape": [16, 256], "seed": 3},
        {"name": "n", "dtype": "int32", "value": -4096},
    ]
    file = tmp_path / "args.json"
    file.write_text(json.dumps(rows))
    assert read_arguments(f"@{file}") == (read_arguments(TEXT)[0], Scalar("n", "int32", -4096))
    file.write_text("{}")
    with pytest.raises(ValueError, match="must hold a list of objects"):
        read_arguments(f"@{file}")
    file.write_text("[")
    with pytest.raises(ValueError, match=r"args\.json"):
        read_arguments(f"@{file}")
    with pytest.raises(FileNotFoundError):
        read_arguments("@nowhere.txt")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "neither NAME ROLE DTYPE"),
        ("n int32 4; n int32 5", r"argument 2 \(n\): there is another one of this name"),
        ("n int32 many", "'many' is not a number"),
        ("n int32 1.5", r"value=1\.5 is no int32"),
        ("n uint8 256", "value=256 does not fit uint8"),
        ("n float16 1e9", "does not fit float16"),
        ("n half 1", "dtype='half' is not known"),
        ("n bfloat16 1", "dtype='bfloat16' must be one of int8"),
        ("x const float32[4]", "role='const' must be one of in, out, inout, zero"),
        ("x in quad[4]", "dtype='quad' is not known"),
        ("x in float32[0]", "must be a list of lengths >= 1"),
        ("x in float32[-4]", "must be a list of lengths >= 1"),
        ("x in float32[2.5]", "must be a list of lengths >= 1"),
        ("x in float32[1000000, 1000000]", "more than 4294967296"),
        ("x out float32[4] normal", "role 'out' has no contents"),
        ("x in float32[4] ones", "fill='ones' must be one of"),
        ("x in float32[4] normal low=3", "has low, but fill 'normal' takes seed"),
        ("x in float32[4] file", "has no file, but fill 'file' takes file"),
        ("x in int32[4] low=5 high=5", "low=5 and high=5 must be integers, low < high"),
        ("x in int8[4] high=129", "low=0 and high=129 must be of -128..128 for int8"),
        ("x in uint8[4] low=-1", "low=-1 and high=100 must be of 0..256 for uint8"),
        ("x in uint32[4] high=0x100000001", "must be of 0..4294967296 for uint32"),
        ("x in int64[4] high=0x8000000000000001", "must be of -9223372036854775808..92"),
        ("x in uint64[4] high=0x10000000000000001", "must be of 0..18446744073709551616 for"),
        ("x in float16[4] integers high=65506", "must be of -65504..65505 for float16"),
        ("x in float32[4] integers low=-0x8000000000000000", "must be of -9223372036854775807"),
        ("x in bfloat16[4] integers high=1e3", "low=0 and high=1000.0 must be integers"),
        ("x in float32[4] seed=-1", "seed=-1 must be an integer >= 0"),
        ("x in float32[4] color=3", "has color; there is name, role"),
        ("x in float32[4] seed=1 seed=2", "seed is given twice"),
    ],
)
def test_a_wrong_argument_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_arguments(text)


EXTREMES = [
    *((f"int{bits}", -(1 << (bits - 1)), 1 << (bits - 1)) for bits in (8, 16, 32, 64)),
    *((f"uint{bits}", 0, 1 << bits) for bits in (8, 16, 32, 64)),
    ("float16", -65504, 65505),
    *((name, 1 - (1 << 63), 1 << 63) for name in ("bfloat16", "float32", "float64")),
]


@pytest.mark.parametrize(("dtype", "low", "high"), EXTREMES, ids=[name for name, *_ in EXTREMES])
def test_bounds_are_those_of_the_type(dtype: str, low: int, high: int) -> None:
    """What is accepted can be drawn, and every element of it is what was drawn."""
    for least, most in ((low, high), (low, low + 1), (high - 1, high), (0, 1)):
        (x,) = read_arguments(f"x in {dtype}[64] integers low={least} high={most}")
        assert isinstance(x, Buffer)
        found = x.contents(0).astype(object)
        slack = 0 if "int" in dtype else 2.0**-7  # of a value, what rounding it may add
        assert all(least - slack * abs(least) <= v <= most - 1 + slack * abs(most) for v in found)
    for bounds in (f"low={low - 1} high={high}", f"low={low} high={high + 1}"):
        with pytest.raises(ValueError, match=rf"must be of {low}\.\.{high} for {dtype}$"):
            read_arguments(f"x in {dtype}[4] integers {bounds}")


def test_bounds_of_json_are_numbers(tmp_path: Path) -> None:
    file = tmp_path / "args.json"
    row = {"name": "x", "role": "in", "dtype": "int32", "shape": [4], "low": False, "high": True}
    file.write_text(json.dumps([row]))
    with pytest.raises(ValueError, match="low=False and high=True must be integers"):
        read_arguments(f"@{file}")


def test_contents(tmp_path: Path) -> None:
    x, i, *_ = read_arguments(TEXT)
    assert isinstance(x, Buffer) and isinstance(i, Buffer)
    assert x.contents(0).std() > 0.9 and (x.contents(0) == x.contents(0)).all()
    assert (x.contents(0) != x.contents(1)).any()
    assert set(np.unique(i.contents(0))) <= set(range(-5, 5))
    np.save(tmp_path / "w.npy", np.arange(6, dtype=np.float32))
    (w,) = read_arguments(f"w in float32[6] file={tmp_path / 'w.npy'}")
    assert isinstance(w, Buffer) and w.contents(9).tolist() == [0, 1, 2, 3, 4, 5]
    (w,) = read_arguments(f"w in float32[7] file={tmp_path / 'w.npy'}")
    assert isinstance(w, Buffer)
    with pytest.raises(ValueError, match=r"holds float32\[6\], not float32\[7\]"):
        w.contents(0)


def kernel(*arguments: tuple[int, int, str]) -> KernelInfo:
    rows = [Argument(f"a{i}", *argument) for i, argument in enumerate(arguments)]
    return KernelInfo("k", tuple(rows), 512, None, 1024, 64, {})


BUFFER, VALUE = "global_buffer", "by_value"


def test_placement() -> None:
    args = read_arguments("n int32 1; x in float32[4]; b int8 1; h int16 2; d float64 3")
    takes = kernel((0, 4, VALUE), (8, 8, BUFFER), (16, 1, VALUE), (18, 2, VALUE), (24, 8, VALUE))
    assert [offset for offset, _ in place(args, takes)] == [0, 8, 16, 18, 24]
    # A struct passed by value is the list of its fields.
    assert [offset for offset, _ in place(args, kernel((0, 32, VALUE)))] == [0, 8, 16, 18, 24]


@pytest.mark.parametrize(
    ("args", "takes", "message"),
    [
        ("n int32 1", [(0, 4, VALUE), (8, 8, BUFFER)], "a1 at byte 8 is missing"),
        ("n uint64 1", [(0, 8, BUFFER)], "a0 is a buffer, but n a scalar"),
        ("n int32 1; m int32 1", [(0, 4, VALUE)], "m is one too many"),
        ("n int32 1", [], r"n is one too many; it takes \(nothing\)"),
        ("n int64 1; m int32 2", [(0, 4, VALUE), (8, 4, VALUE)], "n lies across two of them"),
    ],
)
def test_arguments_must_be_the_kernels(
    args: str, takes: list[tuple[int, int, str]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        place(read_arguments(args), kernel(*takes))
