"""The problem of attention, as requested, before any choice of kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amdattn import scalars
from amdattn.ops.attention.facts import SIZES, AttentionFacts
from amdattn.scalars import INT32_MAX

# Order of the three strided axes of an attention tensor; head_dim is always last, with stride 1.
LAYOUTS: dict[str, tuple[str, ...]] = {
    "bshd": ("batch", "seq", "head"),
    "bhsd": ("batch", "head", "seq"),
}
VARLEN_LAYOUT = "thd"  # packed rows of all sequences
_VARLEN_AXES = ("seq", "head")
LABELS = {"o": "out", "cu_seqlens_kv": "cu_seqlens_k"}  # the callers' names of operands
ROUND_MODES = ("rtne", "rtna", "rtz")
GATHERS = ("", "k", "v", "kv")


@dataclass(frozen=True)
class AttentionProblem(AttentionFacts):
    """softmax(softmax_scale * Q @ K^T + mask) @ V for every batch and head.

    Parameters
    ----------
    batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim : int
        Shape facts, each in 1..2**31 - 1; `num_heads_kv` divides `num_heads_q`.
    head_dim_v : int, optional
        Default: `head_dim`.
    dtype : str
        Element type of Q, K, V and O.
    softmax_scale : float, optional
        Default: ``1 / sqrt(head_dim)``.
    causal, window_size, softcap, dropout_p
        As in FlashAttention; window (-1, -1) and softcap 0 mean none.
    round_mode : {"rtne", "rtna", "rtz"}
        Rounding of the result, and of P in P @ V; see `amdattn.flash_attn_func`.
    num_splits : int
        Parts in which the KV range of every tile is computed; 0: the planner chooses tiles and
        parts; 1: no split.
    return_lse : bool
        Whether to return log(sum(exp(scores))), float32, natural log.
    top_left : bool
        Where the diagonal of `causal` and `window_size` is if the lengths differ: by default it
        ends at the last query and the last key; with `top_left` it begins at the first ones.
    sinks : bool
        Whether every head has one more score, of a key without a value.
    total_q, total_kv : int
        Rows of all sequences of several lengths. `batch` is then the number of sequences, and
        `seqlen_q` and `seqlen_kv` are the greatest lengths. 0: all sequences have these lengths.
    gaps : int
        This many of the sequences have no queries: they are rows of K and V between two others.
    gather : {"", "k", "v", "kv"}
        Operands whose rows are copied to adjacent rows before the kernel reads them, because they
        are farther apart than its loads reach, or at descending addresses.

    Raises
    ------
    ValueError, TypeError
        A malformed value. Whether a kernel exists is decided later.
    """

    dropout_p: float = 0.0
    round_mode: str = "rtne"
    num_splits: int = 0
    return_lse: bool = False
    top_left: bool = False
    sinks: bool = False
    total_q: int = 0
    total_kv: int = 0
    gather: str = ""
    gaps: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._flags("return_lse", "top_left", "sinks")
        for name in ("total_q", "total_kv"):
            self._count(name, 0)
        if (self.total_q == 0) != (self.total_kv == 0):
            raise ValueError(
                f"total_q={self.total_q} and total_kv={self.total_kv} must both be 0 or both not"
            )
        self._put("gaps", scalars.integer("gaps", self.gaps))
        if not 0 <= self.gaps < (self.batch if self.varlen else 1):
            raise ValueError(
                f"gaps={self.gaps} must be less than batch={self.batch}, and 0 without total_q"
            )
        self._put("dropout_p", scalars.number("dropout_p", self.dropout_p))
        if not 0.0 <= self.dropout_p < 1.0:
            raise ValueError(f"dropout_p={self.dropout_p} must be in [0, 1)")
        self._put("num_splits", scalars.integer("num_splits", self.num_splits))
        if self.num_splits < 0:
            raise ValueError(f"num_splits={self.num_splits} must be >= 0 (0 lets the plan choose)")
        for name, words in (("gather", GATHERS), ("round_mode", ROUND_MODES)):
            word = scalars.word(name, getattr(self, name))
            if word not in words:
                raise ValueError(f"{name}={word!r} must be one of {words}")
            self._put(name, word)

    def with_keys(self, seqlen_kv: int) -> AttentionProblem:
        """The problem with another number of keys, for one length; only that is checked again."""
        if not 1 <= seqlen_kv <= INT32_MAX:
            raise ValueError(f"seqlen_kv={seqlen_kv} must be in 1..{INT32_MAX}")
        made: AttentionProblem = object.__new__(AttentionProblem)
        made.__dict__.update(self.__dict__, seqlen_kv=seqlen_kv)
        return made

    @property
    def text(self) -> str:
        """Every argument."""
        return (
            f"attention {self.dtype}, batch={self.batch} seqlen_q={self.seqlen_q} "
            f"seqlen_kv={self.seqlen_kv} num_heads_q={self.num_heads_q} "
            f"num_heads_kv={self.num_heads_kv} head_dim={self.head_dim} "
            f"head_dim_v={self.head_dim_v} softmax_scale={self.softmax_scale:.6g} "
            f"causal={self.causal}{self._unusual_text(_IN_TEXTS)}"
        )

    @property
    def brief(self) -> str:
        """Sizes, and arguments that differ from the defaults."""
        causal = " causal" * self.causal
        return f"{self.dtype} {self._sizes_text}{causal}{self._unusual_text(_IN_TEXTS)}"

    @property
    def varlen(self) -> bool:
        """Whether the sequences have several lengths."""
        return self.total_q > 0

    @property
    def diagonal(self) -> int:
        """The key on the diagonal of the mask at query 0, for sequences of the full lengths."""
        return 0 if self.top_left else self.seqlen_kv - self.seqlen_q

    @property
    def window(self) -> tuple[int, int]:
        """Keys that a query sees before and after its diagonal, including causality; -1: all.

        A side on which no query's window ends is -1, whatever the call's value was.
        """
        left, right = self.window_size
        if self.causal:
            right = 0
        before, behind = self._reach
        return (-1 if left >= before else left, -1 if right >= behind else right)

    @property
    def window_keys(self) -> int:
        """The most keys of a row's window; an unlimited side counts up to the farthest key."""
        before, behind = self._reach
        left, right = self.window
        return (before if left < 0 else left) + (behind if right < 0 else right) + 1

    @property
    def _reach(self) -> tuple[int, int]:
        """The greatest distances of a key from the diagonal, before and after it."""
        before, behind = self.seqlen_kv - 1, self.seqlen_q - 1
        return (behind, before) if self.top_left else (before, behind)

    @property
    def flops(self) -> int:
        """Operations of Q @ K^T and P @ V over unmasked pairs; a multiply-add counts as two.

        Sequences of several lengths count with the greatest lengths.
        """
        left, right = self.window
        pairs = self.seqlen_q * self.seqlen_kv
        if right >= 0:
            pairs = self._pairs_below(self.diagonal + right)
        if left >= 0:
            pairs -= self._pairs_below(self.diagonal - left - 1)
        return 2 * self.batch * self.num_heads_q * pairs * (self.head_dim + self.head_dim_v)

    def _pairs_below(self, offset: int) -> int:
        """The number of pairs (query, key) of a sequence with key <= query + offset."""

        # Seen by rows of which the first sees one key, the next two, and so on.
        def keys(rows: int) -> int:
            growing = min(max(rows, 0), self.seqlen_kv)
            return growing * (growing + 1) // 2 + (max(rows, 0) - growing) * self.seqlen_kv

        return keys(self.seqlen_q + offset) - keys(offset)

    def axes(self, operand: str) -> dict[str, int]:
        """Lengths of the axes batch, seq, head and dim of operand "q", "k", "v" or "o"."""
        of_q = operand in ("q", "o")
        rows, total = (self.seqlen_q, self.total_q) if of_q else (self.seqlen_kv, self.total_kv)
        return {
            "batch": self.batch,
            "seq": total or rows,
            "head": self.num_heads_q if of_q else self.num_heads_kv,
            "dim": self.head_dim if operand in ("q", "k") else self.head_dim_v,
        }

    def shape(self, operand: str, layout: str) -> tuple[int, ...]:
        """Shape of operand "q", "k", "v" or "o" in `layout`, or of "lse"."""
        if operand == "lse":
            if self.varlen:
                return (self.num_heads_q, self.total_q)
            return (self.batch, self.num_heads_q, self.seqlen_q)
        lengths = self.axes(operand)
        return (*(lengths[axis] for axis in axis_order(layout)), lengths["dim"])


