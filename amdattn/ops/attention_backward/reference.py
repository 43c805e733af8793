"""Reference gradients of attention in numpy: float64, and a plain pipeline to compare errors with.

Both use the layout (batch, seqlen, num_heads, head_dim) and loop over heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn.ops.attention import reference as forward
from amdattn.ops.attention.reference import seen

Array = NDArray[Any]
_OF_SUMS = 2.0**-24  # relative error of a float32 sum, per term
_OF_EXPONENTIALS = 2.0**-20
_LEAST_NORMAL, _FAR = 2.0**-126, 2.0**127  # smaller exponentials are 0; larger sums may overflow
_LOST = 2.0**-4  # error of a score in nats beyond which nothing is left of its probability


@dataclass(frozen=True, slots=True)
class Options:
    """Arguments of the forward, as in `flash_attn_func`."""

    softmax_scale: float | None = None
    causal: bool = False
    window_size: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    top_left: bool = False

    def scale(self, head_dim: int) -> float:
        """The factor of the scores."""
        return 1 / math.sqrt(head_dim) if self.softmax_scale is None else self.softmax_scale

    def seen(self, rows: int, keys: int) -> NDArray[np.bool_]:
        """The mask of the keys that each row sees: (rows, keys)."""
        first = 0 if self.top_left else keys - rows
        return seen(
            first, rows, keys, (self.window_size[0], 0 if self.causal else self.window_size[1])
        )


@dataclass(frozen=True, slots=True)
class Gradients:
    """Gradients of q, k, v and sinks, or their allowed errors."""

    dq: Array
    dk: Array
    dv: Array
    dsinks: Array | None = None


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs of a backward call; o and lse are results of the forward."""

    dout: Array
    q: Array
    k: Array
    v: Array
    o: Array
    lse: Array
    sinks: Array | None = None
    dlse: Array | None = None


def of_forward(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    options: Options,
    sinks: Array | None = None,
    *,
    exact: bool = False,
    dlse: Array | None = None,
) -> Inputs:
    """Inputs with o and lse computed in float64; rounded as by a forward kernel unless `exact`."""
    if k.shape[1] == 0:  # no row sees a key
        o = np.zeros((*q.shape[:3], v.shape[-1]))
        lse = np.full((q.shape[0], q.shape[2], q.shape[1]), -np.inf)
        if sinks is not None:
            lse[...] = sinks[:, None]
    else:
        with np.errstate(invalid="ignore"):
            o, lse = forward.attention(
                *(q.astype(np.float64), k.astype(np.float64), v.astype(np.float64)),
                options.softmax_scale,
                causal=options.causal,
                window_size=options.window_size,
                sinks=sinks,
                softcap=options.softcap,
                top_left=options.top_left,
            )
    if not exact:
        with np.errstate(over="ignore"):
            rounded = o.astype(q.dtype), lse.astype(np.float32)
        return Inputs(dout, q, k, v, *rounded, sinks, dlse)
    return Inputs(dout, q, k, v, o, lse, sinks, dlse)


def gradients(inputs: Inputs, options: Options) -> Gradients:
    """Gradients in float64 from the given o and lse. Those of rows without keys are 0."""
    return _sums(inputs, options, np.float64, lambda x: x)


def gradients_rounded(inputs: Inputs, options: Options) -> Gradients:
    """Gradients in float32, with P, dS and the results rounded to the type of q.

    A plain pipeline of 16-bit products with float32 sums computes them: an error of this size is
    due to the format, not to a kernel.
    """
    element = inputs.q.dtype

    def rounded(x: Array) -> Array:
        with np.errstate(over="ignore"):
            return x.astype(element).astype(np.float32)

    found = _sums(inputs, options, np.float32, rounded)
    return Gradients(rounded(found.dq), rounded(found.dk), rounded(found.dv), found.dsinks)


def spreads(inputs: Inputs, options: Options) -> Gradients:
    """For each element, the root of the sum of squares of the products that it sums.

    P, dS and o count as normal numbers of the type of q; the rounding of o contributes to dS.
    """
    found, dsinks = _zeros(inputs)
    least = 2.0**-14 if inputs.q.dtype == np.float16 else _LEAST_NORMAL
    scale = options.scale(inputs.q.shape[-1])
    with np.errstate(invalid="ignore", over="ignore"):
        for b, h, kv in _heads(inputs.q, inputs.k):
            one = _Head.of(inputs, options, np.float64, b, h, kv)
            weighs = one.p > 0
            of_scores = (_at_least(one.ds(), least, weighs) * scale) ** 2
            found.dv[b, :, kv] += (_at_least(one.p, least, weighs) ** 2).T @ one.dout**2
            o = _at_least(one.o, least, one.o != 0)
            of_delta = ((one.dout * o) ** 2).sum(1, keepdims=True)
            of_o = (one.p * scale) ** 2 * of_delta
            found.dk[b, :, kv] += (of_scores + of_o).T @ one.q**2
            found.dq[b, :, h] = of_scores @ one.k**2 + (one.p @ one.k * scale) ** 2 * of_delta
            if dsinks is not None:
                dsinks[h] += (one.p_of_sink() ** 2 * of_delta).sum()
        roots = [np.sqrt(x) for x in (found.dq, found.dk, found.dv)]
        of_sinks = None if dsinks is None else np.sqrt(dsinks)
    return Gradients(roots[0], roots[1], roots[2], of_sinks)


