"""RMS norm of the heads of q and k, fused with their rotation: parts that operations share."""

from __future__ import annotations

from typing import Any

from amdattn import scalars
from amdattn.scalars import FLOAT32_MAX, FLOAT32_MIN

NORM_EPS = 1e-6  # Qwen 3's value
WEIGHTS = ("q_norm_weight", "k_norm_weight")


def norm_eps(given: Any, is_used: bool) -> float:
    """Check the number that kernels add to a mean of squares; the default without norms."""
    eps = scalars.number("norm_eps", given)
    if not FLOAT32_MIN <= eps <= FLOAT32_MAX:
        raise ValueError(f"norm_eps={eps} must be in {FLOAT32_MIN}..{FLOAT32_MAX}")
    return eps if is_used else NORM_EPS
