"""Gradients beside float64 and a plain pipeline of 16-bit products; bits that must be the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.checking.findings import ERROR, ORDER, FindingLog
from amdattn.checking.schedules import run, schedules
from amdattn.checking.subjects import OfOperation
from amdattn.ops.attention_backward.cases import OPERATION, BackwardCase, case
from amdattn.ops.attention_backward.reference import Inputs, Options, gradients, of_forward
from tests.support.adversary.classes import CLASSES
from tests.support.backward.bar import Truth, complaints
from tests.support.backward.calls import GRADIENTS, Call, adversary, least, normal, sweep

EDGES = (1, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 191, 192, 193, 255, 257)


@pytest.mark.parametrize("n", EDGES)
def test_sizes(n: int) -> None:
    """As rows, as keys, and as both."""
    dtype = ("bfloat16", "float16")[n % 2]
    normal(n, 40, dtype=dtype, seed=n).check()
    normal(20, n, (2, 1), dtype=dtype, seed=n).check()
    normal(n, n, dtype=dtype, seed=n, causal=True).check()


@pytest.mark.parametrize("dims", [(8, 8), (40, 64), (72, 40), (128, 128), (192, 128), (256, 200)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_head_sizes(dims: tuple[int, int], dtype: str) -> None:
    normal(70, 90, dims=dims, dtype=dtype, causal=True).check()


OPTIONS: tuple[dict[str, Any], ...] = (
    {"causal": True, "top_left": True},
    {"window_size": (20, 5)},
    {"window_size": (0, 0)},
    {"window_size": (7, -1), "top_left": True},
    {"window_size": (-1, 3)},
    {"window_size": (2**31 - 1, 2**31 - 1)},
    {"window_size": (2**31 - 2, 0), "top_left": True},
    {"softcap": 3.0, "causal": True},
    {"softmax_scale": -0.3},
    {"softmax_scale": 0.0},
    {"sinks": True, "causal": True},
    {"dlse": True},
    {"dlse": True, "sinks": True, "softcap": 1.5, "window_size": (30, 10)},
    {"more": {"out_dtype": "float32"}, "causal": True},
    {"more": {"deterministic": True}, "causal": True},
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("rows", "keys"), [(40, 75), (75, 40), (60, 60)])
def test_options(options: dict[str, Any], rows: int, keys: int) -> None:
    normal(rows, keys, (4, 2), batch=1 + (rows == keys), **options).check()


@pytest.mark.parametrize("heads", [(3, 3), (6, 2), (5, 1)])
def test_groups_of_heads(heads: tuple[int, int]) -> None:
    normal(35, 300, heads, causal=True, batch=2).check()


@pytest.mark.parametrize("exponent", [-100, -30, 30, 100])
def test_gradients_of_any_size(exponent: int) -> None:
    """A power of two goes through, but where the type ends."""
    one = normal(50, 70, (2, 1), causal=True)
    scaled = (one.inputs.dout.astype(np.float32) * np.float32(2.0**exponent)).astype(
        one.inputs.dout.dtype
    )
    inputs = of_forward(scaled, one.inputs.q, one.inputs.k, one.inputs.v, one.options)
    found = Call(inputs, one.options, "bfloat16").run()
    for name, x in one.run().items():
        exact = x.astype(np.float64) * 2.0**exponent
        np.testing.assert_array_equal(found[name].astype(np.float64), exact, name)


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_kinds_of_gradients(gradient: str) -> None:
    for number in range(2):
        adversary("normal", number, 5, gradient).check()


@pytest.mark.parametrize("name", CLASSES)
def test_adversary(name: str) -> None:
    adversary(name, least(name, 1), seed=1).check()


@pytest.mark.parametrize("name", ["a sink key without value", "denormal results"])
def test_denormal_o(name: str) -> None:
    """What its rounding costs is absolute there: a column had 1.19 and 1.02 of what was allowed."""
    adversary(name, 43, 0).check()


def test_delta_that_overflows_in_some_order() -> None:
    """Its positive products alone are beyond float32, their sum is not: sinks cannot be judged."""
    call = adversary("sums that overflow", 10, 53)
    truth = Truth.of(call.inputs, call.options, call.dtype)
    assert truth.usual.dsinks is not None and truth.open.dsinks is not None
    assert np.isfinite(truth.usual.dsinks[2]) and not np.isfinite(truth.open.dsinks[2])
    call.check()


def test_a_result_beyond_its_type() -> None:
    """-65935 is no number of float16, and -65344 of plain, which is so far off as float32 is.

    Of a forward kernel that every architecture has, so that the numbers are the same on all.
    """
    call = adversary("a common offset of 2 17", 6, 4, forward="attn_fwd_fp16_d64_q256_rtne")
    truth = Truth.of(call.inputs, call.options, call.dtype)
    at = 0, 9, 0, 0
    assert truth.best.dk[at] < -65520 < truth.usual.dk[at]
    found = call.run()
    assert complaints(found, truth) == []
    for value, is_wrong in (
        (-np.inf, False),
        (-65504, False),
        (np.inf, True),
        (np.nan, True),
        (0, True),
    ):
        found["dk"][at] = value
        assert bool(complaints(found, truth)) == is_wrong, value


def test_results_beyond_their_type_have_the_right_sign() -> None:
    """Plain ones are infinite as well: another sign, a number and none are told."""
    call = normal(33, 4, dtype="float16")
    signs = np.where(np.arange(64) < 32, 1, -1)
    dout = (signs * (20000 + abs(call.inputs.dout))).astype(np.float16)
    none = np.zeros_like(call.inputs.v)
    inputs = of_forward(dout, call.inputs.q, call.inputs.k, none, call.options)
    truth, found = (
        Truth.of(inputs, call.options, "float16"),
        Call(inputs, call.options, "float16").run(),
    )
    assert np.isinf(truth.usual.dv).all() and complaints(found, truth) == []
    np.testing.assert_array_equal(found["dv"][0, :, 0], np.broadcast_to(signs * np.inf, (4, 64)))
    for value in (-np.inf, np.nan, 0.0, 30000.0):
        changed = found["dv"].copy()
        changed[0, 1, 0, 3] = value
        assert complaints({**found, "dv": changed}, truth), value


def test_a_probability_of_a_sink_below_the_normal_numbers() -> None:
    """It is 0, as every one, also where delta is 10^12 and the gradient a normal number."""
    call = normal(40, 20, sinks=True, softmax_scale=60.0)
    sinks = call.inputs.sinks
    assert sinks is not None
    sinks[...] = call.inputs.lse.min() - 92
    dout = (call.inputs.dout.astype(np.float32) * np.float32(2.0**60)).astype(call.inputs.q.dtype)
    inputs = of_forward(dout, call.inputs.q, call.inputs.k, call.inputs.v, call.options, sinks)
    small = Call(inputs, call.options, "bfloat16")
    best = Truth.of(inputs, call.options, "bfloat16").best.dsinks
    assert best is not None and abs(best[0]) > 2.0**-126 and not small.run()["dsinks"].any()
    small.check()


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_adversary_many_times(name: str) -> None:
    for _, _, call in sweep([name], 150, seed=2):
        call.check()


def test_rows_without_keys() -> None:
    """Their lse is -inf: whatever out and dout hold there, they have no gradient."""
    call = normal(60, 20, (2, 1), causal=True)
    assert np.isneginf(call.inputs.lse[0, :, :40]).all()
    call.inputs.o[0, :40] = np.nan
    call.inputs.dout[0, :40] = 3e38
    found = call.run()
    assert not found["dq"][0, :40].astype(np.float32).any()
    call.inputs.o[0, :40] = call.inputs.dout[0, :40] = 0
    call.check()
    for name, x in call.run().items():
        np.testing.assert_array_equal(found[name].view(np.uint8), x.view(np.uint8))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=str)
@pytest.mark.parametrize("operand", ["dout", "q", "k", "v"])
def test_what_is_not_finite(operand: str, value: float) -> None:
    """Without a mask: where float64 has no finite number, and nowhere else."""
    call = normal(20, 70, (4, 2), batch=2)
    getattr(call.inputs, operand)[1, 7, 1, 3] = value
    given = call.inputs
    with np.errstate(all="ignore"):
        inputs = of_forward(given.dout, given.q, given.k, given.v, call.options)
        best = gradients(inputs, call.options)
    for name, x in Call(inputs, call.options, "bfloat16").run().items():
        finite = np.isfinite(getattr(best, name))
        assert (name == "dv" and operand == "v") != (not finite.all()) and finite[0].all()
        np.testing.assert_array_equal(np.isfinite(x.astype(np.float32)), finite, name)


def test_finite_differences() -> None:
    """Of the float64 reference, which everything else is held against; of sinks, too."""
    call = normal(4, 5, (2, 1), (8, 8), sinks=True, softcap=2.0, window_size=(2, 1))
    sinks = call.inputs.sinks
    assert sinks is not None
    arrays = [x.astype(np.float64) for x in (call.inputs.q, call.inputs.k, call.inputs.v, sinks)]
    dout = call.inputs.dout.astype(np.float64)
    dlse = np.random.default_rng(3).standard_normal(call.inputs.lse.shape)

    def inputs() -> Inputs:
        q, k, v, sinks = arrays
        return of_forward(dout, q, k, v, call.options, sinks, exact=True, dlse=dlse)

    def value() -> float:
        one = inputs()
        return float((one.o * dout).sum() + np.where(np.isfinite(one.lse), one.lse * dlse, 0).sum())

    best = gradients(inputs(), call.options)
    for array, gradient in zip(arrays, (best.dq, best.dk, best.dv, best.dsinks), strict=True):
        assert gradient is not None
        for at in np.ndindex(array.shape):
            here = array[at]
            array[at] = here + 1e-5
            above = value()
            array[at] = here - 1e-5
            below = value()
            array[at] = here
            assert abs((above - below) / 2e-5 - gradient[at]) < 1e-7 * (1 + abs(gradient[at]))


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name, x in one.items():
        np.testing.assert_array_equal(x.view(np.uint8), other[name].view(np.uint8), name)


def test_the_same_bits_again() -> None:
    """Where one block has all keys, and of dk and dv always."""
    for call in (normal(70, 60, (4, 2), causal=True), normal(33, 190, dims=(64, 64))):
        same(call.run(), call.run())
    several = normal(70, 600, (2, 1), causal=True)
    first = several.run()
    for _ in range(3):
        again = several.run()
        same({name: first[name] for name in ("dk", "dv")}, again)


def findings(one: BackwardCase) -> list[str]:
    """Of checked mode, in schedules of all kinds."""
    log = FindingLog()
    for _ in run(OfOperation(OPERATION, one, 2), schedules(4), log):
        pass
    return [finding.kind for finding in log if finding.severity == ERROR]


# Of several blocks of keys, in the order of step_order.h and in the compiler's.
BLOCKS: tuple[dict[str, Any], ...] = (
    {"seqlen_kv": 800, "causal": True},
    {"seqlen_kv": 300, "head_dim": 192, "head_dim_v": 128},
    {"seqlen_kv": 250, "head_dim": 256, "window_size": (100, 30), "num_heads_q": 2},
)


@pytest.mark.parametrize("options", BLOCKS, ids=str)
def test_deterministic_bits(options: dict[str, Any]) -> None:
    """In whatever order workgroups run; as they come the bits of dq differ."""
    assert findings(case(seqlen_q=20, out_dtype="float32", deterministic=True, **options)) == []


def test_bits_differ_as_they_come() -> None:
    assert set(findings(case(seqlen_q=20, out_dtype="float32", **BLOCKS[1]))) == {ORDER}


def test_an_entry_of_a_batch_depends_on_no_other() -> None:
    call = normal(50, 60, (2, 1), batch=3, causal=True)
    whole = call.run()
    for b in range(3):
        fields = ("dout", "q", "k", "v", "o", "lse")
        part = Inputs(*(getattr(call.inputs, name)[b : b + 1] for name in fields))
        alone = Call(part, call.options, call.dtype).run()
        same({name: x[b : b + 1] for name, x in whole.items()}, alone)


def test_after_the_forward_kernel() -> None:
    """Its out and lse, on the device."""
    call = normal(130, 200, (4, 2), (128, 128), causal=True)
    q, k, v, dout = (
        amdattn.asarray(x) for x in (call.inputs.q, call.inputs.k, call.inputs.v, call.inputs.dout)
    )
    out, lse = amdattn.flash_attn_func(q, k, v, causal=True, return_lse=True)
    inputs = Inputs(
        call.inputs.dout, call.inputs.q, call.inputs.k, call.inputs.v, out.numpy(), lse.numpy()
    )
    of_host = Call(inputs, Options(causal=True), "bfloat16")
    of_host.check()
    found = amdattn.flash_attn_backward(dout, q, k, v, out, lse, causal=True)
    for one, x in zip(found[1:], list(of_host.run().values())[1:], strict=True):
        np.testing.assert_array_equal(one.numpy().view(np.uint16), x.view(np.uint16))
