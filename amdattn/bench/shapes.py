"""Shapes of attention for benchmarks, and named sets of them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from amdattn.bench.inputs import Sizes
from amdattn.ops.attention.problem import AttentionProblem


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a bfloat16 attention forward in a benchmark.

    Operands have the strides of compact (batch, seqlen, heads, head_dim) arrays, or of
    (batch, heads, seqlen, head_dim) arrays for layout "bhsd".

    Attributes
    ----------
    batch, heads_q, heads_kv, seqlen_q, seqlen_kv, head_dim : int
    causal : bool
        Aligned to the last query and key.
    layout : {"bshd", "bhsd"}
    head_dim_v : int
        0: head_dim.
    window : tuple of int
        (left, right) as in FlashAttention; (-1, -1): none.
    sinks : bool
        Whether every head has one more score, of a key without a value.

    Raises
    ------
    ValueError
        A size is out of range.
    """

    batch: int
    heads_q: int
    heads_kv: int
    seqlen_q: int
    seqlen_kv: int
    head_dim: int
    causal: bool = False
    layout: str = "bshd"
    head_dim_v: int = 0
    window: tuple[int, int] = (-1, -1)
    sinks: bool = False

    def __post_init__(self) -> None:
        problem = self.problem("rtne")
        problem.shape("q", self.layout)  # raises what is wrong with the numbers
        object.__setattr__(self, "head_dim_v", problem.head_dim_v)

    def __str__(self) -> str:
        seqlen = str(self.seqlen_q)
        if self.seqlen_kv != self.seqlen_q:
            seqlen += f"x{self.seqlen_kv}"
        heads = str(self.heads_q)
        if self.heads_kv != self.heads_q:
            heads += f"/{self.heads_kv}"
        dims = str(self.head_dim)
        if self.head_dim_v != self.head_dim:
            dims += f"/{self.head_dim_v}"
        text = f"b{self.batch} h{heads} s{seqlen} d{dims}" + " causal" * self.causal
        if self.window != (-1, -1):
            text += " window {}/{}".format(*("-" if side < 0 else side for side in self.window))
        return text + " sinks" * self.sinks + f" {self.layout}" * (self.layout != "bshd")

    @property
    def sizes(self) -> Sizes:
        """The sizes by which inputs are made."""
        return Sizes(
            *(self.batch, self.seqlen_q, self.seqlen_kv, self.heads_q, self.heads_kv),
            *(self.head_dim, self.head_dim_v),
        )

    @property
    def masked(self) -> bool:
        """Whether some query may not see all keys."""
        return self.problem("rtne").window != (-1, -1)

    def problem(self, round_mode: str) -> AttentionProblem:
        """The problem for the planner."""
        return AttentionProblem(
            self.batch,
            self.seqlen_q,
            self.seqlen_kv,
            self.heads_q,
            self.heads_kv,
            self.head_dim,
            head_dim_v=self.head_dim_v,
            causal=self.causal,
            window_size=self.window,
            sinks=self.sinks,
            round_mode=round_mode,
        )

    @property
    def flops(self) -> int:
        """Operations of Q @ K^T and P @ V, for scores that are not masked.

        Publications count half of the scores under a causal mask, which is a little less.
        """
        return self.problem("rtne").flops

    def with_lengths(self, seqlen_q: int, seqlen_kv: int) -> Shape:
        """The shape with other sequence lengths."""
        return dataclasses.replace(self, seqlen_q=seqlen_q, seqlen_kv=seqlen_kv)

    def strides(self, operand: str) -> dict[str, int]:
        """Strides of operand "q", "k", "v" or "o" by axis, in elements."""
        problem = self.problem("rtne")
        axes = problem.axes(operand)
        order = ("batch", "seq", "head") if self.layout == "bshd" else ("batch", "head", "seq")
        strides, stride = {}, axes["dim"]
        for axis in reversed(order):
            strides[axis] = stride
            stride *= axes[axis]
        return strides


def _square(batch: int, heads: int, seqlen: int) -> Shape:
    return Shape(batch, heads, heads, seqlen, seqlen, 128)


_PREFILLS = (2048, 4096, 8192, 16384)


