"""Facts and checks that all kinds of attention share, wherever their keys are stored."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection
from dataclasses import dataclass

from amdattn import scalars
from amdattn.dtypes import as_dtype
from amdattn.scalars import FLOAT32_MAX, INT32_MAX, LOG2_E

SIZES = (
    *("batch", "seqlen_q", "seqlen_kv", "num_heads_q", "num_heads_kv", "head_dim", "head_dim_v"),
)


@dataclass(frozen=True)  # without slots, which would make copies slow
class AttentionFacts:
    """Sizes, and options of the softmax; `AttentionProblem` describes each field."""

    batch: int
    seqlen_q: int
    seqlen_kv: int
    num_heads_q: int
    num_heads_kv: int
    head_dim: int
    head_dim_v: int = 0
    dtype: str = "bfloat16"
    softmax_scale: float | None = None
    causal: bool = False
    window_size: tuple[int, int] = (-1, -1)
    softcap: float = 0.0

    def __post_init__(self) -> None:
        for name in SIZES:
            self._count(name, 1, default=self.head_dim if name == "head_dim_v" else 0)
        if self.num_heads_q % self.num_heads_kv:
            raise ValueError(
                f"num_heads_kv={self.num_heads_kv} must divide num_heads_q={self.num_heads_q}"
            )
        self._put("dtype", as_dtype(self.dtype).name)
        self._flags("causal")
        self._put("softcap", scalars.number("softcap", self.softcap))
        window = scalars.window("window_size", self.window_size)
        if min(window) < -1:
            raise ValueError(f"window_size={window} must be >= -1 on each side (-1 means none)")
        self._put("window_size", window)
        if self.softmax_scale is None:
            self._put("softmax_scale", 1.0 / math.sqrt(self.head_dim))
        else:
            self._put("softmax_scale", scalars.number("softmax_scale", self.softmax_scale))
        if abs(self.softmax_scale_log2) > FLOAT32_MAX:
            raise ValueError(f"softmax_scale={self.softmax_scale} times log2(e) overflows float32")
        if self.softcap < 0.0:
            raise ValueError(f"softcap={self.softcap} must be >= 0 (0 means none)")

    # -- checks, each of which leaves what is right already --------------------------------------

    def _put(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _count(self, name: str, least: int, most: int = INT32_MAX, default: int = 0) -> None:
        """Check that a field is an int in ``least..most``; 0 is replaced by `default`."""
        count = getattr(self, name)
        if type(count) is int and least <= count <= most and (count or not default):
            return
        count = scalars.integer(name, count) or default
        if not least <= count <= most:
            empty = " (an empty tensor)" if count == 0 else ""
            raise ValueError(f"{name}={count}{empty} must be in {least}..{most}")
        self._put(name, count)

    def _flags(self, *names: str) -> None:
        for name in names:
            if type(getattr(self, name)) is not bool:
                self._put(name, scalars.boolean(name, getattr(self, name)))

    # -- what follows from them ------------------------------------------------------------------

    @property
    def softmax_scale_log2(self) -> float:
        """softmax_scale * log2(e): the kernels exponentiate in base 2."""
        assert self.softmax_scale is not None
        return self.softmax_scale * LOG2_E

    @property
    def softcap_log2(self) -> float:
        """`softcap` in base 2: times log2(e)."""
        return self.softcap * LOG2_E

    @property
    def group(self) -> int:
        """Query heads per KV head."""
        return self.num_heads_q // self.num_heads_kv

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return as_dtype(self.dtype).itemsize

    @property
    def _sizes_text(self) -> str:
        dims = f"{self.head_dim}" + f"/{self.head_dim_v}" * (self.head_dim_v != self.head_dim)
        return (
            f"b{self.batch} sq{self.seqlen_q} skv{self.seqlen_kv} "
            f"h{self.num_heads_q}/{self.num_heads_kv} d{dims}"
        )

    def _unusual_text(self, usual: Collection[str]) -> str:
        """Text of the fields that differ from their defaults, except `usual` ones."""
        return "".join(
            f" {field.name}={getattr(self, field.name)}"
            for field in dataclasses.fields(self)
            if field.name not in usual and getattr(self, field.name) != field.default
        )
