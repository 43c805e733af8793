"""`amdattn.apply_rotary_emb` as users call it: shapes, strides, positions, refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.errors import UnsupportedProblem

BF16 = ml_dtypes.bfloat16


def normal(seed: int, *shape: int, dtype: Any = BF16) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype)


COS, SIN = amdattn.rotary_tables(40, 64)
X, K = normal(0, 2, 5, 4, 64), normal(1, 2, 5, 2, 64)


def turned(
    x: Any, positions: Any, interleaved: bool = False, cos: Any = COS, sin: Any = SIN
) -> Any:
    """In float64."""
    wide, half = x.astype(np.float64), cos.shape[1]
    by, across = (t.astype(np.float64)[positions][..., None, :] for t in (cos, sin))
    one, other = (
        (np.s_[..., : 2 * half : 2], np.s_[..., 1 : 2 * half : 2])
        if interleaved
        else (np.s_[..., :half], np.s_[..., half : 2 * half])
    )
    out = wide.copy()
    out[one] = wide[one] * by - wide[other] * across
    out[other] = wide[other] * by + wide[one] * across
    return out


def close(found: Any, must: Any) -> None:
    got = found.numpy() if isinstance(found, amdattn.DeviceArray) else found
    np.testing.assert_allclose(got.astype(np.float64), must, rtol=2.0**-8, atol=1e-6)


@pytest.mark.parametrize("interleaved", [False, True])
def test_flash_attn_order_of_arguments(interleaved: bool) -> None:
    """x, cos, sin, interleaved, inplace, seqlen_offsets; on the host and on the device."""
    at = 7 + np.arange(5)
    close(amdattn.apply_rotary_emb(X, COS, SIN, interleaved, False, 7), turned(X, at, interleaved))
    held = amdattn.asarray(X)
    assert amdattn.apply_rotary_emb(held, COS, SIN, interleaved, True, 7) is held
    close(held, turned(X, at, interleaved))


def test_both_in_one_launch() -> None:
    for make in (lambda x: x, amdattn.asarray):
        out, k_out = amdattn.apply_rotary_emb(make(X), COS, SIN, k=make(K))
        close(out, turned(X, np.arange(5)))
        close(k_out, turned(K, np.arange(5)))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_positions(dtype: Any) -> None:
    """Offsets of sequences, positions of tokens, and tokens without sequences."""
    rng = np.random.default_rng(2)
    offsets = np.array([30, 0], dtype)
    each = rng.integers(0, 40, (2, 5), dtype)
    for make in (lambda x: x, amdattn.asarray):
        out = amdattn.apply_rotary_emb(make(X), COS, SIN, seqlen_offsets=make(offsets))
        close(out, turned(X, offsets[:, None] + np.arange(5)))
        out = amdattn.apply_rotary_emb(make(X), COS, SIN, positions=make(each))
        close(out, turned(X, each))
        out, k_out = amdattn.apply_rotary_emb(
            *(make(X[1]), make(COS), make(SIN)), k=make(K[1]), positions=make(each[1])
        )
        close(out, turned(X[1], each[1]))
        close(k_out, turned(K[1], each[1]))


def normed(x: Any, weight: Any, eps: float = 1e-6) -> Any:
    wide = x.astype(np.float64)
    return wide / np.sqrt((wide**2).mean(-1, keepdims=True) + eps) * weight.astype(np.float64)


def test_normalised_heads() -> None:
    """Of q and k in the launch that turns them, as Qwen 3 has them; rounded once."""
    q_weight, k_weight = (np.random.default_rng(i).uniform(-2, 2, 64).astype(BF16) for i in (4, 5))
    for make in (lambda x: x, amdattn.asarray):
        out, k_out = amdattn.apply_rotary_emb(
            *(make(X), COS, SIN), k=make(K), q_norm_weight=make(q_weight), k_norm_weight=k_weight
        )
        close(out, turned(normed(X, q_weight), np.arange(5)))
        close(k_out, turned(normed(K, k_weight), np.arange(5)))
    held = amdattn.asarray(X)
    amdattn.apply_rotary_emb(held, COS, SIN, inplace=True, q_norm_weight=q_weight, norm_eps=0.3)
    close(held, turned(normed(X, q_weight, 0.3), np.arange(5)))


def test_strides() -> None:
    """Parts of one array of q, k and v; sequences and heads in another order."""
    qkv = normal(3, 2, 5, 8, 64)
    held = amdattn.asarray(qkv)
    q, k = held[:, :, :4], held[:, :, 4:6]
    amdattn.apply_rotary_emb(q, COS, SIN, inplace=True, k=k)
    after = held.numpy()
    close(after[:, :, :6], turned(qkv[:, :, :6], np.arange(5)))
    np.testing.assert_array_equal(after[:, :, 6:].view(np.uint16), qkv[:, :, 6:].view(np.uint16))
    other = amdattn.asarray(np.ascontiguousarray(qkv.transpose(0, 2, 1, 3)))
    close(
        amdattn.apply_rotary_emb(other.transpose(0, 2, 1, 3), COS, SIN), turned(qkv, np.arange(5))
    )
    close(
        amdattn.apply_rotary_emb(held[::-1, ::2], COS, SIN), turned(after[::-1, ::2], np.arange(3))
    )


def test_no_more_than_twice_the_error_of_float32() -> None:
    half = COS.shape[1]
    x1, x2 = (X[..., part].astype(np.float32) for part in (np.s_[:half], np.s_[half:]))
    by, across = (t[:5, None] for t in (COS, SIN))
    plain = np.concatenate([x1 * by - x2 * across, x2 * by + x1 * across], -1).astype(BF16)
    must = turned(X, np.arange(5))
    error = np.abs(amdattn.apply_rotary_emb(X, COS, SIN).astype(np.float64) - must).max()
    assert error <= 2 * np.abs(plain.astype(np.float64) - must).max()


def test_nothing() -> None:
    assert amdattn.apply_rotary_emb(X[:0], COS, SIN).shape == (0, 5, 4, 64)
    out, k_out = amdattn.apply_rotary_emb(X[:, :0], COS, SIN, k=K[:, :0])
    assert (out.shape, k_out.shape) == ((2, 0, 4, 64), (2, 0, 2, 64))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: amdattn.apply_rotary_emb(X[0, 0], COS, SIN), ValueError, "3 or 4 dimensions"),
        (lambda: amdattn.apply_rotary_emb(X, COS, SIN[1:]), ValueError, "sin has shape"),
        (lambda: amdattn.apply_rotary_emb(X, COS[:4], SIN[:4]), ValueError, "cos has 4 positions"),
        (
            lambda: amdattn.apply_rotary_emb(X, COS, SIN, seqlen_offsets=36),
            ValueError,
            r"seqlen_offsets=36 must be in 0..35: cos has 40 positions",
        ),
        (
            lambda: amdattn.apply_rotary_emb(X, COS, SIN, positions=np.full((2, 5), 40)),
            ValueError,
            r"positions.*40",
        ),
        (lambda: amdattn.apply_rotary_emb(X, COS, SIN, k=X[..., :32]), ValueError, "k has shape"),
        (
            lambda: amdattn.apply_rotary_emb(X, COS, SIN, inplace=True, out=X),
            ValueError,
            "must be left out",
        ),
        (
            lambda: amdattn.apply_rotary_emb(X.astype("f4"), COS, SIN),
            UnsupportedProblem,
            "dtype=float32",
        ),
        (
            lambda: amdattn.apply_rotary_emb(X, COS.astype("f2"), SIN.astype("f2")),
            ValueError,
            "cos has dtype float16",
        ),
        (
            lambda: amdattn.apply_rotary_emb(X[..., :32], COS, SIN),
            ValueError,
            "rotary_dim=64 must be even and at most head_dim=32",
        ),
        (
            lambda: amdattn.plan_rotary(1, 1, 1, 63, rotary_dim=2, device="MI300X"),
            UnsupportedProblem,
            "head_dim=63",
        ),
        (
            lambda: amdattn.plan_rotary(1, 1, 1, 130, q_norm=True, device="MI355X"),
            UnsupportedProblem,
            r"head_dim=130 is not built \(have 2..128\): a head that is normalised",
        ),
        (
            lambda: amdattn.apply_rotary_emb(X, COS, SIN, k_norm_weight=np.zeros(64, BF16)),
            ValueError,
            "k_norm_weight was given, but no k",
        ),
        (
            lambda: amdattn.apply_rotary_emb(X, COS, SIN, q_norm_weight=np.zeros(32, BF16)),
            ValueError,
            r"q_norm_weight has shape \(32,\); this call needs \(64,\)",
        ),
        (
            lambda: amdattn.apply_rotary_emb(X, COS, SIN, norm_eps=0.0),
            ValueError,
            r"norm_eps=0.0 must be in 1\.17",
        ),
    ],
)
def test_refusals(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()
