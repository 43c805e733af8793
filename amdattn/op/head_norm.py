"""RMS norm of the heads of q and k, fused with what turns them: what is common to operations."""

from __future__ import annotations

from typing import Any

from amdattn import scalars
from amdattn.scalars import FLOAT32_MAX, FLOAT32_MIN

NORM_EPS = 1e-6  # as Qwen 3 has it
WEIGHTS = ("q_norm_weight", "k_norm_weight")


def norm_eps(given: Any, is_used: bool) -> float:
    """As a number that kernels add to a mean of squares; where none is normalised the default."""
    eps = scalars.number("norm_eps", given)
    if not FLOAT32_MIN <= eps <= FLOAT32_MAX:
        raise ValueError(f"norm_eps={eps} must be in {FLOAT32_MIN}..{FLOAT32_MAX}")
    return eps if is_used else NORM_EPS
