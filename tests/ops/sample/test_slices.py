"""Several workgroups a row draw what one does, whatever the logits are; in graphs as well."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.device import manifest, runtime
from amdattn.ops.sample.cases import OPERATION
from amdattn.ops.sample.planning import choices, is_sliced
from amdattn.ops.sample.problem import SampleProblem
from amdattn.ops.sample.reference import drawn, noise

LIMITS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {},
    {"min_p": 0.01},
    {"top_k": 50},
    {"top_p": 0.9},
    {"temperature": 0.8, "top_k": 700, "top_p": 0.95, "min_p": 1e-4},
)


def by_both(x: Any, state: Any, *, exact: bool = True, **options: Any) -> list[int]:
    """Tokens by several workgroups a row, which are those by one; so is the state behind them.

    `exact`: as those of the reference.
    """
    problem, props = SampleProblem(*x.shape, **options), amdattn.device_props()
    found = []
    for row in manifest.kernels():
        if row.op == "sample" and row.dtype == problem.dtype and row.arch == props.arch:
            own = amdattn.asarray(state)
            plan = OPERATION.plan(problem, props, manifest.kernels(), row.name)
            assert (len(plan.workspace.regions) > 0) == is_sliced(row)
            with amdattn.virtual.check():
                tokens = plan.run(amdattn.asarray(x), state=own if problem.draws else None)
            found.append((tokens.numpy().tolist(), own.numpy().tolist()))
    assert len(found) == 2 and found[0] == found[1], options
    if exact:
        inputs = {"logits": x, "state": state}
        assert found[0][0] == drawn(problem, inputs).tolist(), options
    return found[0][0]


def states(rows: int, seed: int = 0) -> Any:
    """Random seeds and offsets."""
    own = np.random.default_rng(seed).integers(0, 2**40, (rows, 2), np.int64)
    return own.view(np.int32)


@pytest.mark.parametrize("options", LIMITS, ids=str)
def test_logits_of_all_kinds(options: dict[str, Any]) -> None:
    """Spread, far from 0, alike, ties, masked: the list of a bin is short, or all of the row."""
    x = np.random.default_rng(1).standard_normal((5, 2600), np.float32)
    x[0] *= 3
    x[1] = 100 + x[1] / 1000
    x[2] = np.where(x[2] < 0, -0.0, 0.0)  # all are in one bin, and equal
    x[3] = np.round(x[3])
    x[4, 40:] = -np.inf if options.get("top_k") else -1e9
    x[4, 7:9] = np.nan
    by_both(x, states(5), **options)


@pytest.mark.parametrize("options", [LIMITS[1], LIMITS[5]], ids=str)
def test_rows_without_a_draw(options: dict[str, Any]) -> None:
    """Infinite logits, and none; offsets go on."""
    x = np.full((3, 1500), -np.inf, np.float32)
    x[0, 1400] = np.inf
    x[1] = np.nan
    x[2, 9] = 0
    assert by_both(x, states(3), **options) == [1400, -1, 9]


@pytest.mark.parametrize("apart", [0.0, 1e-6, -1e-6, 1e-3])
def test_scores_that_rounding_could_turn(apart: float) -> None:
    """The two best of a slice are nearly the same, or quite."""
    x = np.full((1, 2100), -5, np.float32)
    state = states(1, 3)
    seed, offset = (int(word) for word in state.view(np.int64)[0])
    gumbel = noise(seed, offset, 2100)
    x[0, 1030], x[0, 1999] = 3, 3 + (gumbel[1030] - gumbel[1999] + apart) * math.log(2)
    for temperature in (1.0, 1e-3, 1e3):
        own = x * np.float32(temperature)
        by_both(own, state, exact=abs(apart) >= 1e-3, temperature=temperature)


def test_who_has_several_workgroups() -> None:
    """Few rows; not as many as there are CUs."""
    props = amdattn.device_props()
    for columns in (32000, 128256):
        for options in LIMITS:
            for rows, sliced in ((1, True), (props.num_cus, False)):
                found = choices(SampleProblem(rows, columns, **options), props, manifest.kernels())
                assert is_sliced(OPERATION.best(found.items).kernel) == sliced


def test_a_graph(hip_stream: Any) -> None:
    """Every replay draws anew, as calls do."""
    x = amdattn.asarray(np.random.default_rng(2).standard_normal((2, 3000), np.float32))
    plan = amdattn.plan_sample(2, 3000, device=amdattn.device_props(), top_k=40, top_p=0.9)
    assert plan.workspace.regions
    state, out = amdattn.asarray(states(2)), amdattn.empty((2,), "int32")
    wanted = []
    for _ in range(3):
        plan.run(x, state=state, out=out, stream=hip_stream)
        wanted.append(out.numpy().tolist())
    device, hip = runtime.get(), runtime.get().hip
    state, workspace = amdattn.asarray(states(2)), plan.new_workspace(hip_stream)
    handle = runtime.stream_handle(hip_stream)
    amdattn.synchronize()
    mode = hip.hipStreamCaptureMode.hipStreamCaptureModeRelaxed
    device.check("hipStreamBeginCapture", hip.hipStreamBeginCapture(handle, mode))
    with pytest.raises(ValueError, match=r"pass workspace=plan\.new_workspace"):
        plan.run(x, state=state, out=out, stream=hip_stream)
    plan.run(x, state=state, out=out, workspace=workspace, stream=hip_stream)
    graph = device.check("hipStreamEndCapture", hip.hipStreamEndCapture(handle))
    made = device.check("hipGraphInstantiate", hip.hipGraphInstantiateWithFlags(graph, 0))
    for tokens in wanted:
        device.check("hipGraphLaunch", hip.hipGraphLaunch(made, handle))
        assert out.numpy().tolist() == tokens
    device.check("hipGraphExecDestroy", hip.hipGraphExecDestroy(made))
    device.check("hipGraphDestroy", hip.hipGraphDestroy(graph))
