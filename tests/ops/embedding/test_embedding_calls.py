"""`amdattn.embedding` as users call it: shapes, strides, kinds of indices, refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.errors import UnsupportedProblem

TABLE = np.random.default_rng(0).standard_normal((9, 33), np.float32).astype(ml_dtypes.bfloat16)


def same(found: Any, must: Any) -> None:
    got = found.numpy() if isinstance(found, amdattn.DeviceArray) else found
    assert got.dtype == must.dtype
    np.testing.assert_array_equal(got, must)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("shape", [(1,), (5,), (2, 3), (2, 1, 4)])
def test_any_shape_on_the_host_and_on_the_device(shape: tuple[int, ...], dtype: Any) -> None:
    indices = np.random.default_rng(1).integers(0, 9, shape, dtype)
    same(amdattn.embedding(TABLE, indices), TABLE[indices])
    table = amdattn.asarray(TABLE)
    for given in (indices, amdattn.asarray(indices), indices.tolist()):
        same(amdattn.embedding(table, given), TABLE[indices])


def test_strides() -> None:
    indices, table = [8, 0, 3], amdattn.asarray(TABLE)
    same(amdattn.embedding(TABLE[::-1, ::2], indices[1:]), TABLE[::-1, ::2][indices[1:]])
    same(amdattn.embedding(table[::-1, 3:20], indices), TABLE[::-1, 3:20][indices])
    held = amdattn.asarray(np.zeros((3, 50), TABLE.dtype))
    amdattn.embedding(table, indices, out=held[:, 9:42])
    same(held[:, 9:42], TABLE[indices])
    every_other = amdattn.asarray(np.array([8, 9, 0, 9, 3], np.int32))[::2]
    same(amdattn.embedding(table, every_other), TABLE[indices])


def test_nothing() -> None:
    assert amdattn.embedding(TABLE, np.zeros((0, 3), np.int32)).shape == (0, 3, 33)
    assert amdattn.embedding(TABLE[:, :0], [1, 2]).shape == (2, 0)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: amdattn.embedding(TABLE[0], [0]), ValueError, "must have 2 dimensions"),
        (
            lambda: amdattn.embedding(TABLE, [[0, 9]]),
            ValueError,
            r"indices\[0, 1\]=9 must be in 0..8",
        ),
        (lambda: amdattn.embedding(TABLE, [-1]), ValueError, r"indices\[0\]=-1 must be in 0..8"),
        (lambda: amdattn.embedding(TABLE, np.array(1)), ValueError, "at least 1 dimension"),
        (lambda: amdattn.embedding(TABLE, np.zeros(2, "f4")), ValueError, "must be int32 or int64"),
        (lambda: amdattn.embedding(TABLE[:0], [0]), ValueError, "no row for any index"),
        (lambda: amdattn.embedding(TABLE.astype("i4"), [0]), UnsupportedProblem, "dtype=int32"),
        (lambda: amdattn.embedding(TABLE, [0], out=TABLE[:2].copy()), ValueError, "out has shape"),
    ],
)
def test_refusals(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()
