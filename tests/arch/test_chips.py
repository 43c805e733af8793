"""Chips, partitions of them, and what planning makes of their share of memory."""

from __future__ import annotations

import dataclasses

import pytest

import amdattn
from amdattn.arch import products as chips
from amdattn.arch.props import KNOWN_DEVICES, KNOWN_PARTITIONS, DeviceProps
from amdattn.ops.attention.cost import merge_clk
from amdattn.ops.gemm import planning as gemm, table as gemm_table
from amdattn.ops.gemm.cost import floor
from amdattn.ops.gemm.problem import GemmProblem

MI300X, MI325X = KNOWN_DEVICES["MI300X"], KNOWN_DEVICES["MI325X"]
MERGED = next(row for row in amdattn.kernels() if row.name == "attn_fwd_bf16_d128_rtne")


def test_products_are_known_by_their_ids() -> None:
    ids = [i for chip in chips.CHIPS for i in chip.ids]
    assert len(ids) == len(set(ids))
    assert {i: chips.by_id(i).name for i in (0x74A0, 0x74A1, 0x74A2, 0x74A5, 0x74B5)} == {
        0x74A0: "MI300A",
        0x74A1: "MI300X",
        0x74A2: "MI308X",
        0x74A5: "MI325X",
        0x74B5: "MI300X",
    }
    assert chips.by_id(8) is None
    assert chips.by_name("AMD Instinct MI300X VF").name == "MI300X"
    assert chips.by_name("AMD Radeon Graphics") is chips.by_name("") is None


def test_partitions() -> None:
    facts = {name: (p.num_cus, p.num_xcds) for name, p in KNOWN_PARTITIONS.items()}
    assert facts == {
        **{"MI300X:DPX": (152, 4), "MI300X:QPX": (76, 2), "MI300X:CPX": (38, 1)},
        **{"MI325X:DPX": (152, 4), "MI325X:QPX": (76, 2), "MI325X:CPX": (38, 1)},
        **{"MI300A:DPX": (114, 3), "MI300A:TPX": (76, 2), "MI300A:CPX": (38, 1)},
        **{"MI308X:DPX": (40, 2), "MI308X:CPX": (20, 1)},
        **{"MI355X:DPX": (128, 4), "MI355X:QPX": (64, 2), "MI355X:CPX": (32, 1)},
        **{"MI350X:DPX": (128, 4), "MI350X:QPX": (64, 2), "MI350X:CPX": (32, 1)},
    }
    for name, props in KNOWN_PARTITIONS.items():
        chip, _, mode = name.partition(":")
        assert (props.chip, props.partition) == (chip, mode)
        assert f"{mode} ({props.arch}), {props.num_cus} CUs" in amdattn.explain_gemm(
            1, 64, 512, device=name
        )
    assert {p.partition for p in KNOWN_DEVICES.values()} == {"SPX"}


@pytest.mark.parametrize("name", [*KNOWN_DEVICES, *KNOWN_PARTITIONS])
def test_a_partition_has_its_share_of_memory(name: str) -> None:
    part = (KNOWN_DEVICES | KNOWN_PARTITIONS)[name]
    whole = KNOWN_DEVICES[part.chip]
    share = part.num_xcds / whole.num_xcds
    assert part.hbm_bytes_per_ns == pytest.approx(share * whole.hbm_bytes_per_ns)
    assert part.mall_bytes_per_ns == pytest.approx(share * whole.mall_bytes_per_ns)
    # However a partition is described: by the facts that a runtime tells, too.
    told = dataclasses.replace(whole, num_cus=part.num_cus, num_xcds=part.num_xcds)
    assert told.hbm_bytes_per_ns == part.hbm_bytes_per_ns


def test_bandwidth_of_chips() -> None:
    assert MI300X.hbm_bytes_per_ns == pytest.approx(4200)
    assert MI325X.hbm_bytes_per_ns / MI300X.hbm_bytes_per_ns == pytest.approx(6000 / 5300)
    stranger = DeviceProps("gfx942", "AMD Radeon Graphics", 76, 2, 65536, 2**36)
    assert (stranger.chip, stranger.partition) == ("", "")
    assert stranger.hbm_bytes_per_ns == pytest.approx(4200 / 4)
    # Of its architecture, not of the first one.
    stranger = DeviceProps("gfx950", "AMD Radeon Graphics", 64, 2, 163840, 2**36)
    assert stranger.hbm_bytes_per_ns == pytest.approx(6250 / 4)
    assert (stranger.peak_clock_ghz, stranger.sustained_clock_ghz) == (2.4, 1.75)
    assert stranger.hbm_latency_clk == 989
    unknown = DeviceProps("gfx90a", "AMD Instinct MI250X", 104, 1, 65536, 2**36)
    assert unknown.peak_clock_ghz == MI300X.peak_clock_ghz


def test_planned_costs_follow_the_share() -> None:
    whole, part = MI300X, KNOWN_PARTITIONS["MI300X:CPX"]
    problem = GemmProblem(8, 8192, 8192)
    assert floor(problem, part)[0] == pytest.approx(8 * floor(problem, whole)[0])
    of_whole, of_part = (
        min(
            (c for c in gemm.choices(problem, props, amdattn.kernels()).items if c.splits == 1),
            key=lambda choice: choice.cost.clk,
        ).cost
        for props in (whole, part)
    )
    # One XCD reads all of B, which eight share, as fast as each of those reads its own.
    assert of_part.memory_clk == pytest.approx(8 * of_whole.memory_clk, rel=0.02)
    # Partial results are written and read at an eighth of the rate.
    fixed = merge_clk(MERGED, 0, whole)
    assert merge_clk(MERGED, 0, part) == fixed
    assert merge_clk(MERGED, 64, part) - fixed == pytest.approx(
        8 * (merge_clk(MERGED, 64, whole) - fixed)
    )


def test_tuned_products_are_of_a_chip_not_of_its_cus() -> None:
    key, tuned = next(iter(gemm_table.load(gemm_table.shipped_path()).items()))
    problem = GemmProblem(key.m, key.n, key.k, key.dtype)
    assert gemm_table.lookup(problem, MI300X) == tuned
    for other in (MI325X, KNOWN_PARTITIONS["MI300X:CPX"], KNOWN_DEVICES["MI308X"]):
        assert gemm_table.lookup(problem, other) is None
    renamed = dataclasses.replace(MI300X, name="AMD Instinct MI300X VF")
    assert gemm_table.lookup(problem, renamed) == tuned


def test_the_id_counts_not_the_name() -> None:
    misnamed = dataclasses.replace(MI300X, chip="MI325X")
    assert misnamed.hbm_bytes_per_ns == MI325X.hbm_bytes_per_ns


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"num_xcds": 305}, "num_xcds=305 must be at most num_cus=304"),
        (
            {"chip": "MI999"},
            "chip='MI999' must be one of MI300X, MI325X, MI300A, MI308X, MI355X, MI350X, or empty",
        ),
    ],
)
def test_impossible_devices(facts: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        dataclasses.replace(MI300X, **facts)


def test_unknown_names_list_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"MI350X, MI300X:DPX, MI300X:QPX, MI300X:CPX"):
        amdattn.plan_gemm(1, 16, 64, device="MI300X:NPX")