def axis_order(layout: str) -> tuple[str, ...]:
    """Names of the axes of `layout` before the last, which is head_dim."""
    if layout == VARLEN_LAYOUT:
        return _VARLEN_AXES
    if scalars.word("layout", layout) not in LAYOUTS:
        raise ValueError(f"layout={layout!r} must be one of {tuple(LAYOUTS)}")
    return LAYOUTS[layout]


def operand_axes(
    q_shape: tuple[int, ...], k_shape: tuple[int, ...], v_shape: tuple[int, ...], layout: str
) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Lengths of the axes of q, k and v by name, which agree with each other."""
    order = axis_order(layout)
    axes = f"({', '.join(order)}, dim)"
    sizes: dict[str, dict[str, int]] = {}
    for name, shape in (("q", q_shape), ("k", k_shape), ("v", v_shape)):
        if len(shape) != len(order) + 1:
            raise ValueError(
                f"{name} has shape {tuple(shape)}; it must have {len(order) + 1} dimensions, "
                f"{layout!r} is {axes}"
            )
        sizes[name] = dict(zip((*order, "dim"), shape, strict=True))
    q, k, v = sizes["q"], sizes["k"], sizes["v"]
    for (one, x), (other, y), axis in (
        (("k", k), ("q", q), "batch"),
        (("v", v), ("q", q), "batch"),
        (("k", k), ("q", q), "dim"),
        (("v", v), ("k", k), "seq"),
        (("v", v), ("k", k), "head"),
    ):
        if x.get(axis) != y.get(axis):
            hint = ""
            if axis in ("seq", "head") or x["seq"] == y["head"]:
                hint = f" (layout={layout!r} reads the axes as {', '.join(order)}, dim)"
            raise ValueError(f"{one} has {axis}={x[axis]} but {other} has {axis}={y[axis]}{hint}")
    return q, k, v


def attention_problem(
    q_shape: tuple[int, ...],
    k_shape: tuple[int, ...],
    v_shape: tuple[int, ...],
    layout: str,
    **options: Any,
) -> AttentionProblem:
    """Read the problem off the shapes of q, k and v; `options` are AttentionProblem's fields.

    With sequences of several lengths (layout "thd") the options say `batch`, `seqlen_q` and
    `seqlen_kv`.
    """
    q, k, v = operand_axes(q_shape, k_shape, v_shape, layout)
    # An empty tensor is an error: in a problem 0 stands for "as head_dim", and for sequences of one
    # length.
    named = {"head_dim_v": v["dim"]}
    if layout == VARLEN_LAYOUT:
        named |= {"total_q": q["seq"], "total_kv": k["seq"]}
        options |= {"total_q": q["seq"], "total_kv": k["seq"]}
    else:
        options |= {"batch": q["batch"], "seqlen_q": q["seq"], "seqlen_kv": k["seq"]}
    for name, count in named.items():
        if count == 0 and q["dim"]:  # of which a problem tells itself
            raise ValueError(f"{name}=0 (an empty tensor) must be in 1..{INT32_MAX}")
    return AttentionProblem(
        num_heads_q=q["head"],
        num_heads_kv=k["head"],
        head_dim=q["dim"],
        head_dim_v=v["dim"],
        **options,
    )


_IN_TEXTS = frozenset((*SIZES, "dtype", "softmax_scale", "causal"))
