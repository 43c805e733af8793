"""Gradients beside torch's autograd: a second reference that shares no code with the first one.

Of attention as torch ships it (`scaled_dot_product_attention`) where that has the options, and as
one writes it in a few lines of torch where it has not; in float64 and in float32. The bar is that
of the other tests, around torch's gradients: as wide as around the float64 ones in numpy.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from amdattn.ops.attention_backward.reference import Gradients, Inputs, Options
from tests.support.backward.bar import Truth, complaints
from tests.support.backward.calls import Call, normal

pytestmark = pytest.mark.oracles

SQUARE, SHORT, LONG = (130, 130), (70, 200), (200, 70)  # rows and keys
# Rows and keys, heads of q and k, columns, and options of torch's own attention.
SHIPPED: tuple[tuple[tuple[int, int], tuple[int, int], tuple[int, int], dict[str, Any]], ...] = (
    (SQUARE, (2, 2), (64, 64), {}),
    (SQUARE, (2, 2), (128, 128), {"causal": True}),
    ((520, 520), (2, 1), (128, 128), {"causal": True}),
    (SQUARE, (6, 2), (128, 128), {}),
    (SHORT, (4, 2), (128, 128), {}),
    (SHORT, (4, 2), (128, 128), {"causal": True}),
    (LONG, (4, 1), (64, 64), {"causal": True, "top_left": True}),
    (LONG, (4, 1), (64, 64), {}),
    (SQUARE, (2, 1), (192, 128), {"causal": True}),
    (SQUARE, (1, 1), (256, 256), {"causal": True}),
    (SQUARE, (2, 1), (72, 40), {"softmax_scale": -0.3}),
    (SQUARE, (2, 2), (128, 128), {"window_size": (20, 5)}),
    (SHORT, (4, 2), (128, 128), {"causal": True, "more": {"deterministic": True}}),
    (SHORT, (4, 2), (64, 64), {"causal": True, "more": {"out_dtype": "float32"}}),
    (SHORT, (4, 1), (128, 128), {"more": {"num_splits": 4}}),
)
# And of what it has not.
WRITTEN: tuple[tuple[tuple[int, int], tuple[int, int], tuple[int, int], dict[str, Any]], ...] = (
    (SQUARE, (2, 1), (64, 64), {"softcap": 3.0}),
    (SQUARE, (2, 1), (128, 128), {"softcap": 30.0, "causal": True}),
    (SHORT, (4, 2), (128, 128), {"softcap": 1.0, "causal": True}),
    (SQUARE, (2, 1), (256, 256), {"softcap": 5.0, "window_size": (30, 10)}),
    (LONG, (4, 2), (128, 128), {"causal": True}),  # rows without keys
    (SQUARE, (4, 2), (64, 64), {"sinks": True, "causal": True}),
    (LONG, (4, 2), (128, 128), {"sinks": True, "causal": True}),
    (SHORT, (2, 1), (128, 128), {"dlse": True}),
    (SHORT, (4, 2), (64, 64), {"dlse": True, "sinks": True, "softcap": 1.5}),
)


@pytest.fixture(params=["float64", "float32"])
def precision(request: pytest.FixtureRequest) -> Any:
    return getattr(pytest.importorskip("torch"), request.param)


def tensors(inputs: Inputs, precision: Any) -> list[Any]:
    """Of q, k and v, (batch, heads, rows, columns), and sinks, if there are any; leaves."""
    torch = pytest.importorskip("torch")
    given = [x.transpose(0, 2, 1, 3) for x in (inputs.q, inputs.k, inputs.v)]
    if inputs.sinks is not None:
        given.append(inputs.sinks)
    made = [torch.tensor(x.astype(np.float64), dtype=precision) for x in given]
    return [x.requires_grad_() for x in made]


def of_leaves(leaves: list[Any]) -> Gradients:
    q, k, v = (x.grad.double().numpy().transpose(0, 2, 1, 3) for x in leaves[:3])
    return Gradients(q, k, v, leaves[3].grad.double().numpy() if len(leaves) > 3 else None)


def shipped(inputs: Inputs, options: Options, precision: Any) -> Gradients:
    """Of torch's own attention."""
    torch = pytest.importorskip("torch")
    leaves = q, k, v = tensors(inputs, precision)
    rows, keys = q.shape[2], k.shape[2]
    is_causal = options.causal and (rows == keys or options.top_left)
    is_masked = options.window_size != (-1, -1) or options.causal
    mask = None if is_causal or not is_masked else torch.from_numpy(options.seen(rows, keys))
    out = torch.nn.functional.scaled_dot_product_attention(
        *(q, k, v, mask),
        is_causal=is_causal,
        scale=options.scale(q.shape[3]),
        enable_gqa=True,
    )
    dout = inputs.dout.astype(np.float64).transpose(0, 2, 1, 3)
    out.backward(torch.tensor(dout, dtype=precision))
    return of_leaves(leaves)


