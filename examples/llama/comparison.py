"""Whether generated tokens are right: beside the same model in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from .batch import Generation
from .checkpoint import Checkpoint
from .config import Config
from .reference import Array, Reference, exactly
from .weights import Weights

ALLOWED = 2.0  # largest error of a logit, of that of a pass that rounds as the device's memory does


@dataclass(frozen=True)
class Comparison:
    """Of one sequence.

    Attributes
    ----------
    error, allowed : float
        The largest of a logit that a token was chosen by, and what rounding explains.
    others : int
        Tokens that float64 would not choose.
    lost : float
        By how much the logit of such a token is below the best one, at most.
    """

    error: float
    allowed: float
    others: int
    lost: float

    @property
    def is_ok(self) -> bool:
        """Tokens are those of float64, except where its two best logits are as close as errors.

        Both may be off by as much.
        """
        return self.error <= self.allowed and self.lost <= 2 * self.allowed


class Oracle:
    """A checkpoint's model in float64, exactly and with the roundings of the device's memory."""

    def __init__(self, checkpoint: Checkpoint, config: Config, weights: Weights) -> None:
        def rounded(x: Array) -> Array:
            return x.astype(weights.dtype).astype(np.float64)

        def quantised(x: Array) -> Array:
            """By rows, whose greatest magnitude is the greatest number of 8 bits."""
            most = float(ml_dtypes.finfo(weights.eight_bits).max)  # type: ignore[no-untyped-call]
            scale = np.maximum(np.abs(x).max(axis=-1, keepdims=True) / most, 2.0**-126)
            found: Array = (x / scale).astype(weights.eight_bits).astype(np.float64) * scale
            return found

        self.exact = Reference(checkpoint, config)
        quantise = exactly if weights.eight_bits is None else quantised
        self.rounded = Reference(checkpoint, config, rounded, quantise)

    def compare(
        self, generation: Generation, logits: Sequence[NDArray[np.float32]] = ()
    ) -> Comparison:
        """A sequence, and the logits of each of its tokens if they were kept."""
        ids, first = generation.ids, len(generation.prompt) - 1
        exact, rounded = (x.logits(ids[:-1])[first:] for x in (self.exact, self.rounded))
        made = np.array(generation.made)[:, None]
        lost = exact.max(axis=1) - np.take_along_axis(exact, made, 1)[:, 0]
        return Comparison(
            error=float(np.abs(np.array(logits) - exact).max()) if len(logits) else 0.0,
            allowed=float(ALLOWED * np.abs(rounded - exact).max()),
            others=int((lost > 0).sum()),
            lost=float(lost.max()),
        )
