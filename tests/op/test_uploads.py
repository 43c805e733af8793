"""Host operands that share memory go to the device together, in one copy, whatever their axes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import amdattn


@pytest.fixture
def uploads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of every copy to the device."""
    device = amdattn.device.runtime.get()
    sizes: list[int] = []
    original = device.upload
    monkeypatch.setattr(device, "upload", lambda *args: (sizes.append(args[2]), original(*args))[1])
    return sizes


def test_a_bias_among_the_rows_of_a(uploads: list[int]) -> None:
    """Its address has no alignment to keep, as no load of 16 bytes reads it."""
    rng = np.random.default_rng(0)
    whole, b = (rng.standard_normal(n).astype(ml_dtypes.bfloat16) for n in ((3, 72), (5, 64)))
    a, bias = whole[:, :64], whole[0, 65:70]
    found = amdattn.gemm_nt(a, b, bias=bias)
    expected = a.astype(np.float64) @ b.astype(np.float64).T + bias.astype(np.float64)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=0.02, atol=0.1)
    # `a` ends in its last row: 72 elements for the first two, 64 of the last one.
    assert sorted(uploads) == sorted([2 * (2 * 72 + 64), b.nbytes])


def test_sinks_among_the_rows_of_q(uploads: list[int]) -> None:
    rng = np.random.default_rng(1)
    memory = np.zeros((8, 2, 72 * 2), np.uint8)
    q = memory.view(ml_dtypes.bfloat16)[None, :, :, :64]
    q[...] = rng.standard_normal(q.shape)
    sinks = memory[0, 0, 128:136].view(np.float32)
    sinks[...] = (0.5, -1.0)
    k, v = (rng.standard_normal((1, 9, 2, 64)).astype(ml_dtypes.bfloat16) for _ in range(2))
    found = amdattn.flash_attn_func(q, k, v, sinks=sinks)
    assert sorted(uploads) == [
        16 * 144 - 16,
        k.nbytes,
        v.nbytes,
    ]  # less the gap behind the last row
    apart = amdattn.flash_attn_func(q.copy(), k, v, sinks=sinks.copy())
    np.testing.assert_array_equal(found, apart)
    assert len(uploads) == 7