def float32_errors(inputs: Inputs, options: Options) -> Gradients:
    """The error of each element that float32 scores, lse, dP and delta cause.

    The error of a probability is the spacing of float32 at its score and at lse; that of dP - delta
    is the spacing at the sums of their absolute products. It is infinite in rows whose scores are
    so far from 0 that nothing is left of a probability, and where sums may overflow.
    """
    found, dsinks = _zeros(inputs)
    scale = options.scale(inputs.q.shape[-1])
    with np.errstate(invalid="ignore", over="ignore"):
        for b, h, kv in _heads(inputs.q, inputs.k):
            one = _Head.of(inputs, options, np.float64, b, h, kv)
            dout, queries, keys, values = (np.abs(x) for x in (one.dout, one.q, one.k, one.v))
            far = np.abs(np.where(one.seen, one.scores, 0)) + queries @ keys.T * abs(scale) / 4
            far = far + np.where(np.isfinite(one.lse), np.abs(one.lse), 0)
            of_p = _OF_SUMS * np.where(one.seen, far, 0)
            of_p = np.where(of_p.max(1, keepdims=True, initial=0) > _LOST, np.inf, one.p * of_p)
            of_p = np.where(one.seen, of_p + _LEAST_NORMAL, 0)
            of_delta = (dout * np.abs(one.o)).sum(1, keepdims=True) + np.abs(one.dlse)
            of_ds = np.where(one.p > 0, of_p * np.abs(one.dp() - one.delta()), 0)
            of_ds += np.where(of_p == np.inf, np.inf, 0)
            of_ds += np.where(one.seen, _LEAST_NORMAL, 0)
            of_ds += 4 * _OF_SUMS * one.p * (dout @ values.T + of_delta)
            size = dout @ values.T + of_delta  # sums of it may overflow in some order
            of_ds = np.where(size < _FAR, of_ds, np.inf)
            sums = one.p * size
            found.dv[b, :, kv] += _unless_far(of_p.T @ dout, one.p.T @ dout)
            found.dk[b, :, kv] += _unless_far(abs(scale) * (of_ds.T @ queries), sums.T @ queries)
            found.dq[b, :, h] = _unless_far(abs(scale) * (of_ds @ keys), sums @ keys)
            if dsinks is not None:
                of_sink = _OF_SUMS * (1 + abs(one.sink) + np.abs(one.lse)) * of_delta
                of_sink = _unless_far(of_sink, of_delta)
                weight, least = one.p_of_sink(), _LEAST_NORMAL * np.abs(one.delta())
                dsinks[h] += np.where(weight > 0, weight * of_sink + least, 0).sum()
    return Gradients(found.dq, found.dk, found.dv, dsinks)


def tolerances(inputs: Inputs, options: Options, results: Gradients) -> Gradients:
    """The allowed error of each element: a rounding of P, dS and results, and float32 errors.

    Parameters
    ----------
    inputs : Inputs
    options : Options
    results : Gradients
        Gradients in float64.
    """
    q, k, v = inputs.q, inputs.k, inputs.v
    is_half = q.dtype == np.float16
    rounding, least = (2.0**-11, 2.0**-25) if is_half else (2.0**-8, 2.0**-126)
    dim, dim_v = q.shape[-1], v.shape[-1]
    scale = abs(options.scale(dim))
    reach = _longest(q) * _longest(k) * scale + 4 * options.softcap
    of_p = _OF_EXPONENTIALS * (1 + reach)
    found, dsinks = _zeros(inputs)
    for b, h, kv in _heads(q, k):
        one = _Head.of(inputs, options, np.float64, b, h, kv)
        p, ds = one.p, np.abs(one.ds())
        dout, queries, keys, values = (np.abs(x) for x in (one.dout, one.q, one.k, one.v))
        of_delta = (dout * np.abs(one.o)).sum(1, keepdims=True) + np.abs(one.dlse)
        of_dp = (dim_v * _OF_SUMS + _OF_EXPONENTIALS) * (dout @ values.T + of_delta)
        of_ds = ds * (rounding + of_p) + p * of_dp + least
        of_rounded_p = p * (rounding + of_p) + least
        found.dv[b, :, kv] += of_rounded_p.T @ dout
        found.dk[b, :, kv] += scale * (of_ds.T @ queries)
        found.dq[b, :, h] = scale * (of_ds @ keys)
        if dsinks is not None:
            of_sink = (dim_v * _OF_SUMS + 2 * of_p) * of_delta
            dsinks[h] += (one.p_of_sink() * of_sink).sum()
    rounded = [
        allowed + (rounding * 2 + _OF_EXPONENTIALS) * np.abs(result) + 4 * least
        for allowed, result in (
            (found.dq, results.dq),
            (found.dk, results.dk),
            (found.dv, results.dv),
        )
    ]
    return Gradients(rounded[0], rounded[1], rounded[2], dsinks)


