"""The problem of attention of many queries over a cache, before any choice of kernel."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from amdattn import scalars
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.cache_attention.decode_problem import DecodeProblem, as_problem
from amdattn.scalars import INT32_MAX

COPIES = ("", "q", "kv", "qkv")


@dataclass(frozen=True)
class PrefillProblem(DecodeProblem):
    """Attention of a chunk of queries of every sequence over the keys that a cache has of it.

    Parameters
    ----------
    batch, seqlen_q, seqlen_kv, ...
        As in `DecodeProblem`; for ragged chunks (`total_q`), `seqlen_q` is the greatest length.
    total_q : int
        Rows of all chunks if they are ragged. Lengths are then given by cumulative sums,
        `cu_seqlens_q` and, unless keys have `cache_seqlens` (seqused_k), `cu_seqlens_k`. 0: all
        chunks have `seqlen_q` queries, and lengths of keys are `cache_seqlens`.
    max_seqlen_kv : int, optional
        The most keys of a sequence, including appended ones; default: `seqlen_kv`, the room in the
        cache. It determines the memory for copies.
    max_total_kv : int, optional
        The most keys of all sequences together; default: `batch` times `max_seqlen_kv`.
    copies : {"", "q", "kv", "qkv"}
        Operands that are copied to adjacent rows before attention reads them. Keys and values in
        pages or of 8 bits, and queries that are rotated, are always copied.

    Raises
    ------
    ValueError, TypeError
        A malformed value. Whether a kernel exists is decided later.
    """

    total_q: int = 0
    max_seqlen_kv: int = 0
    max_total_kv: int = 0
    copies: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, default, most in (
            ("total_q", 0, INT32_MAX),
            ("max_seqlen_kv", self.seqlen_kv, self.seqlen_kv),
        ):
            value = scalars.integer(name, getattr(self, name)) or default
            if not 0 <= value <= most:
                raise ValueError(f"{name}={value} must be in 0..{most} (0 means {default})")
            self._put(name, value)
        whole = self.batch * self.max_seqlen_kv
        total = scalars.integer("max_total_kv", self.max_total_kv) or whole
        if not 1 <= min(total, whole) <= max(total, whole) <= INT32_MAX:
            raise ValueError(
                f"batch={self.batch} times max_seqlen_kv={self.max_seqlen_kv} and max_total_kv="
                f"{total} must be in 1..{INT32_MAX}"
            )
        self._put("max_total_kv", min(total, whole))
        if self.seqlen_new > self.max_seqlen_kv:
            raise ValueError(
                f"k has {self.seqlen_new} rows a sequence; max_seqlen_kv={self.max_seqlen_kv}"
            )
        if self.is_ragged and (self.seqlen_new or self.rotary_dim):
            raise ValueError(
                f"total_q={self.total_q} with seqlen_new={self.seqlen_new}, rotary_dim="
                f"{self.rotary_dim}: nothing is appended to chunks of several lengths, nor turned"
            )
        copies = scalars.word("copies", self.copies)
        if copies not in COPIES:
            raise ValueError(f"copies={copies!r} must be one of {COPIES}")
        wants_q = "q" in copies or self.rotary_dim > 0
        wants_kv = "kv" in copies or self.must_copy_keys
        self._put("copies", "q" * wants_q + "kv" * wants_kv)

    @staticmethod
    def of(problem: DecodeProblem, max_seqlen_kv: int = 0, copies: str = "") -> PrefillProblem:
        """The problem of a decoding problem that has too many queries for decoding kernels."""
        longest = min(max_seqlen_kv, problem.seqlen_kv)
        return as_problem(PrefillProblem, problem, max_seqlen_kv=longest, copies=copies)

    @property
    def must_copy_keys(self) -> bool:
        """Whether no kernel reads the keys of such a cache without a copy."""
        return self.page_size > 0 or self.is_quantized or self.is_ragged

    @property
    def copies_keys(self) -> bool:
        """Whether keys and values are read from a copy."""
        return "kv" in self.copies

    @property
    def copies_queries(self) -> bool:
        """Whether queries are read from a copy."""
        return self.copies.startswith("q")

    @property
    def has_gaps(self) -> bool:
        """Whether sequences are read from the cache itself, with other rows between them."""
        return self.batch > 1 and not self.copies_keys

    @property
    def num_sums(self) -> int:
        """The number of cumulative sums: one before each sequence and gap, and the end."""
        return (2 if self.has_gaps else 1) * self.batch + 1

    @property
    def forward(self) -> AttentionProblem:
        """Attention of the same queries over packed rows.

        Gaps between two sequences of a cache count as sequences without queries.
        """
        kv = self.max_total_kv
        if self.batch > 1 and kv == self.batch * self.max_seqlen_kv:
            kv -= 1  # lengths need not be equal
        return AttentionProblem(
            batch=self.num_sums - 1,
            seqlen_q=self.seqlen_q,
            seqlen_kv=self.max_seqlen_kv,
            num_heads_q=self.num_heads_q,
            num_heads_kv=self.num_heads_kv,
            head_dim=self.head_dim,
            head_dim_v=self.head_dim_v,
            dtype=self.dtype,
            softmax_scale=self.softmax_scale,
            causal=self.causal,
            window_size=self.window_size,
            softcap=self.softcap,
            num_splits=self.num_splits,
            return_lse=self.return_lse,
            sinks=self.sinks,
            total_q=self.queries,
            total_kv=kv,
            gaps=self.num_sums - 1 - self.batch,
        )

    @property
    def text(self) -> str:
        """Every argument."""
        return f"prefill{super().text.removeprefix('decode')}"

    @property
    def brief(self) -> str:
        """Sizes, and arguments that differ from the defaults."""
        usual = {"max_seqlen_kv": self.seqlen_kv, "copies": "", "total_q": 0}
        usual["max_total_kv"] = self.batch * self.max_seqlen_kv
        return as_problem(DecodeProblem, self).brief + "".join(
            f" {name}={getattr(self, name)}"
            for name, default in usual.items()
            if getattr(self, name) != default
        )

    @property
    def flops(self) -> int:
        """Operations of both products over unmasked pairs, with a full cache."""
        whole = dataclasses.replace(self.forward, batch=1, total_q=0, total_kv=0, gaps=0)
        return whole.flops * self.queries // self.seqlen_q

    @property
    def copied_bytes(self) -> int:
        """Bytes that copies read and write, with a full cache."""
        width = self.num_heads_kv * (self.head_dim + self.head_dim_v)
        keys = min(self.max_total_kv, self.batch * self.seen_keys)
        moved = self.copies_keys * keys * width * (self.kv_itemsize + self.itemsize)
        of_q = self.queries * self.num_heads_q * self.head_dim * self.itemsize
        return moved + 2 * of_q * self.copies_queries

    @property
    def appended_bytes(self) -> int:
        """Bytes of new rows that are read and written."""
        width = self.num_heads_kv * (self.head_dim + self.head_dim_v)
        return self.batch * self.seqlen_new * width * (self.itemsize + self.kv_itemsize)