def written(inputs: Inputs, options: Options, precision: Any) -> Gradients:
    """Of a softmax whose columns are the keys and, if there is one, a sink."""
    torch = pytest.importorskip("torch")
    leaves = tensors(inputs, precision)
    q, k, v = leaves[:3]
    group = q.shape[1] // k.shape[1]
    keys, values = (x.repeat_interleave(group, 1) for x in (k, v))
    scores = q @ keys.transpose(2, 3) * options.scale(q.shape[3])
    if options.softcap:
        scores = options.softcap * torch.tanh(scores / options.softcap)
    sees = torch.from_numpy(options.seen(*scores.shape[2:]))
    scores = scores.masked_fill(~sees, float("-inf"))
    if len(leaves) > 3:
        sinks = leaves[3][None, :, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, sinks], 3)
    else:  # rows without keys: they have no gradient, whatever stands there
        scores = torch.where(sees.any(1)[:, None], scores, torch.zeros_like(scores))
    weights = torch.softmax(scores, 3)[..., : keys.shape[2]] * sees
    out, lse = weights @ values, torch.logsumexp(scores, 3)
    dout = torch.tensor(inputs.dout.astype(np.float64).transpose(0, 2, 1, 3), dtype=precision)
    loss = (out * dout).sum()
    if inputs.dlse is not None:
        loss = loss + (lse * torch.tensor(inputs.dlse.astype(np.float64), dtype=precision)).sum()
    loss.backward()
    return of_leaves(leaves)


def around(other: Gradients, truth: Truth) -> Truth:
    """The bar moved to other gradients: plain is as far off these as it is off `truth.best`."""

    def moved(name: str) -> Any:
        x, best, usual = (getattr(of, name) for of in (other, truth.best, truth.usual))
        return None if best is None else x + (usual.astype(np.float64) - best)

    usual = Gradients(*(moved(field.name) for field in dataclasses.fields(Gradients)))
    return dataclasses.replace(truth, best=other, usual=usual)


def check(call: Call, found: Gradients, of_float64: bool) -> None:
    """Ours beside torch's, and in float64 both references beside each other."""
    truth = Truth.of(call.inputs, call.options, call.dtype)
    wrong = complaints(call.run(), around(found, truth))
    assert not wrong, f"{call}: {wrong}"
    if of_float64:
        for name, x in dataclasses.asdict(truth.best).items():
            if x is not None:
                np.testing.assert_allclose(getattr(found, name), x, 1e-9, 1e-11, err_msg=name)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("lengths", "heads", "dims", "options"), SHIPPED, ids=str)
def test_torchs_attention(
    precision: Any, dtype: str, lengths: Any, heads: Any, dims: Any, options: dict[str, Any]
) -> None:
    call = normal(*lengths, heads, dims, dtype=dtype, **options)
    found = shipped(call.inputs, call.options, precision)
    check(call, found, precision.itemsize == 8)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("lengths", "heads", "dims", "options"), WRITTEN, ids=str)
def test_attention_written_in_torch(
    precision: Any, dtype: str, lengths: Any, heads: Any, dims: Any, options: dict[str, Any]
) -> None:
    call = normal(*lengths, heads, dims, dtype=dtype, **options)
    found = written(call.inputs, call.options, precision)
    check(call, found, precision.itemsize == 8)


@pytest.mark.parametrize("changed", [{"top_left": True}, {"softmax_scale": 0.126}], ids=str)
def test_gradients_of_something_else_are_told(changed: dict[str, Any]) -> None:
    """By a mask that is aligned elsewhere, or a scale that is off by less than a hundredth."""
    call = normal(*SHORT, (2, 1), (64, 64), causal=True)
    torch = pytest.importorskip("torch")
    other = shipped(call.inputs, dataclasses.replace(call.options, **changed), torch.float64)
    truth = Truth.of(call.inputs, call.options, call.dtype)
    assert complaints(call.run(), around(other, truth))
