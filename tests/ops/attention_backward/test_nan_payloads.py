"""NaN of any payload in lse and dlse reach the gradients: no rounding wraps them to numbers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn


@pytest.mark.parametrize("of", ["lse", "dlse"])
@pytest.mark.parametrize("bits", [0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0xFFFF9000, 0x7F800001])
@pytest.mark.parametrize("head_dim", [64, 128, 192])
def test_nan_of_any_payload(head_dim: int, bits: int, of: str) -> None:
    rng = np.random.default_rng(1)
    q, k, v, dout = (
        rng.standard_normal((1, 40, 1, head_dim), np.float32).astype(ml_dtypes.bfloat16)
        for _ in range(4)
    )
    out, lse = amdattn.flash_attn_func(q, k, v, return_lse=True)
    given: dict[str, Any] = {"lse": lse.copy(), "dlse": np.zeros_like(lse)}
    given[of].view(np.uint32)[0, 0, 7] = bits
    dq, dk, dv = amdattn.flash_attn_backward(dout, q, k, v, out, given["lse"], dlse=given["dlse"])
    assert np.isnan(dq[0, 7].astype("f4")).all() and not np.isnan(dq[0, :7].astype("f4")).any()
    assert np.isnan(dk.astype("f4")).all()
    assert np.isnan(dv.astype("f4")).all() == (of == "lse")
