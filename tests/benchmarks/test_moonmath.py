"""MoonMath's operation as a peer; its code objects are the user's (docs/bench.md)."""

import os
from pathlib import Path

import numpy as np
import pytest

from amdattn.bench.kernels import Functions, Operands
from amdattn.bench.operation import run_operation
from amdattn.bench.shapes import Shape, preset
from amdattn.bench.shipped import Shipped
from amdattn.device import runtime
from amdattn.ops.attention.reference import attention
from benchmarks.peers.moonmath import Division, MoonMath
from benchmarks.peers.moonmath_sampling import MoonMathSampler, rescaling

DIRECTORY = os.environ.get("AMDATTN_MOONMATH_DIR")
needs_objects = pytest.mark.skipif(not DIRECTORY, reason="AMDATTN_MOONMATH_DIR is not set")
MODES = ("rtne", "rtna", "rtz")


def peer(mode="rtne"):
    return MoonMath(Path(DIRECTORY), mode)


# -- its plan --------------------------------------------------------------------------------------


def test_divisions_of_the_published_shapes():
    """By hand, from tiles of 384 rows on 304 CUs."""
    found = [(d.whole_tiles, d.split_tiles, d.parts) for d in map(Division.of, preset("moonmath"))]
    assert found == [
        (912, 144, 2),
        (2064, 0, 1),  # 240 tiles are left: two parts of each are two rounds, as long as one
        (1216, 160, 3),
        (2736, 16, 19),  # one round of 304 parts
        (2736, 16, 19),
        (3952, 176, 3),
        (5472, 0, 1),  # 18 full rounds
        (3584, 0, 1),
        (5472, 0, 1),
    ]


def test_a_schedule_names_every_part_once():
    division = Division.of(Shape(1, 3, 3, 1000, 4096, 128))
    assert (division.whole_tiles, division.split_tiles, division.parts) == (0, 9, 16)
    rows = np.frombuffer(division.schedule(), np.int32).reshape(-1, 4)
    parts, tiles = rows[: 9 * 16, :2], rows[608:]
    assert len({(int(a), int(b)) for a, b in parts}) == 9 and len(tiles) == 9
    assert (np.repeat(tiles[:, :2], 16, axis=0) == parts).all()
    assert tiles[:, 2].tolist() == list(range(0, 144, 16)) and set(tiles[:, 3]) == {16}


def test_records_of_random_scores():
    """How often the maximum grows, counted in random numbers."""
    rng = np.random.default_rng(1)
    scores = rng.standard_normal((400, 384, 24, 16)).max(-1)
    before = np.maximum.accumulate(scores, axis=2)[..., :-1]
    grows = (scores[..., 1:] > before).reshape(400, 2, 4, 3, 16, 23).any(4)
    most = grows.sum(3).max(2)
    expected = [(most > 0).sum((1, 2)).mean(), np.maximum(most - 1, 0).sum((1, 2)).mean()]
    assert rescaling(24)[24] == pytest.approx(expected, rel=0.01)


# -- its launches ----------------------------------------------------------------------------------


def read(shape, operands, name):
    array = np.empty(shape.problem("rtne").shape(name, "bshd"), operands.dtype)
    runtime.get().download(array.ctypes.data, operands.addresses[name], array.nbytes)
    runtime.synchronize()
    return array


def result(shape, operands, launches, functions):
    for launch in launches:
        launch.enqueue(functions)
    return read(shape, operands, "o").astype(np.float64)


@needs_objects
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "shape", [Shape(1, 2, 2, 500, 300, 128), Shape(1, 1, 1, 400, 3100, 128)], ids=["whole", "parts"]
)
def test_values(mode, shape):
    functions = Functions()
    with Operands(shape) as operands:
        operands.fill_all()
        launches = peer(mode).launches(shape, operands)
        assert len(launches) == (2 if shape.seqlen_kv == 300 else 3)
        theirs = result(shape, operands, launches, functions)
        ours = result(shape, operands, Shipped(mode).launches(shape, operands), functions)
        q, k, v = (read(shape, operands, name) for name in "qkv")
    expected, _ = attention(q, k, v, None, "bshd")
    errors = [np.sqrt(np.mean((found - expected) ** 2)) for found in (ours, theirs)]
    np.testing.assert_allclose(theirs, expected, 2**-6, 2**-6)
    assert errors[0] < 1.1 * errors[1]
    # As far as two bfloat16 results of one computation are: a unit in the last place of the sum.
    assert abs(ours - theirs).max() <= 2**-7 * abs(expected).max()


@needs_objects
def test_refusals():
    kernel = peer()
    assert "heads_kv=1" in kernel.refusal(Shape(1, 2, 1, 100, 100, 128))
    assert "head_dim=64" in kernel.refusal(Shape(1, 2, 2, 100, 100, 64))
    assert "causal=True" in kernel.refusal(Shape(1, 2, 2, 100, 100, 128, True))
    assert "window=(8, -1)" in kernel.refusal(Shape(1, 2, 2, 100, 100, 128, window=(8, -1)))
    assert "32-bit" in kernel.refusal(Shape(8, 64, 64, 128, 2**16, 128))


def test_a_directory_without_objects_says_what_is_missing(tmp_path):
    with pytest.raises(ValueError, match=r"has no moonmath_rtz\.hsaco: docs/bench\.md"):
        MoonMath(tmp_path, "rtz")


@needs_objects
def test_a_record_has_every_launch_and_the_energy():
    record = run_operation(peer("rtz"), Shape(1, 1, 1, 400, 3100, 128), Functions()).record
    assert len(record.launches) == 3
    assert record.cycles == sum(launch["cycles"] for launch in record.launches)
    assert set(record.energy["matrix_flops"]) == {"16x16x16"}
    # Two tiles of 384 rows, and whole blocks of 64 keys.
    flops = 4 * 2 * 384 * -(-3100 // 64) * 64 * 128
    assert record.energy["matrix_flops"]["16x16x16"] == pytest.approx(flops)
    assert record.energy["joules"] > 0


@needs_objects
@pytest.mark.slow
def test_sampled_is_as_full():
    shape = Shape(1, 40, 40, 3072, 2304, 128)
    sampled, full = (
        MoonMathSampler(peer("rtz"), shape, Functions(), method=method).model()
        for method in ("sampled", "full")
    )
    assert len(sampled) == len(full) == 2 and sampled[1].sampled and not full[1].sampled
    assert sampled[1].cycles == pytest.approx(full[1].cycles, rel=0.02)
    for unit in ("mfma", "lds"):
        assert sampled[1].clk[unit] == pytest.approx(full[1].clk[unit], rel=5e-3), unit
    assert sampled[1].flops == pytest.approx(full[1].flops, rel=1e-3)
