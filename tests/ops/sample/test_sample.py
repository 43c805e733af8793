"""Tokens of logits: the generator, distributions, what may be drawn, what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.device import manifest
from amdattn.op.comparison import judge
from amdattn.ops.sample.cases import OPERATION, SampleCase, cases, expected
from amdattn.ops.sample.planning import SAMPLE
from amdattn.ops.sample.reference import philox

ROW = np.array([1.0, 3.0, -2.0, 3.0, np.nan, -np.inf, 0.5], np.float32)


def logits(*shape: int, sd: float = 3.0) -> Any:
    """Normally distributed."""
    return sd * np.random.default_rng(shape).standard_normal(shape, np.float32)


def test_the_generator() -> None:
    """Known answers of Random123."""
    ones = 0xFFFFFFFF
    for counter, key, wanted in (
        ((0,) * 4, (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((ones,) * 4, (ones, ones), "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ):
        found = philox(np.array(counter, np.uint64), key)
        assert " ".join(f"{int(word):08x}" for word in found) == wanted


OF_KERNELS = [
    one
    for row in manifest.kernels()
    if row.op == SAMPLE and row.arch == amdattn.device_props().architecture.name
    for one in cases(row)
]


@pytest.mark.parametrize("one", OF_KERNELS, ids=lambda one: f"{one.kernel} {one.problem.brief}")
def test_cases(one: SampleCase) -> None:
    """The token that the reference draws, poisoned memory around, no finding, the offset behind."""
    inputs = one.inputs(1)
    on_device = {name: amdattn.asarray(x) for name, x in inputs.items()}
    plan = OPERATION.plan_case(one, amdattn.device_props(), manifest.kernels())
    assert {launch.kernel.name for launch in plan.launches} == {one.kernel}
    with amdattn.virtual.check():
        found = {"out": plan.run(**on_device), **on_device}
    for name, must in expected(one, inputs).items():
        assert judge(found[name].numpy(), must.values, must.tolerance, 0.0), name


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
def test_argmax(dtype: Any) -> None:
    """The first of equal ones; no number is less than all; views and outputs."""
    rows = np.stack([ROW, ROW[::-1], np.full(7, -np.inf), np.full(7, np.nan)]).astype(dtype)
    wanted = [1, 3, -1, -1]
    assert amdattn.argmax(rows).tolist() == wanted
    out = np.full(4, 9, np.int32)
    assert amdattn.argmax(rows[:, ::1], out=out) is out and out.tolist() == wanted
    wide = np.full((4, 20), 100, dtype)
    wide[:, 3:10] = rows
    assert amdattn.argmax(amdattn.asarray(wide)[:, 3:10]).numpy().tolist() == wanted
    infinite = rows.copy()
    infinite[:, 6] = np.inf
    assert amdattn.argmax(infinite).tolist() == [6] * 4
    assert amdattn.sample(infinite, seed=5).tolist() == [6] * 4
    assert amdattn.sample(rows[2:], seed=5).tolist() == [-1, -1]


def test_the_distribution() -> None:
    """Counts of 4,000 rows of the same logits within 5 sd of what softmax says."""
    rows, p = 4000, np.array([0.5, 0.25, 0.125, 0.1, 0.02, 0.005])
    x = np.broadcast_to(np.log(p).astype(np.float32), (rows, 6))
    counts = np.bincount(amdattn.sample(x, seed=1), minlength=6)
    share = p / p.sum()
    assert (np.abs(counts - rows * share) <= 5 * np.sqrt(rows * share * (1 - share))).all()
    kept = np.bincount(amdattn.sample(x, top_p=0.76, seed=2), minlength=6)
    share = np.array([0.5, 0.25, 0.125]) / 0.875
    assert kept[3:].sum() == 0
    assert (np.abs(kept[:3] - rows * share) <= 5 * np.sqrt(rows * share * (1 - share))).all()


def test_who_may_be_drawn() -> None:
    """Of many draws exactly those; equal logits together."""
    x = np.broadcast_to(np.array([0, 2, 1, 2, -1], np.float32), (300, 5))
    for options, may in (
        ({"top_k": 1}, {1, 3}),
        ({"top_k": 3}, {1, 2, 3}),
        ({"top_k": 9}, {0, 1, 2, 3, 4}),
        ({"top_p": 0.5}, {1, 3}),
        ({"top_p": 1e-6}, {1, 3}),
        ({"min_p": 0.6}, {1, 2, 3}),
        ({"min_p": 1.0}, {1, 3}),
        ({"temperature": 1e-30}, {1, 3}),
        ({"top_k": 3, "top_p": 0.86}, {1, 2, 3}),
        ({"top_k": 3, "min_p": 0.8}, {1, 3}),
    ):
        given: dict[str, Any] = {"temperature": 3.0, "seed": 7, **options}
        assert set(amdattn.sample(x, **given).tolist()) == may, options


def test_penalties() -> None:
    """Of tokens so far; others of the list are none."""
    x = np.array([[4.0, 3.0, -1.0], [-4.0, -3.0, -5.0]], np.float32)
    tokens = np.array([[0, 0, -1, 7], [1, -5, 1, 3]], np.int32)
    for penalty, wanted in ((1.2, [0, 1]), (2.0, [1, 0])):
        found = amdattn.sample(x, 0.0, repetition_penalty=penalty, tokens=tokens)
        assert found.tolist() == wanted


def test_seeds_and_states() -> None:
    """The same again; another one of another seed or offset; replays of a graph go on."""
    x = logits(64, 1000, sd=0.1)
    first = amdattn.sample(x, seed=3)
    assert (first == amdattn.sample(x, seed=3)).all()
    assert (first != amdattn.sample(x, seed=4)).mean() > 0.9
    own = np.array([[3, row << 32] for row in range(64)], np.int64)
    state = amdattn.asarray(own.view(np.int32))
    on_device = amdattn.asarray(x)
    assert (amdattn.sample(on_device, state=state).numpy() == first).all()
    second = amdattn.sample(on_device, state=state).numpy()
    assert (second != first).mean() > 0.9
    assert (state.numpy().view(np.int64) == own + np.array([0, 2])).all()
    later = (own[5:9] + np.array([0, 1])).view(np.int32)
    rest = amdattn.sample(on_device[5:9], state=amdattn.asarray(later)).numpy()
    assert (rest == second[5:9]).all()


def test_what_is_refused() -> None:
    """By name, with what is allowed."""
    x = logits(2, 8)
    for error, message, call in (
        (ValueError, r"logits has shape \(8,\); it must be", lambda: amdattn.sample(x[0])),
        (ValueError, r"logits has shape \(2, 0\)", lambda: amdattn.argmax(x[:, :0])),
        (ValueError, "temperature=-1.0 must be finite and 0", lambda: amdattn.sample(x, -1.0)),
        (ValueError, "top_k=-1 must be in 0..", lambda: amdattn.sample(x, top_k=-1)),
        (ValueError, "top_p=0.0 must be more than 0", lambda: amdattn.sample(x, top_p=0.0)),
        (ValueError, r"min_p=1.5 must be in 0..1", lambda: amdattn.sample(x, min_p=1.5)),
        (
            ValueError,
            "repetition_penalty=2.0 is for previous tokens",
            lambda: amdattn.sample(x, repetition_penalty=2.0),
        ),
        (
            ValueError,
            r"tokens has shape \(3, 1\); it must be \(2, history\)",
            lambda: amdattn.sample(x, tokens=np.zeros((3, 1), np.int32)),
        ),
        (ValueError, "seed is an integer of 65 bits", lambda: amdattn.sample(x, seed=2**64)),
        (
            TypeError,
            "state is written in place: it must be in device memory",
            lambda: amdattn.sample(x, state=np.zeros((2, 4), np.int32)),
        ),
        (
            ValueError,
            "seed=3 and state were given",
            lambda: amdattn.sample(x, seed=3, state=amdattn.asarray(np.zeros((2, 4), np.int32))),
        ),
        (
            amdattn.UnsupportedProblem,
            "columns=300000 is not built",
            lambda: amdattn.argmax(np.zeros((1, 300000), np.float32)),
        ),
        (amdattn.UnsupportedProblem, "dtype=", lambda: amdattn.argmax(x.astype(np.float64))),
    ):
        with pytest.raises(error, match=message):
            call()
