"""The problem of gradients of attention, as requested, before any choice of kernel."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from amdattn import scalars
from amdattn.dtypes import FLOAT32, DType, as_dtype
from amdattn.ops.attention.problem import (
    VARLEN_LAYOUT,
    AttentionProblem,
    attention_problem,
    axis_order,
)

# Tensors with the rows of q, and tensors whose last axis is that of v.
_OF_Q = ("q", "o", "dout", "dq")
_OF_V = ("v", "o", "dout", "dv")


@dataclass(frozen=True)
class BackwardProblem:
    """The gradients of q, k, v and sinks from that of the result of attention.

    Parameters
    ----------
    forward : AttentionProblem
        The problem of the forward.
    out_dtype : str
        Element type of dq, dk and dv: that of q, or float32. "": that of q.
    deterministic : bool
        Whether sums are in the same order every time.
    dlse : bool
        Whether there is a gradient of the forward's lse.

    Raises
    ------
    ValueError, TypeError
        A malformed value. Whether a kernel exists is decided later.
    """

    forward: AttentionProblem
    out_dtype: str = ""
    deterministic: bool = False
    dlse: bool = False

    def __post_init__(self) -> None:
        if self.forward.return_lse:  # it is an input here
            forward = dataclasses.replace(self.forward, return_lse=False)
            object.__setattr__(self, "forward", forward)
        dtype = as_dtype(self.out_dtype or self.forward.dtype).name
        if dtype not in (self.forward.dtype, FLOAT32.name):
            raise ValueError(
                f"out_dtype={dtype} must be {self.forward.dtype}, that of q, or {FLOAT32.name}"
            )
        object.__setattr__(self, "out_dtype", dtype)
        for name in ("deterministic", "dlse"):
            object.__setattr__(self, name, scalars.boolean(name, getattr(self, name)))

    @property
    def text(self) -> str:
        """Every argument."""
        return (
            f"attention_backward of {self.forward.text} out_dtype={self.out_dtype} "
            f"deterministic={self.deterministic} dlse={self.dlse}"
        )

    @property
    def brief(self) -> str:
        """Sizes, and arguments that differ from the defaults."""
        of_type = f" out_dtype={self.out_dtype}" * self.keeps_floats
        return (
            f"{self.forward.brief}{of_type}{' deterministic' * self.deterministic}"
            f"{' dlse' * self.dlse}"
        )

    @property
    def keeps_floats(self) -> bool:
        """Whether the results are float32, so that dq is summed in place."""
        return self.out_dtype == FLOAT32.name

    @property
    def sinks(self) -> bool:
        """Whether there are sinks, which then have gradients."""
        return self.forward.sinks

    @property
    def total_q(self) -> int:
        """Rows of q of all sequences of several lengths; 0: all have one length."""
        return self.forward.total_q

    @property
    def element(self) -> DType:
        """The element type of the results."""
        return as_dtype(self.out_dtype)

    @property
    def flops(self) -> int:
        """Operations of the five products over the pairs that are not masked."""
        p = self.forward
        of_pairs = p.flops // (p.head_dim + p.head_dim_v)
        return of_pairs * (3 * p.head_dim + 2 * p.head_dim_v)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors, each counted once."""
        p, size = self.forward, as_dtype(self.forward.dtype).itemsize
        of_rows = (p.total_q or p.batch * p.seqlen_q) * p.num_heads_q
        of_keys = (p.total_kv or p.batch * p.seqlen_kv) * p.num_heads_kv
        dims = p.head_dim + p.head_dim_v
        read = of_rows * (dims + p.head_dim_v) * size + of_keys * dims * size + of_rows * 4
        return read + (of_rows * p.head_dim + of_keys * dims) * self.element.itemsize

    def axes(self, operand: str) -> dict[str, int]:
        """Lengths of the axes batch, seq, head and dim of a tensor."""
        p, of_q = self.forward, operand in _OF_Q
        lengths = p.axes("q" if of_q else "k")
        return {**lengths, "dim": p.head_dim_v if operand in _OF_V else p.head_dim}

    def shape(self, operand: str, layout: str) -> tuple[int, ...]:
        """Shape of a tensor in `layout`."""
        lengths = self.axes(operand)
        return (*(lengths[axis] for axis in axis_order(layout)), lengths["dim"])


def backward_problem(
    q_shape: tuple[int, ...],
    k_shape: tuple[int, ...],
    v_shape: tuple[int, ...],
    layout: str,
    *,
    out_dtype: str = "",
    deterministic: bool = False,
    dlse: bool = False,
    **options: Any,
) -> BackwardProblem:
    """Read the problem off the shapes of q, k and v; `options` are AttentionProblem's fields."""
    forward = attention_problem(q_shape, k_shape, v_shape, layout, **options)
    return BackwardProblem(forward, out_dtype, deterministic, dlse)


def layout_of(problem: BackwardProblem, variant: str) -> str:
    """The layout of the tensors, for `axis_order`."""
    return VARLEN_LAYOUT if problem.forward.varlen else variant or "bshd"
