"""The probes of a report see what is wrong; measurements of a GPU take the right figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amdattn.bench import micro, micro_table
from amdattn.bench.micro_launch import Micro
from amdattn.bench.shapes import Shape
from amdattn.device import runtime
from amdattn.ops.attention import cases as attention
from amdattn.report import kernels, probes, replays, timings
from amdattn.report.rows import ABSENT, FAILED, INFO, OK, Row
from tests.support.shipped import shipped


def outcomes(rows: Any) -> dict[str, str]:
    return {row.what: row.outcome for row in rows}


def test_a_form_that_writes_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one runtime does with `extra`."""
    monkeypatch.setattr(probes, "_submit_extra", lambda *_: None)
    first, second = probes.launch_forms()
    assert (first.outcome, first.text) == (FAILED, "nothing was written")
    assert second.outcome == OK


def test_a_form_that_mixes_up_arguments_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Micro.arguments

    def mixed(launch: Any) -> list[Any]:
        values = original(launch)
        values[0].value += 1
        return values

    monkeypatch.setattr(Micro, "arguments", staticmethod(mixed))
    _, row = probes.launch_forms()
    assert row.outcome == FAILED and "words differ" in row.text


def test_a_write_behind_the_result_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "_WORKGROUPS", probes._WORKGROUPS + 1)  # more than the buffer has
    assert all(row.outcome == FAILED for row in probes.launch_forms())
    assert "words around the result were written" in next(probes.launch_forms()).text


def test_a_graph_that_loses_arguments_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every node with the last one's: what a runtime gives that reads the block late."""
    original = Micro.launch

    def late(self: Any, symbol: str, *args: Any, **given: Any) -> Any:
        if symbol == "amdattn_micro_add":
            given["passes"] = probes._NODES
        return original(self, symbol, *args, **given)

    monkeypatch.setattr(Micro, "launch", late)
    found = outcomes(probes.graph())
    assert found["capture of 300 launches"] == OK
    assert found["replay 1 of the graph"] == found["replay 2 of the graph"] == FAILED


def test_replays_have_the_bits_of_eager_calls() -> None:
    (row,) = replays.replays(replays.QUICK_REPLAYS)
    assert row.outcome == OK and row.data == {"replays": replays.QUICK_REPLAYS, "differ": []}


