"""Sampled launches against simulating every workgroup."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

from amdattn.bench.family import FamilySampler
from amdattn.bench.kernels import Functions, Operands
from amdattn.bench.shapes import Shape
from amdattn.bench.shipped import Shipped
from benchmarks.peers.sampling import Sampler

AITER = os.environ.get("AMDATTN_AITER_DIR")
TOLERANCE = 0.01


def both(kernel, shape):
    functions = Functions()
    return [Sampler(kernel, shape, functions, method=m).model() for m in ("sampled", "full")]


def check(sampled, full):
    assert sampled.sampled and not full.sampled
    assert abs(sampled.sampled["check_error"]) <= TOLERANCE
    assert sampled.cycles == pytest.approx(full.cycles, rel=TOLERANCE)
    # Exact: so much per workgroup and so much per row.
    for unit in ("mfma", "valu", "salu", "lds"):
        assert sampled.clk[unit] == pytest.approx(full.clk[unit], rel=1e-3), unit
    assert sampled.instructions == pytest.approx(full.instructions, rel=1e-3)
    assert sampled.bytes["l1"] == pytest.approx(full.bytes["l1"], rel=1e-3)


@pytest.mark.slow
@pytest.mark.skipif(not AITER, reason="AMDATTN_AITER_DIR names no aiter checkout")
@pytest.mark.parametrize(
    ("mode", "shape"),
    [("rtz", Shape(1, 8, 8, 25600, 2048, 128)), ("rtne", Shape(1, 8, 2, 5120, 5120, 128, True))],
)
def test_aiter(mode, shape):
    from benchmarks.peers.aiter import Aiter

    check(*both(Aiter(Path(AITER), mode), shape))


def test_a_full_simulation_is_of_the_busiest_xcd():
    """As under a causal mask, where each may have a tile of its own."""

    class Unequal(Shipped):
        def items(self, shape):
            items = super().items(shape)
            work = np.where(np.arange(len(items.figures)) == 5, 1.0, 0.5)
            rows = (items.walk.kv_rows * work).astype(np.int64)
            return dataclasses.replace(items, walk=dataclasses.replace(items.walk, kv_rows=rows))

    shape = Shape(1, 1, 1, 3072, 256, 128)
    kernel = Unequal("rtne", num_splits=1, q_tile=384)
    (modelled,) = FamilySampler(kernel, shape, Functions(), method="full").model()
    assert [time.flat_id for time in modelled.profile.times] == [5]
    # Totals are of the mean XCD.
    assert modelled.clk["mfma"] == modelled.profile.clk["mfma"] * (1 + 7 * 0.5) / 8


def test_an_xcd_that_is_not_there_is_refused():
    from amdattn import virtual

    with pytest.raises(ValueError, match="simulated_xcd=8"), virtual.profile(simulated_xcd=8):
        pass


@pytest.mark.oracles
@pytest.mark.parametrize(
    "options",
    [{"causal": True}, {"causal": True, "window": (127, -1)}, {"window": (50, 70)}],
    ids=["causal", "left", "both sides"],
)
def test_triton_with_windows_and_sinks_is_as_ours(options):
    pytest.importorskip("triton")
    from amdattn.device import runtime
    from benchmarks.peers.triton_peer import Triton

    shape = Shape(1, 2, 1, 300, 333, 64, sinks=True, **options)
    results = []
    with Operands(shape) as operands:
        operands.fill_all()
        for kernel in (Triton(), Shipped("rtne")):
            kernel.launch(shape, operands).enqueue(Functions())
            found = np.empty(shape.problem("rtne").shape("o", "bshd"), operands.dtype)
            runtime.get().download(found.ctypes.data, operands.addresses["o"], found.nbytes)
            runtime.synchronize()
            results.append(found.astype(np.float64))
    assert abs(results[0]).max() > 0.1
    np.testing.assert_allclose(results[0], results[1], 2**-6, 2**-6)


def _kernel(name):
    if name == "aiter":
        from benchmarks.peers.aiter import Aiter

        return Aiter(Path(AITER), "rtne")
    if name == "triton":
        pytest.importorskip("triton")
        from benchmarks.peers.triton_peer import Triton

        return Triton()
    return Shipped("rtne")


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize(
    "name",
    [
        "shipped",
        pytest.param("aiter", marks=pytest.mark.skipif(not AITER, reason="no aiter checkout")),
        pytest.param("triton", marks=pytest.mark.oracles),
    ],
)
def test_operands_are_filled_where_they_are_read(name, layout):
    """A launch of a shorter problem in the memory of a longer one gives that problem's result."""
    from amdattn.device import runtime
    from amdattn.ops.attention.reference import attention

    longer = Shape(2, 4, 2, 300, 400, 128, layout=layout)
    short = longer.with_lengths(300, 90)
    kernel = _kernel(name)
    with Operands(longer) as operands:
        walk = kernel.walk(short)
        operands.fill_for(short, walk, np.arange(len(walk.kv_rows)))
        functions = Functions()
        kernel.launch(short, operands).enqueue(functions)
        arrays = {}
        for name in "qkvo":
            array = np.empty(longer.problem("rtne").shape(name, layout), operands.dtype)
            runtime.get().download(array.ctypes.data, operands.addresses[name], array.nbytes)
            arrays[name] = array
        runtime.synchronize()
    axis = 1 if layout == "bshd" else 2
    k, v = (np.take(arrays[name], range(90), axis) for name in "kv")
    expected, _ = attention(arrays["q"], k, v, None, layout)
    np.testing.assert_allclose(arrays["o"].astype(np.float64), expected, 2**-6, 2**-6)
