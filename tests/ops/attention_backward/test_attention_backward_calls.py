"""`amdattn.flash_attn_backward` as users call it: places, strides, sequences, what is written."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.device import runtime
from amdattn.errors import UnsupportedProblem
from amdattn.op.comparison import judge
from amdattn.ops.attention_backward.cases import case, expected as expected_of
from tests.support.backward.calls import Call, normal

BF16 = ml_dtypes.bfloat16
TENSORS = ("dout", "q", "k", "v", "o", "lse")
RESULTS = ("dq", "dk", "dv")


def arrays(call: Call) -> list[Any]:
    return [getattr(call.inputs, name) for name in TENSORS]


def on_host(x: Any) -> Any:
    return x.numpy() if isinstance(x, amdattn.DeviceArray) else x


def same(one: Any, other: Any) -> None:
    np.testing.assert_array_equal(
        *(np.ascontiguousarray(on_host(x)).view(np.uint8) for x in (one, other))
    )


def with_gaps(x: Any, axis: int) -> Any:
    """The same on the device, every second entry of an axis of a larger array of NaN."""
    shape = [2 * n if i == axis else n for i, n in enumerate(x.shape)]
    whole = np.full(shape, np.nan, x.dtype)
    every = tuple(slice(None, None, 2) if i == axis else slice(None) for i in range(x.ndim))
    whole[every] = x
    return amdattn.asarray(whole)[every]


def test_on_the_device_as_on_the_host() -> None:
    call = normal(40, 60, (4, 2), batch=2, causal=True, sinks=True, dlse=True)
    of_host = call.run()
    given = [amdattn.asarray(x) for x in arrays(call)]
    sinks, dlse = amdattn.asarray(call.inputs.sinks), amdattn.asarray(call.inputs.dlse)
    found = amdattn.flash_attn_backward(*given, causal=True, sinks=sinks, dlse=dlse)
    assert all(isinstance(x, amdattn.DeviceArray) for x in found)
    for x, y in zip(found, of_host.values(), strict=True):
        same(x, y)


def test_bhsd() -> None:
    call = normal(40, 60, (4, 2), batch=2, causal=True)
    swapped = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in arrays(call)[:5]]
    lse = call.inputs.lse
    for give in (lambda x: x, amdattn.asarray):
        found = amdattn.flash_attn_backward(
            *map(give, swapped), give(lse), causal=True, layout="bhsd"
        )
        for x, y in zip(found, call.run().values(), strict=True):
            same(on_host(x).swapaxes(1, 2), y)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("out_dtype", [None, "float32"])
def test_strides_and_given_results(axis: int, out_dtype: Any) -> None:
    """Every operand between NaNs, which stay; results may hold anything before."""
    call = normal(20, 60, (4, 2), batch=2, more={"out_dtype": out_dtype})
    usual = call.run()
    given = [with_gaps(x, axis) for x in arrays(call)[:5]]
    dtype = np.float32 if out_dtype else BF16
    results = {name: with_gaps(np.full(usual[name].shape, np.nan, dtype), axis) for name in RESULTS}
    found = amdattn.flash_attn_backward(
        *given, with_gaps(call.inputs.lse, min(axis, 1)), out_dtype=out_dtype, **results
    )
    amdattn.synchronize()
    for name, x in zip(RESULTS, found, strict=True):
        assert x is results[name]
        same(x, usual[name])


def test_guard_zones_and_old_workspaces() -> None:
    """Rows before and behind stay, whatever memory held before."""
    call = normal(17, 65, (2, 1), causal=True)
    usual = call.run()
    for fill in (0x00, 0xFF, 0x5A):
        results: dict[str, Any] = {}
        for name in RESULTS:
            x = usual[name]
            rows = np.full((3 * x.shape[1], *x.shape[2:]), 0, x.dtype)
            rows.view(np.uint8)[...] = fill
            results[name] = amdattn.asarray(rows)
        plan = amdattn.plan_attention_backward(1, 17, 65, 2, 1, 64, causal=True, device="MI300X")
        workspace = plan.new_workspace()
        dirty = np.full(workspace.nbytes, fill, np.uint8)
        runtime.get().upload(workspace.address, dirty.ctypes.data, dirty.nbytes, 0)
        views = {
            name: results[name][usual[name].shape[1] : 2 * usual[name].shape[1]].reshape(
                usual[name].shape
            )
            for name in RESULTS
        }
        if plan.props.arch == amdattn.device_props().arch:
            plan.run(*map(amdattn.asarray, arrays(call)), **views, workspace=workspace)
        else:
            amdattn.flash_attn_backward(*map(amdattn.asarray, arrays(call)), causal=True, **views)
        for name in RESULTS:
            n, held = usual[name].shape[1], results[name].numpy()
            same(held[n : 2 * n], usual[name][0])
            assert (held[:n].view(np.uint8) == fill).all()
            assert (held[2 * n :].view(np.uint8) == fill).all()


LENGTHS = (
    ((30, 70), (0, 9), (66, 5), (3, 0), (1, 1)),
    ((5, 300), (40, 40)),
)


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("where", ["host", "list", "device", "int64"])
def test_sequences_of_several_lengths(lengths: Any, where: str) -> None:
    one = case(num_heads_q=4, num_heads_kv=2, lengths=lengths, causal=True, sinks=True)
    inputs = one.inputs(3)
    sums: list[Any] = [inputs.pop("cu_seqlens_q"), inputs.pop("cu_seqlens_kv")]
    sinks = inputs.pop("sinks")
    given: list[Any] = list(inputs.values())
    if where == "list":
        sums = [x.tolist() for x in sums]
    elif where == "int64":
        sums = [x.astype(np.int64) for x in sums]
    elif where == "device":
        given, sums = ([amdattn.asarray(x) for x in of] for of in (given, sums))
    p = one.problem.forward
    found = amdattn.flash_attn_varlen_backward(
        *given, *sums, p.seqlen_q, p.seqlen_kv, causal=True, sinks=sinks
    )
    for name, must in expected_of(one, one.inputs(3)).items():
        x = found[("dq", "dk", "dv", "dsinks").index(name)]
        assert judge(
            np.asarray(x if where != "device" else x.numpy()), must.values, must.tolerance, 0.0
        )


def test_rows_of_no_sequence_stay() -> None:
    one = case(num_heads_q=2, lengths=((30, 70), (20, 9)))
    inputs = one.inputs(3)
    more = {name: np.concatenate([inputs[name], inputs[name][:7]]) for name in TENSORS[:5]}
    lse = np.concatenate([inputs["lse"], inputs["lse"][:, :7]], axis=1)
    sums = inputs["cu_seqlens_q"], inputs["cu_seqlens_kv"]
    usual = amdattn.flash_attn_varlen_backward(*(inputs[name] for name in TENSORS), *sums, 30, 70)
    for give in (lambda x: x.copy(), amdattn.asarray):
        results = {
            name: give(np.full(more[of].shape, 7, BF16))
            for name, of in zip(RESULTS, ("q", "k", "v"), strict=True)
        }
        amdattn.flash_attn_varlen_backward(
            *(give(more[name]) for name in TENSORS[:5]),
            *(give(lse), *map(give, sums), 30, 70),
            **results,
        )
        for x, of_usual in zip(results.values(), usual, strict=True):
            held = on_host(x)
            same(held[:-7], of_usual)
            assert (held[-7:].astype(np.float32) == 7).all()


@pytest.mark.parametrize(("rows", "keys", "batch"), [(0, 5, 2), (5, 0, 2), (0, 0, 1), (5, 5, 0)])
def test_nothing(rows: int, keys: int, batch: int) -> None:
    """Gradients without elements, or of what nobody sees: 0."""
    q, k = np.ones((batch, rows, 4, 64), BF16), np.ones((batch, keys, 2, 64), BF16)
    lse = np.full((batch, 4, rows), -np.inf, np.float32)
    for give in (lambda x: x, amdattn.asarray):
        given = [give(x) for x in (q, q, k, k, q, lse)]
        for x, of in zip(amdattn.flash_attn_backward(*given), (q, k, k), strict=True):
            assert (
                x.shape == of.shape
                and not np.asarray(x if give is not amdattn.asarray else x.numpy())
                .astype(np.float32)
                .any()
            )
    if batch and keys:
        dk = np.ones(k.shape, BF16)
        found = amdattn.flash_attn_backward(q, q, k, k, q, lse, dk=dk)
        assert found[1] is dk and not dk.astype(np.float32).any()


def test_no_sequences() -> None:
    x, lse = np.ones((0, 2, 64), BF16), np.ones((2, 0), np.float32)
    found = amdattn.flash_attn_varlen_backward(x, x, x, x, x, lse, [0], [0], 0, 0)
    assert [one.shape for one in found] == [x.shape] * 3


def test_checked() -> None:
    """No finding in checked mode: atomics, LDS, what is read of workspaces and of rows behind."""
    with amdattn.virtual.check():
        normal(37, 70, (2, 1), causal=True, sinks=True, dlse=True).run()
        normal(17, 20, dims=(72, 40), softcap=2.0, more={"out_dtype": "float32"}).run()


Q = np.ones((1, 16, 2, 64), BF16)
LSE = np.ones((1, 2, 16), np.float32)


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        ({"dropout_p": 0.1}, UnsupportedProblem, "dropout_p=0.1 is not built"),
        ({"alibi_slopes": LSE}, UnsupportedProblem, "alibi_slopes is not built"),
        ({"softcap": 3000.0}, UnsupportedProblem, "softcap=3000.0 is not built"),
        ({"out_dtype": "float16"}, ValueError, "out_dtype=float16 must be bfloat16"),
        ({"deterministic": 1}, TypeError, "deterministic=1 must be a bool"),
        ({"layout": "x"}, ValueError, "layout='x' must be one of"),
        ({"dq": np.zeros(Q.shape, np.float32)}, ValueError, "dq has dtype float32"),
        ({"dq": Q}, ValueError, "dq overlaps q in memory"),
        (
            {"dsinks": LSE[0, :, 0].copy()},
            ValueError,
            "dsinks was given, but the plan has sinks=False",
        ),
        ({"lse": LSE[:, :1]}, ValueError, "lse has shape"),
        ({"out": Q.astype(np.float16)}, ValueError, "out has dtype float16"),
        ({"dout": Q[:, :15]}, ValueError, "dout has shape"),
    ],
    ids=str,
)
def test_mistakes(change: dict[str, Any], error: Any, told: str) -> None:
    given: dict[str, Any] = {
        "dout": Q.copy(),
        "q": Q,
        "k": Q,
        "v": Q,
        "out": Q,
        "lse": LSE,
    } | change
    with pytest.raises(error, match=told):
        amdattn.flash_attn_backward(**given)
