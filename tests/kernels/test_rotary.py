"""Rotary embedding kernel by kernel: results against float64, and all that may not be written."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.device import manifest
from amdattn.op.comparison import judge
from amdattn.ops import registry
from amdattn.ops.rotary.cases import RotaryCase
from amdattn.ops.rotary.planning import ROTARY
from amdattn.ops.rotary.problem import POSITIONS, RotaryProblem
from amdattn.ops.rotary.rotary import RotaryPlan
from tests.support import shipped
from tests.support.framed import Framed
from tests.support.kernel_sweep import run_on

OPERATION = registry.operation("rotary")
KERNELS = {row.name: row for row in shipped.shipped(ROTARY)}
OTHERS = [arch for arch in ("gfx942", "gfx950") if arch != shipped.props().arch]


def plan_of(case: RotaryCase) -> RotaryPlan:
    plan = OPERATION.plan_case(case, amdattn.device_props(), manifest.kernels())
    assert isinstance(plan, RotaryPlan)
    return plan


def check(case: RotaryCase, apart: int = 3) -> None:
    """Results in the midst of poison; in place the same bits."""
    inputs = case.inputs(5)
    heads = [name for name in ("x", "k") if name in inputs]
    held = {name: Framed(inputs[name], apart=apart + i) for i, name in enumerate(heads)}
    outs = {name: Framed(inputs[name].shape, inputs[name].dtype, apart + 2) for name in heads}
    given = {name: amdattn.asarray(x) for name, x in inputs.items()}
    given |= {name: one.inner for name, one in held.items()}
    names = {"x": "out", "k": "k_out"}
    plan_of(case).run(**given, **{names[name]: one.inner for name, one in outs.items()})
    must = OPERATION.reference(case, inputs)
    found = {name: one.taken() for name, one in outs.items()}
    for name in heads:
        one = must[names[name]]
        result = judge(found[name], one.values, one.tolerance, 0.0)
        assert result, f"{case.title}: {name}: {result.reason}"
    over = dataclasses.replace(case, problem=dataclasses.replace(case.problem, in_place=True))
    plan_of(over).run(**given, **{names[name]: one.inner for name, one in held.items()})
    for name in heads:
        again = held[name].taken()
        np.testing.assert_array_equal(again.view(np.uint16), found[name].view(np.uint16))


@pytest.mark.parametrize("name", KERNELS)
def test_results(name: str) -> None:
    for case in OPERATION.cases(KERNELS[name]):
        assert isinstance(case, RotaryCase)
        check(case)


@pytest.mark.parametrize("name", KERNELS)
def test_checked(name: str) -> None:
    """No finding in checked mode."""
    with amdattn.virtual.check():
        for case in list(OPERATION.cases(KERNELS[name]))[::2]:
            assert isinstance(case, RotaryCase)
            check(case)


@pytest.mark.parametrize("dim", [2, 6, 16, 40, 48, 64, 112, 128, 130, 256])
def test_columns_around_chunks(dim: int) -> None:
    """All columns and a part of them, both kinds of pairs, heads that fill no lane."""
    for i, part in enumerate(sorted({dim, 2, max(2, dim // 4 * 2), dim // 16 * 16 or 2})):
        for interleaved in (False, True):
            problem = RotaryProblem(
                *(2, 3, 3, dim, 1, part, 11, ("bfloat16", "float16")[i % 2]),
                table_dtype=None if i % 3 else "float32",
                interleaved=interleaved,
                positions=POSITIONS[(i + interleaved) % 3],
            )
            check(RotaryCase(problem), apart=1 + i)


@pytest.mark.parametrize(
    ("dim", "part"),
    [(2, 2), (6, 4), (48, 16), (70, 70), (128, 40), (96, 96), (256, 128), (1024, 64)],
)
def test_normalised_heads_around_waves(dim: int, part: int) -> None:
    """Lanes without columns, one pair or eight a lane, heads of one lane and of a whole wave."""
    for i, (q_norm, k_norm) in enumerate(((True, True), (True, False), (False, True))):
        problem = RotaryProblem(
            *(2, 3, 3, dim, 1, part, 11, ("bfloat16", "float16")[i % 2]),
            table_dtype=None if i % 2 else "float32",
            interleaved=i == 1,
            positions=POSITIONS[i],
            q_norm=q_norm,
            k_norm=k_norm,
            norm_eps=(1e-6, 0.3, 1e-5)[i],
        )
        check(RotaryCase(problem), apart=1 + i)


def test_what_is_no_number_stays_in_its_head() -> None:
    """A NaN makes its head NaN, an infinity the others of its head 0; all else as without."""
    case = RotaryCase(RotaryProblem(1, 3, 4, 64, 2, 32, q_norm=True, k_norm=True))
    inputs = case.inputs(2)
    out, k_out = (x.copy() for x in plan_of(case).run(**inputs))
    inputs["x"][0, 1, 2, 5] = np.nan
    inputs["k"][0, 2, 0, 40] = -np.inf  # behind those that are turned
    spoiled, k_spoiled = plan_of(case).run(**inputs)
    assert np.isnan(spoiled[0, 1, 2].astype(np.float32)).all()
    row = k_spoiled[0, 2, 0].astype(np.float32)
    assert np.isnan(row[40]) and not row[np.arange(64) != 40].any()
    spoiled[0, 1, 2], k_spoiled[0, 2, 0] = out[0, 1, 2], k_out[0, 2, 0]
    np.testing.assert_array_equal(spoiled.view(np.uint16), out.view(np.uint16))
    np.testing.assert_array_equal(k_spoiled.view(np.uint16), k_out.view(np.uint16))


@pytest.mark.parametrize("positions", ["offsets", "tokens"])
@pytest.mark.parametrize("wrong", [-1, 40, 2**31 - 1, -(2**31)])
def test_a_position_that_the_tables_have_not(positions: str, wrong: int) -> None:
    """NaN where its token's columns are turned, a report in checked mode; all else as without."""
    problem = RotaryProblem(3, 2, 2, 64, 1, 32, 40, positions=positions)
    case = RotaryCase(problem)
    inputs = case.inputs(1)
    name = {"offsets": "seqlen_offsets", "tokens": "positions"}[positions]
    plan = plan_of(case)
    must = plan.run(**_device(inputs))
    inputs[name].reshape(3, -1)[1, 0] = wrong
    given = _device(inputs)
    with amdattn.virtual.check(raise_on=None) as found:
        results = plan.run(**given)
        amdattn.synchronize()
    assert {finding.kind for finding in found.errors} == {"trap"}
    lost = np.zeros((3, 2), bool)
    lost[1] = True if positions == "offsets" else [True, False]
    for one, other in zip(results, must, strict=True):
        got, was = one.numpy(), other.numpy()
        assert np.isnan(got[lost][..., :32].astype(np.float32)).all()
        for part in (np.s_[~lost], np.s_[lost, :, 32:]):
            np.testing.assert_array_equal(got[part].view(np.uint16), was[part].view(np.uint16))


