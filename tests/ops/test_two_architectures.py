"""Plans for devices of every architecture: each has its own kernels, sizes, rates and refusals."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest

import amdattn
from amdattn.arch.architectures import ARCHITECTURES
from amdattn.arch.products import of_arch as of_arch_name
from amdattn.arch.props import KNOWN_DEVICES, KNOWN_PARTITIONS, DeviceProps
from amdattn.device import manifest
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.ops import registry
from amdattn.ops.attention import kv_split
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.attention.work import WorkMap
from amdattn.ops.gemm import planning as gemm, table as gemm_table
from amdattn.ops.gemm.problem import GemmProblem

DEVICES = KNOWN_DEVICES | KNOWN_PARTITIONS
MI300X, MI355X = KNOWN_DEVICES["MI300X"], KNOWN_DEVICES["MI355X"]
OPERATIONS = registry.operations()


def of_arch(arch: str) -> list[manifest.KernelSpec]:
    return [row for row in manifest.kernels() if row.arch == arch]


def plans(device: DeviceProps) -> list[Any]:
    """One of every operation, as the public functions make them."""
    return [
        one.planned(next(iter(one.cases(None))).problem, device) for one in registry.operations()
    ]


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_launches_are_of_the_devices_own_kernels(device: DeviceProps) -> None:
    for plan in plans(device):
        assert plan.props == device
        assert {launch.kernel.arch for launch in plan.launches} == {device.arch}
        assert device.arch in plan.explain()


def _in_types_of(arch: Any, problem: Any) -> Any:
    """The same with the 8-bit types of another architecture."""
    first, *_ = ARCHITECTURES.values()
    types = {first.fp8: arch.fp8, first.bf8: arch.bf8}
    fields = [field.name for field in dataclasses.fields(problem) if field.init]
    given = {name: getattr(problem, name) for name in fields if "dtype" in name}
    found = {name: types[value] for name, value in given.items() if value in types}
    return dataclasses.replace(problem, **found) if found else problem


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_every_architecture_has_the_same_surface_but_for_other_roundings(operation: Any) -> None:
    """What a kernel of the first takes is planned for the others, with whatever kernels they have.

    All of it, to the ends of what it takes: cases of every kernel, and the general ones.
    """
    first, *others = ARCHITECTURES.values()
    assert not first.converts_bf16 and others and all(arch.converts_bf16 for arch in others)
    own = [row for row in of_arch(first.name) if row.op == operation.kernel_ops[0]]
    rows = [
        row
        for row in own
        if "round_mode" not in row.accepts or row.accepts["round_mode"] == ["rtne"]
    ]
    assert rows
    problems = {case.problem for row in (None, *rows) for case in operation.cases(row)}
    problems = {p for p in problems if getattr(p, "round_mode", "rtne") == "rtne"}
    for arch in others:
        device = KNOWN_DEVICES[of_arch_name(arch.name).name]
        for problem in problems:
            plan = operation.planned(_in_types_of(arch, problem), device)
            assert {launch.kernel.arch for launch in plan.launches} == {arch.name}
        symbols = [row.symbol for row in of_arch(arch.name)]
        assert len(set(symbols)) == len(symbols) > 100


@pytest.mark.parametrize("mode", ["rtna", "rtz"])
def test_roundings_that_the_hardware_does_not_do(mode: str) -> None:
    sizes: dict[str, Any] = dict(round_mode=mode, head_dim=128)
    amdattn.plan_attention(1, 8, 8, 2, 1, device=MI300X, **sizes)
    why = (
        rf"^round_mode={mode} is not built \(have rtne\): gfx950 converts to bfloat16 by an "
        r"instruction, which rounds to nearest even on gfx950 \(nearest kernel: attn_fwd_bf16_"
    )
    for options in ({}, {"softcap": 30.0}, {"window_size": (100, 0)}, {"causal": True}):
        with pytest.raises(amdattn.UnsupportedProblem, match=why):
            amdattn.plan_attention(1, 8, 8, 2, 1, device="MI355X", **sizes, **options)
    answer = amdattn.supports(1, 8, 8, 2, 1, device="MI355X", **sizes)
    assert not answer and answer.nearest == {"round_mode": "rtne"}
    assert "by an instruction" in answer.reason
    # Of float16 there is no other on any device: no reason of an architecture's.
    for device in ("MI300X", "MI355X"):
        reason = amdattn.supports(1, 8, 8, 2, 1, device=device, dtype="float16", **sizes).reason
        assert f"round_mode={mode} is not built (have rtne) on " in reason


@pytest.mark.parametrize("device", ["MI300X", "MI355X"])
def test_the_family_that_is_listed_is_of_the_device(device: str) -> None:
    family = amdattn.supports(device=device)
    modes = {mode for member in family for mode in member.takes["round_mode"]}
    assert modes == ({"rtne"} if device == "MI355X" else {"rtne", "rtna", "rtz"})
    assert len({member.kernel for member in family}) == len(family)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_a_kernel_is_named_among_those_of_the_device(operation: Any) -> None:
    problem = next(iter(operation.cases(None))).problem
    with pytest.raises(ValueError, match=r"kernel='nope' must be one of .* on gfx950$") as caught:
        operation.plan(problem, MI355X, manifest.kernels(), "nope")
    names = str(caught.value).split("must be one of ")[1].removesuffix(" on gfx950").split(", ")
    own = [row.name for row in of_arch("gfx950") if row.op == operation.kernel_ops[0]]
    assert names == own


def test_a_kernel_of_another_architecture_is_no_choice() -> None:
    foreign = of_arch("gfx942")
    with pytest.raises(amdattn.UnsupportedDeviceError, match=r"gfx942 \(MI300X, MI325X"):
        gemm.plan_gemm(GemmProblem(1, 64, 512), MI355X, foreign)
    found = gemm.choices(GemmProblem(1, 64, 512), MI355X, manifest.kernels())
    assert {choice.kernel.arch for choice in found.items} == {"gfx950"}
    assert {row.arch for row, _ in found.rejected} == {"gfx950"}


# -- sizes of the device ---------------------------------------------------------------------------


@pytest.mark.parametrize(("device", "cus"), [("MI300X", 304), ("MI355X", 256), ("MI355X:CPX", 32)])
def test_rounds_of_workgroups_are_of_its_cus(device: str, cus: int) -> None:
    """Whole rounds need no split: one tile more does, and then the tail is what is cut."""
    row = amdattn.plan_attention(1, 8192, 8192, 1, 1, 128, device=device).forward.kernel
    slots = cus * workgroups_per_cu(row, DEVICES[device])[0]
    even = amdattn.plan_attention(1, row.tile["q"], 8192, slots, slots, 128, device=device)
    assert f"on {slots} slots" in dict(even.reasons)["rounds"]
    assert even.forward.grid == (slots, 1, 1) and len(even.launches) == 1
    heads = slots + 8
    odd = amdattn.plan_attention(1, row.tile["q"], 8192, heads, heads, 128, device=device)
    work = WorkMap.of(odd.problem, odd.forward)
    assert work.whole_tiles == slots and work.parts > 1 and len(odd.launches) == 2


@pytest.mark.parametrize("heads", [32, 24, 7])
def test_the_order_of_tiles_over_eight_xcds(heads: int) -> None:
    """Of 256 CUs: every tile once, and each XCD has whole heads where they divide."""
    plan = amdattn.plan_attention(2, 8192, 8192, heads, heads, 128, device="MI355X")
    work = WorkMap.of(plan.problem, plan.forward)
    assert MI355X.num_xcds == 8
    order = [work.tile(n) for n in range(work.tiles)]
    assert len(set(order)) == work.tiles == 2 * heads * work.q_tiles
    if heads % 4 == 0 and work.whole_tiles == work.tiles:
        xcds = {(head, n % 8) for n, (head, _) in enumerate(order)}
        assert max(Counter(head for head, _ in xcds).values()) == 1


def test_splits_are_chosen_for_the_device() -> None:
    """The same problem in other parts: the tail of 304 CUs is not that of 256."""
    problem = AttentionProblem(1, 8192, 8192, 13, 13, 128)
    found = {}
    for device in (MI300X, MI355X):
        rows = manifest.kernels()
        plan = registry.operation("attention").plan(problem, device, rows)
        kernel = plan.launches[0].kernel
        split = kv_split.choose(problem, kernel, device, device.num_cus, 16)
        assert split.best.clk <= split.considered[0].clk
        found[device.chip] = plan.launches[0].grid
    assert found["MI300X"] != found["MI355X"]


def test_lds_of_the_device_counts() -> None:
    """Workgroups of a CU follow its LDS: what fits 64 KiB once fits 160 KiB twice."""
    kernel = dataclasses.replace(of_arch("gfx942")[0], vgpr=64, lds_bytes=48 * 1024)
    assert workgroups_per_cu(kernel, MI300X) == (1, "LDS (49152 of 65536 bytes)")
    assert workgroups_per_cu(kernel, MI355X) == (3, "LDS (49152 of 163840 bytes)")


# -- estimates -------------------------------------------------------------------------------------


def test_estimates_follow_the_rates_of_the_device() -> None:
    problem = GemmProblem(16, 8192, 8192)
    cost = {
        d.chip: gemm.least_estimated(gemm.choices(problem, d, manifest.kernels()).items).cost
        for d in (MI300X, MI355X)
    }
    assert cost["MI355X"].clock_ghz == 2.4 and cost["MI300X"].clock_ghz == 2.1
    assert cost["MI355X"].us < cost["MI300X"].us
    floors = cost["MI300X"].floor_us / cost["MI355X"].floor_us
    assert floors == pytest.approx(6250 / 4200)


def test_tables_are_by_product() -> None:
    """What was tuned on one says nothing of another; the estimate decides there."""
    shipped = gemm_table.load(gemm_table.shipped_path())
    for chip, alike in (("MI300X", "MI325X"), ("MI355X", "MI350X")):
        assert KNOWN_DEVICES[chip].num_cus == KNOWN_DEVICES[alike].num_cus
        key, tuned = next((key, tuned) for key, tuned in shipped.items() if key.chip == chip)
        sizes = key.m, key.n, key.k
        why = dict(amdattn.plan_gemm(*sizes, device=alike, dtype=key.dtype).reasons)
        assert why["why this kernel"].startswith("least estimated time")
        why = dict(amdattn.plan_gemm(*sizes, device=chip, dtype=key.dtype).reasons)
        assert why["why this kernel"] == f"tuned: {tuned}"


# -- plans and devices that do not fit each other --------------------------------------------------


@pytest.mark.device
def test_plans_and_kernels_for_another_device_are_refused() -> None:
    import numpy as np

    from amdattn.device import runtime

    bound = runtime.get()
    other = MI355X if bound.props.arch == MI300X.arch else MI300X
    plan: Any = registry.operation("rms_norm").planned(
        next(iter(registry.operation("rms_norm").cases(None))).problem, other
    )
    inputs = {
        name: np.zeros(spec.shape, spec.dtype.numpy())
        for name, spec in plan.specs().items()
        if spec.role != "out" and spec.present
    }
    views, stream = plan.views_of(inputs, None)
    text = rf"this plan is for {other.arch}, but .* \({bound.props.arch}\) is bound"
    with pytest.raises(amdattn.UnsupportedDeviceError, match=text):
        given = (None,) * len(plan.result_names)
        plan.execute(None, views, given, plan.default_variant, stream)
    kernel = plan.launches[0].kernel
    text = rf"kernel {kernel.name} is for {other.arch}, but .* \({bound.props.arch}\) is bound"
    with pytest.raises(amdattn.UnsupportedDeviceError, match=text):
        bound.function(kernel)
    # And past every check of ours, the runtime.
    with pytest.raises(amdattn.HipError):
        bound.load(kernel.read_code_object(), kernel.symbol)
