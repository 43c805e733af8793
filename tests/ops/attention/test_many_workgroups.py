"""Grids as large as a launch takes: of larger tiles there are fewer."""

from __future__ import annotations

import pytest

import amdattn
from amdattn import UnsupportedProblem, plan_attention
from amdattn.arch.props import KNOWN_DEVICES
from amdattn.device import manifest
from amdattn.ops.attention.planning import choices


def test_a_kernel_of_larger_tiles_where_the_fastest_has_too_many() -> None:
    sizes = 2**16, 1024, 16, 64, 64, 128
    plan = plan_attention(*sizes, device="MI300X")
    problem, props = plan.problem, KNOWN_DEVICES["MI300X"]
    fastest = min(choices(problem, props, manifest.kernels()).items, key=lambda one: one.clk)
    kernel = plan.launches[0].kernel
    assert kernel.tile["q"] > fastest.kernel.tile["q"]
    assert plan.launches[0].grid[0] <= kernel.accepts["max_workgroups"]


def test_the_refusal_names_the_kernel_that_takes_most() -> None:
    with pytest.raises(UnsupportedProblem, match=r"6 tiles of seqlen_q=2048.*d128_rtne takes"):
        plan_attention(2**20, 2048, 16, 64, 64, 128, device="MI300X")


def test_launches_that_merge_are_bounded_too() -> None:
    plan = plan_attention(2**15, 1024, 4096, 64, 64, 128, num_splits=2, device="MI355X")
    merge = plan.launches[-1]
    assert merge.kernel.op == "attn_merge"
    assert merge.grid[0] == merge.kernel.accepts["max_workgroups"]
    arguments = dict(merge.args)
    assert arguments["merge_workgroups"] == merge.grid[0] < arguments["merge_tiles"] * 24


def test_decoding_has_as_many_workgroups_as_the_device_has_room_for() -> None:
    plan = amdattn.plan_decode(2**20, 1, 128, 64, 8, 128, num_splits=2, device="MI300X")
    assert plan.launches[0].grid == (304, 1, 1)
