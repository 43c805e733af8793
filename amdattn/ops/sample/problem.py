"""The problem of drawing tokens from logits, before any choice of kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

from amdattn import scalars
from amdattn.dtypes import as_dtype
from amdattn.scalars import FLOAT32_MAX, INT32_MAX


@dataclass(frozen=True)
class SampleProblem:
    """A token for each row of logits.

    Parameters
    ----------
    rows, columns : int
        Columns are the vocabulary.
    dtype : str
        Type of the logits.
    temperature : float
        0: takes the greatest logit; nothing is drawn.
    top_k : int
        Number of tokens that may be drawn, besides those that equal the last one; 0: all.
    top_p : float
        The least sum of the probabilities of tokens that may be drawn; 1: all.
    min_p : float
        The least probability, as a share of the greatest one; 0: all.
    repetition_penalty : float
        A divisor of the logits of previous tokens; logits below 0 are multiplied by it.
    history : int
        The most previous tokens of a row; 0: there are none.

    Raises
    ------
    ValueError, TypeError
        A malformed value. Whether a kernel exists is decided later.
    """

    rows: int
    columns: int
    dtype: str = "float32"
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    history: int = 0

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        for name, least in (("rows", 1), ("columns", 1), ("top_k", 0), ("history", 0)):
            count = scalars.integer(name, getattr(self, name))
            if not least <= count <= INT32_MAX:
                raise ValueError(f"{name}={count} must be in {least}..{INT32_MAX}")
            put(name, count)
        put("dtype", as_dtype(self.dtype).name)
        for name in ("temperature", "top_p", "min_p", "repetition_penalty"):
            put(name, scalars.number(name, getattr(self, name)))
        if not 0 <= self.temperature <= FLOAT32_MAX:
            raise ValueError(f"temperature={self.temperature} must be finite and 0 or more")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p} must be more than 0 and at most 1")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p={self.min_p} must be in 0..1")
        if not 0 < self.repetition_penalty <= FLOAT32_MAX:
            raise ValueError(
                f"repetition_penalty={self.repetition_penalty} must be finite and more than 0"
            )
        if self.repetition_penalty != 1 and not self.history:
            raise ValueError(
                f"repetition_penalty={self.repetition_penalty} is for previous tokens, but there "
                "are none"
            )

    @property
    def draws(self) -> bool:
        """Whether tokens are drawn at random."""
        return self.temperature > 0

    @property
    def has_top_k(self) -> bool:
        """Whether it leaves any out."""
        return self.draws and 0 < self.top_k < self.columns

    @property
    def has_top_p(self) -> bool:
        """Whether it leaves any out."""
        return self.draws and self.top_p < 1

    @property
    def limits(self) -> bool:
        """Whether some tokens may not be drawn."""
        return self.has_top_k or self.has_top_p or (self.draws and self.min_p > 0)

    @property
    def scale(self) -> float:
        """The factor that makes logarithms in base 2 from logits."""
        return min(1 / (math.log(2) * self.temperature), FLOAT32_MAX) if self.draws else 0.0

    @property
    def log_min_p(self) -> float:
        """The logarithm of min_p in base 2."""
        return math.log2(self.min_p) if self.min_p else -math.inf

    @property
    def text(self) -> str:
        """All arguments."""
        return (
            f"sample {self.dtype}, rows={self.rows} columns={self.columns} "
            f"temperature={self.temperature:.6g} top_k={self.top_k} top_p={self.top_p:.6g} "
            f"min_p={self.min_p:.6g} repetition_penalty={self.repetition_penalty:.6g} "
            f"history={self.history}"
        )

    @property
    def brief(self) -> str:
        """Sizes, and what differs from the defaults."""
        found = f"{self.rows}x{self.columns}" + f" {self.dtype}" * (self.dtype != "float32")
        found += "" if self.temperature == 1 else f" temperature={self.temperature:.6g}"
        found += f" top_k={self.top_k}" * bool(self.top_k)
        found += f" top_p={self.top_p:.6g}" * (self.top_p < 1) + f" min_p={self.min_p:.6g}" * (
            self.min_p > 0
        )
        return found + f" penalty={self.repetition_penalty:.6g}" * (self.repetition_penalty != 1)

    @property
    def flops(self) -> int:
        """Operations: logarithms, exponentials and comparisons, once for each logit."""
        return self.rows * self.columns * (8 if self.draws else 1)

    @property
    def nbytes(self) -> int:
        """Bytes of all operands, each counted once."""
        of_row = self.columns * as_dtype(self.dtype).itemsize + 4 * self.history + 4
        return self.rows * (of_row + 16 * self.draws)