def _device(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: amdattn.asarray(x) for name, x in inputs.items()}


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("table", [None, "float32"])
def test_the_bits_of_an_append_to_a_cache(interleaved: bool, table: Any) -> None:
    """Keys that `flash_attn_with_kvcache` turns and appends are those that this turns."""
    rng = np.random.default_rng(0)
    element = ml_dtypes.bfloat16
    q, k, v = (
        rng.standard_normal((2, 1, heads, 64), np.float32).astype(element) for heads in (4, 2, 2)
    )
    angles = rng.uniform(0, 6, (64, 16))
    cos, sin = (f(angles).astype(table or element) for f in (np.cos, np.sin))
    caches = [amdattn.asarray(np.zeros((2, 64, 2, 64), element)) for _ in range(2)]
    lengths = np.array([7, 30], np.int32)
    amdattn.flash_attn_with_kvcache(
        *(amdattn.asarray(q), *caches, amdattn.asarray(k), amdattn.asarray(v)),
        *(amdattn.asarray(cos), amdattn.asarray(sin)),
        cache_seqlens=amdattn.asarray(lengths),
        rotary_interleaved=interleaved,
    )
    appended = caches[0].numpy()[np.arange(2), lengths]
    turned = amdattn.apply_rotary_emb(k, cos, sin, interleaved, seqlen_offsets=lengths)
    np.testing.assert_array_equal(appended.view(np.uint16), turned[:, 0].view(np.uint16))


def test_the_same_bits_in_any_order() -> None:
    case = RotaryCase(RotaryProblem(3, 70, 9, 64, 2, 64, 100, positions="tokens"))
    inputs, found = case.inputs(3), set()
    for seed in (0, 1, 7):
        try:
            amdattn.virtual.set_option("seed", seed)
            found.add(b"".join(x.tobytes() for x in plan_of(case).run(**inputs)))
        finally:
            amdattn.virtual.set_option("seed", 0)
    assert len(found) == 1


@pytest.mark.parametrize("arch", OTHERS)
def test_every_kernel_of_the_other_architecture(arch: str) -> None:
    found = run_on(arch, "--cases=8", "--checked", f"--names={ROTARY}_*", timeout=600)
    assert found["wrong"] == []
    own = {row.name for row in manifest.kernels() if row.arch == arch and row.op == ROTARY}
    assert own <= set(found["launched"])