def _hipkittens(head_dim: int, heads_kv: int, causal: bool, seqlen: int) -> Shape:
    """One row of the grid.

    The longest rows have 15 batch entries, except those with neither a mask nor groups of heads.
    """
    heads = 16 if heads_kv == 16 else 64
    full = seqlen < 16384 or (heads_kv == heads and not causal)
    return Shape(16 if full else 15, heads, heads_kv, seqlen, seqlen, head_dim, causal)


# moonmath: the nine shapes of moonmath-ai/amd-kernels@5f758e78, README.md, MI300X table.
# llama3-8b: 32 query and 8 KV heads of 128 (config.json of the model), prefill of one sequence.
# wan2.1: config.json of the 1.3B and 14B models has 12 and 40 heads of 128; 32760 and 75600 tokens
# are 480p and 720p videos of 81 frames; the cross attention has 512 text tokens.
# flux: 24 heads of 128, 4096 image and 512 text tokens (1024x1024).
# whisper: large-v3 has 20 heads of 64; the encoder sees 1500 frames, and so does the decoder, from
# one token to its 448.
# causal: 16 and 64 heads, and as many of K and V.
# llama3-70b: 64 query and 8 KV heads of 128 (config.json).
# gpt-oss: 64 query and 8 KV heads of 64, with sinks; every other layer sees 128 keys (config.json
# of the 20B and 120B models).
# hipkittens: HazyResearch/HipKittens@f09e9685, analysis/attn/fwd/benchmark/mi355x_*_fwd.json.
# gluon: ROCm/gfx950-gluon-tutorials, kernels/attention/README.md; also with a causal mask, and
# longer.
# deepseek: 128 heads of 192, values of 128, before the latent attention is absorbed (V3, prefill).
PRESETS: dict[str, tuple[Shape, ...]] = {
    "moonmath": (
        _square(2, 24, 8192),
        _square(2, 24, 16384),
        _square(1, 32, 16384),
        _square(4, 16, 16384),
        _square(1, 64, 16384),
        _square(2, 24, 32768),
        _square(2, 16, 65536),
        _square(2, 8, 86016),
        _square(1, 16, 131072),
    ),
    "llama3-8b": tuple(Shape(1, 32, 8, seqlen, seqlen, 128, causal=True) for seqlen in _PREFILLS),
    "wan2.1": (
        _square(1, 12, 32760),
        _square(1, 40, 32760),
        _square(1, 40, 75600),
        Shape(1, 40, 40, 32760, 512, 128),
    ),
    "flux": (_square(1, 24, 4608),),
    "whisper": (
        Shape(1, 20, 20, 1500, 1500, 64),
        *(Shape(1, 20, 20, tokens, 1500, 64) for tokens in (1, 64, 448)),
    ),
    "causal": tuple(
        Shape(1, heads, heads, seqlen, seqlen, 128, causal=True)
        for heads in (16, 64)
        for seqlen in _PREFILLS
    ),
    "llama3-70b": tuple(Shape(1, 64, 8, seqlen, seqlen, 128, causal=True) for seqlen in _PREFILLS),
    "gpt-oss": tuple(
        Shape(1, 64, 8, seqlen, seqlen, 64, causal=True, window=window, sinks=True)
        for window in ((127, -1), (-1, -1))
        for seqlen in (1024, 4096, 8192)
    ),
    "hipkittens": tuple(
        _hipkittens(head_dim, heads_kv, causal, seqlen)
        for head_dim in (128, 64)
        for heads_kv in (16, 8)
        for causal in (False, True)
        for seqlen in (1024, *_PREFILLS)
    ),
    "gluon": tuple(
        Shape(32, 8, 8, seqlen, seqlen, 128, causal=causal)
        for seqlen in (8192, 16384)
        for causal in (False, True)
    ),
    "deepseek": tuple(
        Shape(1, 128, 128, seqlen, seqlen, 192, causal=True, head_dim_v=128)
        for seqlen in (2048, 4096)
    ),
}


def preset(name: str) -> tuple[Shape, ...]:
    """The shapes of a named set; raises ValueError for an unknown name."""
    if name not in PRESETS:
        raise ValueError(f"preset={name!r} must be one of {', '.join(PRESETS)}")
    return PRESETS[name]
