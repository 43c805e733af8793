"""Sequences of several lengths in one call, without padding: causal attention with GQA.

    python examples/varlen_batch.py

Every sequence is held against float64: weights and results are rounded to bfloat16 once each, so
that an error is at most two roundings of the largest value.
"""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
from rich.console import Console
from rich.table import Table

import amdattn
from amdattn.testing import attention

LENGTHS = (193, 1, 64, 130)  # rows of each sequence
HEADS_Q, HEADS_KV, HEAD_DIM = 4, 2, 128
ROUNDING = 2.0**-8  # half a bfloat16's spacing, of its value


def main() -> int:
    """Compute, compare, print; the exit code."""
    rng = np.random.default_rng(0)
    total = sum(LENGTHS)
    q, k, v = (
        rng.standard_normal((total, heads, HEAD_DIM), np.float32).astype(ml_dtypes.bfloat16)
        for heads in (HEADS_Q, HEADS_KV, HEADS_KV)
    )
    starts = np.cumsum([0, *LENGTHS]).astype(np.int32)  # rows before each sequence, and all
    longest = max(LENGTHS)
    out = amdattn.flash_attn_varlen_func(
        q, k, v, starts, starts, longest, longest, causal=True, softmax_scale=HEAD_DIM**-0.5
    )

    table = Table(title=f"{total} rows on {amdattn.device_props().name}")
    for heading in ("sequence", "rows", "largest error", "allowed", ""):
        table.add_column(heading, justify="right")
    good = True
    for i, (first, end) in enumerate(zip(starts, starts[1:], strict=False)):
        of_one = [x[None, first:end] for x in (q, k, v)]
        expected, _ = attention(*of_one, causal=True)
        error = np.abs(out[None, first:end] - expected).max()
        allowed = 2 * ROUNDING * np.abs(v[first:end].astype(float)).max()
        right = bool(error <= allowed)
        good = good and right
        cells = (f"{error:.2e}", f"{allowed:.2e}", "ok" if right else "WRONG")
        table.add_row(str(i), str(end - first), *cells)
    Console().print(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