@pytest.mark.parametrize("lost", ["launch", "input"])
def test_a_wrong_replay_is_seen(monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    """One that does not run, and one that has the arguments of the replay before."""
    begin = replays._Chain.begin
    num_begun = 0

    def stale(self: Any, number: int) -> None:
        nonlocal num_begun
        num_begun += 1
        begin(self, number + 1 if lost == "input" and num_begun == 5 else number)

    monkeypatch.setattr(replays._Chain, "begin", stale)
    hip = runtime.get().hip
    launch = hip.hipGraphLaunch
    skip = lost == "launch"
    monkeypatch.setattr(
        hip, "hipGraphLaunch", lambda *call: (0,) if skip and num_begun == 5 else launch(*call)
    )
    (row,) = replays.replays(4)
    assert row.outcome == FAILED and row.data["differ"] == [2]
    assert "1 of 4 differ, the first is replay 3" in row.text and "7.2.0 to 7.2.3" in row.text


def test_streams_out_of_order_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    original = probes._submit
    held: list[Any] = []

    def swapped(*args: Any) -> None:
        held.append(args)
        if len(held) == 16:  # the last two of one stream change places
            for one in (*held[:14], held[15], held[14]):
                original(*one)
        elif len(held) > 16:
            original(*args)

    monkeypatch.setattr(probes, "_submit", swapped)
    found = outcomes(probes.streams())
    assert found["16 launches on one stream"] == FAILED


def test_other_ids_than_the_runtime_s_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    props = dataclasses.replace(runtime.device_props(), num_cus=40, num_xcds=4)
    monkeypatch.setattr(probes.runtime, "device_props", lambda: props)
    found = {row.what: row for row in probes.ids()}
    assert found["XCC_ID"].outcome == FAILED and "the runtime has 4 XCDs" in found["XCC_ID"].text
    assert found["HW_ID"].outcome == FAILED and "the runtime has 40" in found["HW_ID"].text


def test_ids_are_what_a_wave_sees() -> None:
    """XCDs in turn; the CU within one from HW_ID."""
    found = {row.what: row for row in probes.ids()}
    assert found["XCC_ID"].data["ids"] == list(range(8))
    assert found["workgroups go"].data["first"] == [*range(8), *range(8)]
    assert set(found["HW_ID"].data["by_xcc"].values()) == {38}


def _case() -> kernels.OfKernel:
    (row,) = (row for row in shipped() if row.name == "attn_fwd_bf16_d64_rtne")
    one = attention.case(20, 30, head_dim=64, num_splits=1, return_lse=True, kernel=row.name)
    return kernels.OfKernel(attention.OPERATION, one, row)


def test_guard_zones_and_results_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = kernels.run([_case()])
    assert row.outcome == OK and row.data["share"] < 1
    original = kernels.Guarded.taken

    def spoiled(kind: str) -> Row:
        def taken(self: Any, whole: bool = True) -> Any:
            poison = np.array(self._poison, self._bits)
            bits = self._array.numpy().view(self._bits).copy()
            inner = bits[self._where]
            if kind == "around":
                bits.reshape(-1)[0] = 0
            elif kind == "left":
                inner.reshape(-1)[...] = inner.reshape(-1)
                inner[(0,) * inner.ndim] = poison
            elif inner.dtype.itemsize == 2:
                inner[(0,) * inner.ndim] ^= 0x0040  # a bit of the mantissa
            self._array = kernels.asarray(bits.view(self._dtype))
            return original(self, whole)

        with monkeypatch.context() as patch:
            patch.setattr(kernels.Guarded, "taken", taken)
            (row,) = kernels.run([_case()])
        return row

    for kind, words in (
        ("around", "out: 1 elements around the result were written"),
        ("left", "out: 1 elements of the result were not written"),
        ("wrong", " at (0, 0, 0, 0): "),
    ):
        row = spoiled(kind)
        assert row.outcome == FAILED and words in row.text, row


def test_softcap_window_and_sinks_in_float64() -> None:
    """The reference of the report against the tests' own."""
    from amdattn.ops.attention import reference
    from tests.support.attention import masked

    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, n, h, 8)) for n, h in ((13, 4), (21, 2), (21, 2)))
    for options in (
        {"causal": True},
        {"window_size": (5, 3), "softcap": 2.0},
        {"window_size": (2, -1), "sinks": rng.standard_normal(4)},
        {"causal": True, "window_size": (30, 7), "sinks": rng.standard_normal(4), "softcap": 0.5},
    ):
        expected = masked.attention(q, k, v, **options)
        for got, wanted in zip(reference.attention(q, k, v, **options), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)
    longer = rng.standard_normal((1, 25, 2, 8))  # rows that see no key
    out, lse = reference.attention(longer, k[:1], v[:1], causal=True)
    expected_out, expected_lse = masked.attention(longer, k[:1], v[:1], causal=True)
    np.testing.assert_allclose(out, expected_out, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(np.isneginf(lse), np.isneginf(expected_lse))
    assert np.isneginf(lse).any()


# -- the paths of a GPU ----------------------------------------------------------------------------


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the virtual device for a GPU: its clocks count instructions, its events this CPU."""
    for module in (micro, timings, probes):
        monkeypatch.setattr(module, "_is_virtual" if module is probes else "is_virtual", bool)
    monkeypatch.setattr("amdattn.bench.operation.is_virtual", bool)
    monkeypatch.setattr(micro, "_REPEATS", 3)
    monkeypatch.setattr(micro, "_LONGER", 1)
    monkeypatch.setattr(micro, "_CLOCK_PASSES", (1, 2))
    monkeypatch.setattr(Micro, "workgroups", 2)


def test_clk_of_a_gpu_are_differences_of_its_clock(gpu: None) -> None:
    """Where a clk is 4 for each instruction, a copy costs 4 times its instructions."""
    for name, instructions in (("fma_f32", 1), ("chain_s_load", 2), ("beside_pk_mul_f32_x4", 5)):
        (row,) = (row for row in micro_table.CLK if row.name == name)
        (figure,) = micro.figures([row])
        assert figure.origin == "measured" and figure.value == 4 * instructions


@pytest.mark.parametrize("name", ["latency_l2", "l1_rate", "hbm_copy_1", "mall_read", "clock_mfma"])
def test_every_kind_is_measured(gpu: None, name: str) -> None:
    (row,) = (row for row in micro_table.ROWS if row.name == name)
    (found,) = timings.micro_rows("measured", [row])
    figure = found.data["micro"]
    assert found.outcome in (INFO, FAILED) and figure["origin"] == "measured"
    assert figure["unit"] == row.unit
    if name == "clock_mfma":
        assert figure["value"] == pytest.approx(2.1, rel=0.05)  # as the virtual clocks are


def test_a_shape_and_a_product_are_measured(gpu: None) -> None:
    for shape in (timings.Product(3, 40, 64), Shape(1, 1, 1, 20, 20, 64)):
        (row,) = timings.shape_row("measured", shape, timings._measured_shape)
        facts = row.data["shape"]
        assert 0 < facts["low_us"] <= facts["median_us"] <= facts["high_us"]
        assert facts["origin"] == "measured" and row.text.endswith("us, measured")


def test_nothing_is_measured_on_the_virtual_device() -> None:
    (row,) = timings.micro_rows("measured", micro_table.LDS)
    assert row.outcome == ABSENT
    (row,) = timings.shape_row("measured", timings.SHAPES[0], timings._measured_shape)
    assert row.outcome == ABSENT


def test_a_figure_that_no_time_can_be_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = micro.rows("lds_read_b32")
    for value in (float("nan"), 0.0, -3.0):
        figures = [micro.Figure(row, "measured", value)]
        monkeypatch.setattr(micro, "figures", lambda rows, figures=figures: iter(figures))
        (found,) = timings.micro_rows("modelled", [row])
        assert found.outcome == FAILED and "not a possible time" in found.text


def test_clocks_that_stand_still_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Micro, "times", lambda *_: np.zeros((1, 4), np.uint64))
    (row,) = probes.clock()
    assert row.outcome == FAILED


@pytest.mark.parametrize(
    ("value", "fits"),
    [(64, "they do"), (66, "they do"), (108, "a vendor tool's constant"), (84, "none of these")],
)
def test_which_reading_fits(value: float, fits: str) -> None:
    (row,) = micro.rows("chain_lds_b128")
    assert micro.Figure(row, "measured", value).fits == fits


def test_readings_that_cannot_be_told_apart() -> None:
    (row,) = micro.rows("beside_fma_f32_x4")
    assert micro.Figure(row, "measured", 32).fits == "1 lost or 0 lost or 2 lost"