# -- one head --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Head:
    """A head of q, and the head of k and v that it reads."""

    dout: Array
    q: Array
    k: Array
    v: Array
    o: Array
    lse: Array
    dlse: Array
    seen: NDArray[np.bool_]
    scores: Array
    p: Array
    slope: Array | float  # of the softcap
    sink: float

    @staticmethod
    def of(
        inputs: Inputs, options: Options, dtype: type[np.floating[Any]], b: int, h: int, kv: int
    ) -> _Head:
        dout, q, o = (x[b, :, h].astype(dtype) for x in (inputs.dout, inputs.q, inputs.o))
        k, v = (x[b, :, kv].astype(dtype) for x in (inputs.k, inputs.v))
        lse = inputs.lse[b, h].astype(dtype)[:, None]
        dlse = np.zeros_like(lse) if inputs.dlse is None else inputs.dlse[b, h, :, None]
        sees = options.seen(len(q), len(k))
        with np.errstate(invalid="ignore", over="ignore"):
            scores = q @ k.T * dtype(options.scale(q.shape[-1]))
            slope: Array | float = 1.0
            if options.softcap:
                of_cap = np.tanh(scores / dtype(options.softcap))
                scores, slope = dtype(options.softcap) * of_cap, 1 - of_cap * of_cap
            none = lse == -np.inf
            p = np.where(sees & ~none, np.exp(scores - np.where(none, 0, lse)), 0)
        sink = -np.inf if inputs.sinks is None else float(inputs.sinks[h])
        return _Head(
            dout, q, k, v, o, lse, dlse.astype(dtype), sees & ~none, scores, p, slope, sink
        )

    def delta(self) -> Array:
        """The delta that is subtracted from dP, (rows, 1)."""
        products: Array = self.dout * self.o
        found: Array = products.sum(1, keepdims=True, dtype=self.dout.dtype) - self.dlse
        return found

    def dp(self) -> Array:
        """The gradient of p."""
        found: Array = self.dout @ self.v.T
        return found

    def ds(self) -> Array:
        """The gradient of the scores, before their scale is applied."""
        with np.errstate(invalid="ignore", over="ignore"):
            of_scores = self.p * (self.dp() - self.delta()) * self.slope
        found: Array = np.where(self.seen, of_scores, 0)
        return found

    def p_of_sink(self) -> Array:
        """The probability of the sink in each row, (rows, 1)."""
        none = self.lse == -np.inf
        found: Array = np.where(none, 0, np.exp(self.sink - np.where(none, 0, self.lse)))
        return found


def _unless_far(error: Array, size: Array) -> Array:
    """The error, or infinity where sums of numbers of this size may overflow."""
    return np.where(size < _FAR, error, np.inf)


def _at_least(x: Array, least: float, which: NDArray[np.bool_]) -> Array:
    return np.where(which, np.maximum(np.abs(x), least), 0)


def _zeros(inputs: Inputs) -> tuple[Gradients, Array | None]:
    """Zeros in the shapes of the gradients; those of sinks are summed separately."""
    zeros = [np.zeros(x.shape) for x in (inputs.q, inputs.k, inputs.v)]
    dsinks = None if inputs.sinks is None else np.zeros(inputs.q.shape[2])
    return Gradients(zeros[0], zeros[1], zeros[2]), dsinks


def _sums(
    inputs: Inputs,
    options: Options,
    dtype: type[np.floating[Any]],
    rounded: Callable[[Array], Array],
) -> Gradients:
    q, k = inputs.q, inputs.k
    zeros = [np.zeros(x.shape, dtype) for x in (q, k, inputs.v)]
    found = Gradients(zeros[0], zeros[1], zeros[2])
    scale = dtype(options.scale(q.shape[-1]))
    dsinks = None if inputs.sinks is None else np.zeros(q.shape[2], dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        for b, h, kv in _heads(q, k):
            one = _Head.of(inputs, options, dtype, b, h, kv)
            ds = rounded(one.ds())
            found.dv[b, :, kv] += rounded(one.p).T @ one.dout
            found.dk[b, :, kv] += ds.T @ one.q * scale
            found.dq[b, :, h] = ds @ one.k * scale
            if dsinks is not None:
                dsinks[h] -= (one.p_of_sink() * one.delta()).sum()
    return Gradients(found.dq, found.dk, found.dv, dsinks)


def _heads(q: Array, k: Array) -> Iterator[tuple[int, int, int]]:
    """Batch entry, head of q, head of k."""
    group = q.shape[2] // k.shape[2]
    for b in range(q.shape[0]):
        for h in range(q.shape[2]):
            yield b, h, h // group


def _longest(x: Array) -> float:
    """The greatest length of a row of finite numbers."""
    with np.errstate(invalid="ignore", over="ignore"):
        lengths = np.linalg.norm(x.astype(np.float64), axis=-1)
    return float(lengths[np.isfinite(lengths)].max(initial=0.0))
