"""How the next token is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import amdattn


@dataclass(frozen=True)
class Sampling:
    """The most likely token at a temperature of 0, else one that is drawn; see `amdattn.sample`."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0  # of tokens that a sequence has, its prompt's among them
    seed: int = 0  # of the first sequence; those that follow have the next ones

    @property
    def draws(self) -> bool:  # noqa: D102
        return self.temperature > 0

    @property
    def penalises(self) -> bool:  # noqa: D102
        return self.repetition_penalty != 1

    def plan(self, rows: int, vocabulary: int, context: int) -> Any:
        """Of float32 logits; no sequence has more tokens than `context`."""
        return amdattn.plan_sample(
            *(rows, vocabulary),
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            history=context if self.penalises else 0,
            device=amdattn.device_props(),
        )
