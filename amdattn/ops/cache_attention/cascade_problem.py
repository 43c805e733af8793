"""The problem of attention over a shared prefix and a cache of each sequence's own keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amdattn import scalars
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.cache_attention.decode_problem import MOST_KEYS, DecodeProblem, as_problem
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem
from amdattn.scalars import INT32_MAX

_MOST_SPLITS = 16  # of the forward kernels
_SPLITS = 2, 4, 8, _MOST_SPLITS  # tried by default; the fastest is used
# The prefix as one sequence of keys that all queries see, to which nothing is appended.
_OF_PREFIX: Mapping[str, Any] = {
    **{"batch": 1, "seqlen_new": 0, "rotary_dim": 0, "rotary_positions": 0},
    **dict.fromkeys(
        ("causal", "sinks", "cache_seqlens", "cache_batch_idx", "cache_leftpad"), False
    ),
}


def splits_of_tiles(given: int) -> Sequence[int]:
    """Numbers of parts of the forward kernels' tiles; at least 2, so that results are float32."""
    return (min(max(given, 2), _MOST_SPLITS),) if given else _SPLITS


@dataclass(frozen=True)
class CascadeProblem:
    """Attention over a prefix that all sequences share, and over a cache of their own keys.

    Parameters
    ----------
    own : DecodeProblem or PrefillProblem
        Attention over the cache alone, without a window. Its lse is always produced.
    prefix_len : int
        Keys of the prefix, which precede those of the cache.
    prefix_pages : int
        Pages of the cache that hold the prefix; 0: it consists of rows of separate arrays.
    copies : {"", "q"}
        Whether queries are copied to adjacent rows, as their strides may require.
    return_lse : bool
        Whether to return log(sum(exp(scores))) of all keys.

    Raises
    ------
    ValueError, TypeError
        A malformed value. Whether a kernel exists is decided later.
    """

    own: DecodeProblem
    prefix_len: int
    prefix_pages: int = 0
    return_lse: bool = False
    copies: str = ""

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        if scalars.word("copies", self.copies) not in ("", "q"):
            raise ValueError(f"copies={self.copies!r} must be '' or 'q'")
        put("return_lse", scalars.boolean("return_lse", self.return_lse))
        put("own", dataclasses.replace(self.own, return_lse=True))
        put("prefix_pages", scalars.integer("prefix_pages", self.prefix_pages))
        put("prefix_len", scalars.integer("prefix_len", self.prefix_len))
        own = self.own
        most = self.prefix_pages * own.page_size if self.prefix_pages else MOST_KEYS
        if self.prefix_pages and not own.page_size:
            raise ValueError(
                f"prefix_pages={self.prefix_pages} with page_size=0: the prefix can be in pages of "
                "the cache where that has pages (block_table)"
            )
        if not 1 <= self.prefix_len <= most:
            raise ValueError(f"prefix_len={self.prefix_len} must be in 1..{most}")
        if max(own.window_size) >= 0:
            raise ValueError(
                f"window_size={own.window_size} must be (-1, -1): all queries see all of the prefix"
            )
        if own.is_quantized and not self.prefix_pages:
            raise ValueError(
                f"kv_dtype={own.kv_dtype} of a prefix in rows must be {own.dtype}; one in pages of "
                "the cache (prefix_table) has its type"
            )
        rows = self.queries * own.num_heads_q
        if rows > INT32_MAX:
            raise ValueError(f"batch={own.batch} x seqlen_q x num_heads_q are {rows} rows")

    @property
    def queries(self) -> int:
        """Queries of all sequences."""
        return self.own.queries

    @property
    def copies_queries(self) -> bool:
        """Whether attention over the prefix always uses copies of the queries."""
        return self.own.rotary_dim > 0 or self.copies == "q"

    @property
    def is_chunked(self) -> bool:
        """Whether sequences have more queries than decoding kernels support."""
        return isinstance(self.own, PrefillProblem)

    def forward(self, num_splits: int) -> AttentionProblem:
        """Attention over the prefix, with all queries of heads that share a KV head as rows."""
        own = self.own
        return AttentionProblem(
            batch=1,
            seqlen_q=self.queries * own.group,
            seqlen_kv=self.prefix_len,
            num_heads_q=own.num_heads_kv,
            num_heads_kv=own.num_heads_kv,
            head_dim=own.head_dim,
            head_dim_v=own.head_dim_v,
            dtype=own.dtype,
            softmax_scale=own.softmax_scale,
            softcap=own.softcap,
            num_splits=num_splits,
            return_lse=True,
        )

    @property
    def decoded(self) -> DecodeProblem:
        """Attention over the prefix as decoding of one sequence with all queries."""
        rows = {"page_size": 0, "num_pages": 1, "kv_layout": "NHD"}
        changed: dict[str, Any] = {**_OF_PREFIX, **({} if self.prefix_pages else rows)}
        keys = self.prefix_pages * self.own.page_size or self.prefix_len
        return dataclasses.replace(self.own, seqlen_q=self.queries, seqlen_kv=keys, **changed)

    @property
    def gathered(self) -> PrefillProblem:
        """The problem of copying a prefix out of its pages, as one sequence."""
        changed: dict[str, Any] = {**_OF_PREFIX, "rotary_interleaved": True}
        changed |= {"seqlen_q": 1, "seqlen_kv": self.prefix_pages * self.own.page_size}
        return as_problem(PrefillProblem, self.own, max_seqlen_kv=self.prefix_len, **changed)

    @property
    def text(self) -> str:
        """Every argument."""
        return (
            f"cascade prefix_len={self.prefix_len} prefix_pages={self.prefix_pages} return_lse="
            f"{self.return_lse}, then {self.own.text}"
        )

    @property
    def brief(self) -> str:
        """Sizes, and arguments that differ from the defaults."""
        own = dataclasses.replace(self.own, return_lse=self.return_lse)
        pages = f" in {self.prefix_pages} pages" * bool(self.prefix_pages)
        return f"prefix {self.prefix_len}{pages}, {own.brief}"

    @property
    def flops(self) -> int:
        """Operations of both products with a full cache."""
        return self.forward(_SPLITS[0]).flops + self.own.flops

    @property
    def prefix_bytes(self) -> int:
        """Bytes of the prefix's keys and values."""
        own = self.own
        width = own.num_heads_kv * (own.head_dim + own.head_dim_v)
        return self.prefix_len * width * own.kv_itemsize

    @property
    def saved_bytes(self) -> int:
        """Bytes of keys and values that attention of each sequence by itself would also read."""
        return (self.own.batch - 1) * self.prefix_bytes
