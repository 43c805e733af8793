"""The draw in float64: the generator, the tokens that may be drawn, the noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn.ops.sample.problem import SampleProblem

_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_WORD = np.uint64(0xFFFFFFFF)


def philox(counter: NDArray[np.uint64], key: tuple[int, int]) -> NDArray[np.uint64]:
    """Philox4x32-10 for counters (..., 4) of 32 bits each."""
    c0, c1, c2, c3 = (counter[..., i] & _WORD for i in range(4))
    k0, k1 = (np.uint64(word) for word in key)
    for _ in range(10):
        x, y = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (y >> np.uint64(32)) ^ c1 ^ k0,
            y & _WORD,
            (x >> np.uint64(32)) ^ c3 ^ k1,
            x & _WORD,
        )
        k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
    return np.stack([c0, c1, c2, c3], -1)


def noise(seed: int, offset: int, columns: int) -> NDArray[np.float64]:
    """Gumbel noise for each column, in base 2."""
    blocks = -(-columns // 4)
    counter = np.zeros((blocks, 4), np.uint64)
    counter[:, 0] = np.arange(blocks)
    counter[:, 2], counter[:, 3] = offset & 0xFFFFFFFF, offset >> 32 & 0xFFFFFFFF
    words = philox(counter, (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)).reshape(-1)[:columns]
    rest = (words.astype(np.float32) + np.float32(0.5)).astype(np.float64) * 2.0**-32
    found: NDArray[np.float64] = -np.log2(-np.log2(1 - np.minimum(rest, 1 - 2.0**-33)))
    return found


def penalised(
    problem: SampleProblem, logits: NDArray[Any], tokens: NDArray[Any] | None
) -> NDArray[np.float64]:
    """The penalised logits of one row; NaN counts as less than all."""
    x = logits.astype(np.float64)
    if tokens is not None:
        seen = np.unique(tokens[(tokens >= 0) & (tokens < len(x))])
        factor = np.where(x[seen] < 0, problem.repetition_penalty, 1 / problem.repetition_penalty)
        x[seen] *= factor
    return np.where(np.isnan(x), -np.inf, x)


def allowed(problem: SampleProblem, x: NDArray[np.float64]) -> NDArray[np.bool_]:
    """A mask of the columns of a row that may be drawn."""
    log = (x - x.max()) * problem.scale
    may: NDArray[np.bool_] = x > -np.inf
    if 0 < problem.top_k < len(x):
        may &= x >= np.sort(x)[-problem.top_k]
    if problem.top_p < 1:
        p = np.where(may, np.exp2(log), 0)
        order = np.argsort(-x, kind="stable")
        before = np.cumsum(p[order])
        last = int(np.searchsorted(before, problem.top_p * before[-1]))
        may &= x >= x[order[min(last, len(x) - 1)]]
    found: NDArray[np.bool_] = may & (log >= problem.log_min_p)
    return found


def drawn(problem: SampleProblem, inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.int32]:
    """The token of every row."""
    found = np.empty(problem.rows, np.int32)
    for row, logits in enumerate(inputs["logits"]):
        x = penalised(problem, logits, inputs["tokens"][row] if "tokens" in inputs else None)
        if not (x > -np.inf).any():
            found[row] = -1
        elif not problem.draws or x.max() == np.inf:
            found[row] = x.argmax()
        else:
            seed, offset = (int(x) for x in inputs["state"][row].view(np.int64))
            log = (x - x.max()) * problem.scale
            score = log + noise(seed % 2**64, offset % 2**64, len(x))
            found[row] = np.where(allowed(problem, x), score, -np.inf).argmax()
    return found
