"""The problem of attention over a cache of keys and values, before any choice of kernel."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

from amdattn import scalars
from amdattn.dtypes import FLOAT32, as_dtype
from amdattn.ops.attention.facts import SIZES, AttentionFacts
from amdattn.ops.cache_attention.layouts import CHUNK_BYTES, LAYOUTS, layouts_named
from amdattn.scalars import INT32_MAX

# Kernels add positions to each other as int32.
MOST_KEYS = 2**30
MOST_SPLITS = 128
# The least scale of 8-bit elements: float32 can hold its inverse, and products of it with scores.
_LEAST_SCALE = 2.0**-60
# Columns: both halves of the rotated channels are whole loads of a lane. flash-attn requires the
# same.
ROTARY_STEP = 16
_OR_NONE = ("seqlen_new", "page_size", "rotary_dim", "rotary_positions")
_FLAGS = (
    *("sinks", "return_lse", "cache_seqlens", "cache_batch_idx", "cache_leftpad"),
    *("rotary_interleaved", "k_descales", "v_descales"),
)
_RECIPROCAL = 2**32  # divided by the keys of a page: kernels multiply positions to find pages


@dataclass(frozen=True)
class DecodeProblem(AttentionFacts):
    """Attention of a few queries of every sequence over the keys that a cache has of it.

    Parameters
    ----------
    batch, seqlen_q : int
        Sequences, and queries per sequence.
    seqlen_kv : int
        The most keys of a sequence: rows of the cache, or of all pages of a row of the table.
    num_heads_q, num_heads_kv, head_dim, head_dim_v, dtype, softmax_scale
        As in `AttentionProblem`.
    kv_dtype : str, optional
        Element type of the cache: `dtype`, which is the default, or an 8-bit type.
    kv_layout : {"NHD", "packed", "shuffled"}
        Layout of the cache, see `amdattn.ops.cache_attention.layouts`. All but "NHD" need pages.
    k_descale, v_descale : float
        The factor of 8-bit elements.
    k_descales, v_descales : bool
        Whether each head has its own factor instead, which launches read.
    causal, window_size, softcap, sinks
        As in `amdattn.flash_attn_func`; the last query is aligned to the last key.
    return_lse : bool
        Whether to return log(sum(exp(scores))).
    seqlen_new : int
        Keys per sequence that are appended first.
    page_size : int
        Keys of a page; 0: every sequence has its own rows.
    num_pages : int, optional
        Pages of the cache, or its sequences if it has no pages; default: as many as `batch` needs.
    rotary_dim, rotary_positions : int
        Channels that are rotated, and positions that have angles; 0: no rotary embedding.
    rotary_interleaved : bool
        Whether the channels of a pair are adjacent, or half of `rotary_dim` apart.
    rotary_dtype : str, optional
        Element type of angles: `dtype`, which is the default, or float32, which is not rounded.
    cache_seqlens, cache_batch_idx, cache_leftpad : bool
        Whether these arrays are given.
    num_splits : int
        Parts of every tile of queries; 0: chosen on the device, by the true lengths.

    Raises
    ------
    ValueError, TypeError
        A malformed value. Whether a kernel exists is decided later.
    """

    sinks: bool = False
    return_lse: bool = False
    seqlen_new: int = 0
    page_size: int = 0
    num_pages: int = 0
    rotary_dim: int = 0
    rotary_positions: int = 0
    rotary_interleaved: bool = True
    cache_seqlens: bool = False
    cache_batch_idx: bool = False
    cache_leftpad: bool = False
    num_splits: int = 0
    kv_dtype: str = ""
    kv_layout: str = "NHD"
    k_descale: float = 1.0
    v_descale: float = 1.0
    k_descales: bool = False
    v_descales: bool = False
    rotary_dtype: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in _OR_NONE:
            self._count(name, 0)
        self._count("num_splits", 0, MOST_SPLITS)
        self._flags(*_FLAGS)
        self._put("kv_dtype", as_dtype(self.kv_dtype or self.dtype, "kv_dtype").name)
        rows = self.batch * self.num_heads_q * self.seqlen_q * max(1, self.num_splits)
        if rows > INT32_MAX:
            raise ValueError(
                f"batch={self.batch} times num_heads_q, seqlen_q and num_splits is {rows}; it must "
                f"be at most {INT32_MAX}"
            )
        self._check_cache()
        self._check_elements()
        self._count("num_pages", 1, default=self.batch * self.pages_of_sequence)
        if self.num_pages < self.batch and not (self.page_size or self.cache_batch_idx):
            raise ValueError(
                f"k_cache has {self.num_pages} sequences; without cache_batch_idx it must have at "
                f"least the {self.batch} of q"
            )
        self._check_rotary()

    def _check_cache(self) -> None:
        """Check that keys fit, and that pages are not combined with other ways of lookup."""
        if self.seqlen_kv > self._most_keys:
            raise ValueError(f"seqlen_kv={self.seqlen_kv} must be in 1..{self._most_keys}")
        if self.page_size:
            if self.seqlen_kv % self.page_size:
                raise ValueError(
                    f"seqlen_kv={self.seqlen_kv} must be a multiple of page_size={self.page_size}"
                )
            for name in ("cache_batch_idx", "cache_leftpad"):
                if getattr(self, name):
                    raise ValueError(f"{name} was given with block_table; it must be None there")
        if self.seqlen_new > self.seqlen_kv:
            raise ValueError(
                f"k has {self.seqlen_new} rows a sequence; the cache has room for {self.seqlen_kv}"
            )
        if self.seqlen_new and not self.cache_seqlens:
            raise ValueError(
                "cache_seqlens=None says that the cache is full; it must be given with k, which "
                "is appended"
            )

    def _check_elements(self) -> None:
        """Check the scales and the layout of the cache's elements."""
        for name in ("k_descale", "v_descale"):
            scale = scalars.number(name, getattr(self, name))
            if not _LEAST_SCALE <= scale <= 1 / _LEAST_SCALE:
                raise ValueError(f"{name}={scale} must be in {_LEAST_SCALE}..{1 / _LEAST_SCALE}")
            self._put(name, scale)
            if (scale != 1 or getattr(self, f"{name}s")) and not self.is_quantized:
                raise ValueError(
                    f"{name} was given, but the cache has elements of type {self.kv_dtype}; it "
                    "must be None there"
                )
        layouts_named(self.kv_layout, self.page_size > 0)
        if self.is_packed and self.head_dim % self.chunk:
            raise ValueError(
                f"head_dim={self.head_dim} with kv_layout={self.kv_layout!r} must be a multiple of "
                f"{self.chunk}, {CHUNK_BYTES} bytes of {self.kv_dtype}"
            )

    def _check_rotary(self) -> None:
        """Check the angles of rotary embeddings, and that there are enough of them."""
        dim, positions = self.rotary_dim, self.rotary_positions
        of_angles = self.rotary_dtype if dim and self.rotary_dtype else self.dtype
        self._put("rotary_dtype", as_dtype(of_angles, "rotary_dtype").name)
        if self.rotary_dtype not in (self.dtype, FLOAT32.name):
            raise ValueError(
                f"rotary_cos has dtype {self.rotary_dtype}; it must be {self.dtype}, that of q, or "
                f"{FLOAT32.name}"
            )
        if bool(dim) != bool(positions):
            raise ValueError(
                f"rotary_dim={dim} and rotary_positions={positions} must both be 0 or both not"
            )
        if not dim:
            return
        if not self.seqlen_new:
            raise ValueError("rotary_cos was given without k; it must be None there")
        if dim % ROTARY_STEP or dim > self.head_dim:
            raise ValueError(
                f"rotary_dim={dim} (twice the columns of rotary_cos) must be a multiple of "
                f"{ROTARY_STEP} and at most head_dim={self.head_dim}"
            )
        turned = max(self.seqlen_new, self.seqlen_q if self.is_masked else 1)
        needed = self.seqlen_kv - self.seqlen_new + turned
        if positions < needed:
            raise ValueError(
                f"rotary_cos has {positions} positions; it must have at least {needed}, which "
                f"seqlen_kv={self.seqlen_kv} can come to"
            )

    # Properties that chunks of queries override.

    total_q = 0  # rows of all chunks of several lengths; 0: all have `seqlen_q`

    @property
    def max_seqlen_kv(self) -> int:
        """The most keys of a sequence."""
        return self.seqlen_kv

    @property
    def max_total_kv(self) -> int:
        """The most keys of all sequences together."""
        return self.batch * self.max_seqlen_kv

    @property
    def own(self) -> DecodeProblem:
        """Attention over the cache alone, as in a cascade."""
        return self

    @property
    def is_ragged(self) -> bool:
        """Whether chunks have several lengths, with q packed."""
        return self.total_q > 0

    @property
    def has_key_sums(self) -> bool:
        """Whether lengths of keys are given as cumulative sums (cu_seqlens_k)."""
        return self.is_ragged and not self.cache_seqlens

    @property
    def queries(self) -> int:
        """Queries of all sequences."""
        return self.total_q or self.batch * self.seqlen_q

    @property
    def is_quantized(self) -> bool:
        """Whether elements of the cache have 8 bits, and therefore a scale."""
        return self.kv_itemsize == 1

    @property
    def is_packed(self) -> bool:
        """Whether memory interleaves keys in units of 16 bytes."""
        return self.kv_layout != "NHD"

    def is_scaled(self, cache: str) -> bool:
        """Whether each head of "k" or "v" has its own scale."""
        return self.k_descales if cache == "k" else self.v_descales

    @property
    def kv_itemsize(self) -> int:
        """Bytes per element of the cache."""
        return as_dtype(self.kv_dtype).itemsize

    @property
    def chunk(self) -> int:
        """Elements of the cache in 16 bytes."""
        return CHUNK_BYTES // self.kv_itemsize

    def cache_shape(self, name: str) -> tuple[int, ...]:
        """Shape of "k_cache" or "v_cache" in the layout of the cache."""
        dim = self.head_dim if name == "k_cache" else self.head_dim_v
        sizes = {"page": self.num_pages, "seq": self.page_keys}
        sizes |= {"head": self.num_heads_kv, "column": dim}
        return LAYOUTS[self.kv_layout][name].shape(sizes, self.chunk)

    @property
    def page_keys(self) -> int:
        """Keys of a page, or of a sequence if there are no pages."""
        return self.page_size or self.seqlen_kv

    @property
    def pages_of_sequence(self) -> int:
        """Entries of a row of the table."""
        return self.seqlen_kv // self.page_keys

    @property
    def page_reciprocal(self) -> int:
        """The factor by which kernels find the page of a position; 0 without pages."""
        return -(-_RECIPROCAL // self.page_size) if self.page_size else 0

    @property
    def _most_keys(self) -> int:
        """The most positions for which the reciprocal finds the right page."""
        excess = self.page_reciprocal * self.page_size - _RECIPROCAL if self.page_size else 0
        return min(MOST_KEYS, _RECIPROCAL // excess if excess else MOST_KEYS)

    @property
    def is_masked(self) -> bool:
        """Whether queries see different keys, in which case each is rotated by its position."""
        return self.causal or max(self.window_size) >= 0

    @property
    def rotary_flags(self) -> int:
        """Flags of kernels: 1 for interleaved pairs, 2 for angles of another type."""
        return int(self.rotary_interleaved) | 2 * (self.rotary_dtype != self.dtype)

    @property
    def window(self) -> tuple[int, int]:
        """Keys before and after the one at which a query is; -1: all.

        They are limited to the possible keys, because kernels add them to positions as int32.
        """
        left, right = self.window_size
        return min(left, self.seqlen_kv), 0 if self.causal else min(right, self.seqlen_q)

    @property
    def seen_keys(self) -> int:
        """Keys that some query of a sequence sees if the cache is full."""
        left, _ = self.window
        return self.seqlen_kv if left < 0 else min(self.seqlen_kv, left + self.seqlen_q)

    @property
    def text(self) -> str:
        """Every argument."""
        values = ((one.name, getattr(self, one.name)) for one in fields(self))
        shown = (f"{x}={v:.6g}" if isinstance(v, float) else f"{x}={v}" for x, v in values)
        return f"decode {' '.join(shown)}"

    @property
    def brief(self) -> str:
        """Sizes, and arguments that differ from the defaults."""
        types = self.dtype + f"/{self.kv_dtype}" * (self.kv_dtype != self.dtype)
        angles = f" rotary_dtype={self.rotary_dtype}" * (self.rotary_dtype != self.dtype)
        return f"{types} {self._sizes_text}{self._unusual_text(_USUAL)}{angles}"

    @property
    def flops(self) -> int:
        """Operations of both products with a full cache."""
        pairs = self.batch * self.num_heads_q * self.seqlen_q * self.seen_keys
        return 2 * pairs * (self.head_dim + self.head_dim_v)

    @property
    def nbytes(self) -> int:
        """Bytes of q, the result, appended rows, and keys and values of a full cache."""
        width = self.head_dim + self.head_dim_v
        rows = self.seqlen_q * self.num_heads_q
        seen = self.seen_keys * self.num_heads_kv * self.kv_itemsize
        new = self.seqlen_new * self.num_heads_kv * (self.itemsize + self.kv_itemsize)
        return self.batch * (rows * self.itemsize + seen + new) * width


_USUAL = frozenset(
    (
        *(*SIZES, "dtype", "kv_dtype", "rotary_dtype"),
        *("num_pages", "softmax_scale", "rotary_positions"),
    )
)


Kind = TypeVar("Kind", bound=DecodeProblem)


def as_problem(kind: type[Kind], problem: DecodeProblem, **others: Any) -> Kind:
    """The decoding part of `problem` as a problem of this kind, with `others` replaced."""
    named = {one.name: getattr(problem, one.name) for one in fields(DecodeProblem)}
    return kind(**{**named, **others})
