"""Normalised rows in float64: the dropout mask, the sum and the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn.ops.layer_norm.problem import LayerNormProblem
from amdattn.ops.sample.reference import philox

_OF_CALL = 8  # columns of a counter


def kept(problem: LayerNormProblem, state: NDArray[np.int32]) -> NDArray[np.bool_]:
    """A mask of the elements of x that stay, (rows, columns)."""
    seed, offset = (int(x) % 2**64 for x in state.view(np.int64))
    rows, blocks = problem.rows, -(-problem.columns // _OF_CALL)
    counter = np.zeros((rows, blocks, 4), np.uint64)
    counter[..., 0] = np.arange(blocks)
    counter[..., 1] = np.arange(rows)[:, None]
    counter[..., 2], counter[..., 3] = offset & 0xFFFFFFFF, offset >> 32
    words = philox(counter, (seed & 0xFFFFFFFF, seed >> 32))
    halves = np.stack([words & np.uint64(0xFFFF), words >> np.uint64(16)], -1)
    of_rows = halves.reshape(rows, -1)[:, : problem.columns]
    found: NDArray[np.bool_] = of_rows >= problem.threshold
    return found


def dropped(problem: LayerNormProblem, inputs: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """The rows that are normalised, in the type of x."""
    x = inputs["x"]
    if not problem.draws and not problem.residual:
        return x
    h = x.astype(np.float32)
    if problem.draws:
        stays = kept(problem, inputs["state"]).reshape(x.shape)
        h = np.where(stays, h, np.float32(0)) * np.float32(problem.kept)
    if problem.residual:
        h = h + inputs["residual"].astype(np.float32)
    found: NDArray[Any] = h.astype(x.dtype)
    return found


def normalised(
    problem: LayerNormProblem, h: NDArray[Any], inputs: Mapping[str, NDArray[Any]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The result before it is rounded, and the magnitude that float32 errors are relative to."""
    rows = h.astype(np.float64)
    mean = np.float64(0) if problem.rms else rows.mean(-1, keepdims=True)
    apart = rows - mean
    variance = (apart**2).mean(-1, keepdims=True)
    scale = 1 / np.sqrt(variance + np.float64(np.float32(problem.eps)))
    weight = inputs["weight"].astype(np.float64)
    bias = inputs["bias"].astype(np.float64) if problem.bias else np.float64(0)
    y = apart * scale * weight
    # Differences, like means, are exact to 2^-24 of the row's greatest difference.
    most = np.abs(apart).max(-1, keepdims=True) + 2.0**-22 * np.abs(mean)
    size = (np.abs(apart) + most / 8) * scale * np.abs(weight) + np.abs(bias)
    return y + bias, size
