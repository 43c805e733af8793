"""Sampled operations of the attention family against simulating every workgroup."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from amdattn.bench.family import FamilySampler
from amdattn.bench.item_cost import Cost, Sample
from amdattn.bench.items import Items
from amdattn.bench.kernels import Functions
from amdattn.bench.modelled import NotLinear
from amdattn.bench.shapes import Shape
from amdattn.bench.shipped import Shipped
from amdattn.errors import UnsupportedDeviceError

SQUARE = Shape(1, 8, 8, 3072, 3072, 128)
CAUSAL = dataclasses.replace(SQUARE, causal=True)
TOLERANCE = 0.01


def model(shape, method, num_splits=1, mode="rtz", **options):
    kernel = Shipped(mode, num_splits, 384 if num_splits else 0)
    return FamilySampler(kernel, shape, Functions(), method=method, **options).model()


# -- what workgroups do ----------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("rows", "keys"), [(1000, 1000), (700, 1500), (768, 768), (100, 90)])
@pytest.mark.parametrize("num_splits", [1, 3])
def test_blocks_are_those_of_the_mask(causal, rows, keys, num_splits):
    shape = Shape(1, 2, 2, rows, keys, 128, causal)
    work = Shipped("rtne", num_splits).work(shape)
    items = Items.of(work)
    visible = np.ones((rows, keys), bool)
    if causal:
        visible = np.arange(keys) <= np.arange(rows)[:, None] + keys - rows
    padded = np.pad(visible, ((0, 0), (0, -keys % work.kv_tile)))
    for workgroup, (one, whole, cut, part) in enumerate(items.figures.tolist()):
        item = work.item(workgroup)
        tile = padded[item.q_begin : item.q_begin + work.q_tile]
        tile = tile.reshape(len(tile), -1, work.kv_tile)[:, item.kv_begin : item.kv_end]
        expected = int(tile.all(axis=(0, 2)).sum())
        assert (one, whole, cut) == (1, expected, item.kv_end - item.kv_begin - expected)
        assert part == (num_splits > 1)
        assert items.walk.kv_rows[workgroup] == (whole + cut) * work.kv_tile
        assert items.walk.q_end[workgroup] == min(item.q_begin + work.q_tile, rows)


# -- what they cost --------------------------------------------------------------------------------


def made_up(figures, masked, clk, extra=0.0):
    figures = np.array(figures, float)
    return Sample(figures, figures @ clk + extra, np.arange(len(figures)), None, masked)


def test_costs_are_found_again():
    clk = np.array([15000.0, 3000.0, 4000.0, 700.0, -2000.0])
    plain = [[1, blocks, 0, 0, 0] for blocks in (12, 24, 24, 36)]
    warm, part = [[1, 12, 0, 0, 1]] * 4, [[1, 12, 0, 1, 0]] * 4
    masked = [[1, blocks, 12, 0, 0] for blocks in (24, 36)]
    samples = [made_up(rows, False, clk) for rows in (plain, warm, part)]
    found = Cost.of([*samples, made_up(masked, True, clk)])
    np.testing.assert_allclose(found.clk, clk, rtol=1e-6, atol=1e-2)
    np.testing.assert_allclose(found.late, 0, atol=1e-1)


def test_a_few_slow_workgroups_do_not_bend_the_line():
    clk = np.array([15000.0, 3000.0, 0.0, 0.0, 0.0])
    short, long = ([[1, blocks, 0, 0, 0]] * 10 for blocks in (12, 24))
    late = np.zeros(10)
    late[3] = 6000.0
    found = Cost.of([made_up(short, False, clk), made_up(long, False, clk, late)])
    assert found.clk[1] == pytest.approx(3000.0, abs=1.0)
    assert found.clk[0] == pytest.approx(15000.0 + 6000.0 / 20, abs=20.0)  # the mean is kept
    assert found.late.argmax() == 3


# -- whole operations ------------------------------------------------------------------------------


def test_operations_of_little_work_are_simulated_in_full():
    seen = []
    shape = Shape(1, 2, 1, 130, 100, 128)
    (modelled,) = model(shape, "auto", advance=lambda *told: seen.append(told))
    assert not modelled.sampled and modelled.cycles == modelled.profile.cycles
    assert seen[-1][1] == seen[-1][2] == 128
    with pytest.raises(NotLinear, match="too few rows of K and V to sample; simulate in full"):
        model(shape, "sampled")
    with pytest.raises(NotLinear, match="rows of Q without keys"):
        model(CAUSAL.with_lengths(8192, 8000), "sampled")
    with pytest.raises(ValueError, match="sampling='most' must be one of auto, full, sampled"):
        model(shape, "most")


def test_parts_are_merged_by_a_second_launch():
    forward, merge = model(Shape(1, 2, 1, 400, 200, 128), "full", 2)
    assert "fwd" in forward.launch.symbol and "merge" in merge.launch.symbol
    assert forward.launch.num_workgroups == 2 * 2 * 2
    assert 0 < merge.cycles < forward.cycles
    assert forward.bytes["l2_write"] > merge.bytes["l2_write"] > 0


def test_same_input_same_result():
    first, second = (model(Shape(1, 8, 8, 128, 256, 128), "full")[0] for _ in range(2))
    assert first.cycles == second.cycles and first.stalls == second.stalls


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "num_splits"),
    [(SQUARE, 1), (SQUARE, 3), (CAUSAL, 1), (Shape(1, 40, 40, 4096, 3072, 128), 1)],
    ids=["square", "in parts", "causal", "two rounds"],
)
def test_sampled_is_as_full(shape, num_splits):
    sampled, full = (model(shape, method, num_splits) for method in ("sampled", "full"))
    assert len(sampled) == len(full) == 1 + (num_splits > 1)
    assert sampled[0].sampled and not full[0].sampled
    assert abs(sampled[0].sampled["check_error"]) <= TOLERANCE
    assert sum(x.cycles for x in sampled) == pytest.approx(
        sum(x.cycles for x in full), rel=TOLERANCE
    )
    for unit in ("mfma", "lds"):  # so much per workgroup and so much per block
        assert sampled[0].clk[unit] == pytest.approx(full[0].clk[unit], rel=2e-3), unit
    assert sampled[0].instructions == pytest.approx(full[0].instructions, rel=5e-3)
    assert sampled[0].bytes["l1"] == pytest.approx(full[0].bytes["l1"], rel=5e-3)
    for reason, share in full[0].stalls.items():
        assert sampled[0].stalls[reason] == pytest.approx(share, abs=0.03), reason


def test_plans_that_merge_in_their_launch_say_that_another_stands_for_them(monkeypatch):
    """Only where the plan that runs would take too long to simulate, which is the default else."""
    shape = Shape(8, 32, 32, 4096, 4096, 128)
    planned = Shipped("rtne")
    assert planned.merges_parts(shape)
    full, sampled = [], []

    def as_full(self, xcd):
        full.append(self._kernel)
        return []

    def as_sampled(self, items):
        sampled.append(self._kernel)
        return [SimpleNamespace(sampled={})]

    monkeypatch.setattr(FamilySampler, "_full", as_full)
    monkeypatch.setattr(FamilySampler, "_sampled", as_sampled)
    (found,) = FamilySampler(planned, shape, Functions(), method="auto").model()
    assert found.sampled == {"merged_apart": True} and not sampled[0].merges_parts(shape)
    for why, method in (("", "full"), ("some reason", "auto")):
        monkeypatch.setattr(FamilySampler, "_why_not", lambda self, why=why: why)
        FamilySampler(planned, shape, Functions(), method=method).model()
    assert full == [planned, planned]
    monkeypatch.setattr(FamilySampler, "_why_not", lambda self: "")
    default = Shape(1, 32, 32, 4096, 4096, 128)  # of `amdattn bench attention`
    assert planned.merges_parts(default)
    FamilySampler(planned, default, Functions(), method="auto").model()
    assert full == [planned, planned, planned] and len(sampled) == 1
    monkeypatch.setattr(FamilySampler, "_why_not", lambda self: "")
    (found,) = FamilySampler(Shipped("rtne", 1), shape, Functions(), method="sampled").model()
    assert found.sampled == {}


def test_samples_are_of_the_kernel_that_the_plan_chose():
    """The planner may prefer other tiles for a shorter problem."""
    shape = Shape(1, 64, 8, 2048, 2048, 128, True)
    for q_tile in (256, 384):
        work = Shipped("rtz").split(1, q_tile).work(shape)
        assert (work.q_tile, work.parts) == (q_tile, 1)
    chosen = Shipped("rtz").work(shape).q_tile
    assert chosen in (128, 256, 384)
    with pytest.raises(UnsupportedDeviceError):
        Shipped("rtz", q_tile=100).work(shape)
