"""Kernel arguments of every launch of gradients of attention. Pure."""

from __future__ import annotations

import ctypes

from amdattn.device.manifest import KernelSpec
from amdattn.op.plan import Address, Argument, Stride
from amdattn.ops.attention_backward.kernels import BACKWARD, ROUND, ROWS, SINKS, SUM
from amdattn.ops.attention_backward.problem import BackwardProblem
from amdattn.ops.attention_backward.splitting import (
    Splits,
    first_split_row,
    in_order,
    key_blocks,
    row_tiles,
    rows_of_keys,
)
from amdattn.scalars import LOG2_E


def arguments_of(
    problem: BackwardProblem, kernel: KernelSpec, splits: Splits, heads_at_once: int
) -> dict[tuple[str, str], Argument]:
    """Arguments of every launch, by `KernelSpec.op` and field."""
    p = problem.forward
    sums = "dq" if problem.keeps_floats else "dq_sums"
    tiles = row_tiles(kernel, problem)
    lengths: dict[str, Argument] = {
        name: Address(name) if p.varlen else 0 for name in ("cu_seqlens_q", "cu_seqlens_kv")
    }
    order: Argument = Address("order") if in_order(problem) else 0
    heads = p.batch * p.num_heads_kv
    scale = p.softmax_scale or 0.0
    window_left, window_right = p.window
    main: dict[str, Argument] = {
        **{name: Address(name) for name in ("q", "k", "v", "dout", "rows")},
        "dq": Address(sums),
        "turns": Address("turns") if problem.deterministic else 0,
        **lengths,
        "order": order,
        **_strides(problem, "q", "k", "v", "dout", "dk", "dv"),
        **_strides_of_sums(problem, "dq"),
        **_results(problem, splits),
        **{name: getattr(p, name) for name in _SIZES},
        "softmax_scale": scale,
        "softmax_scale_log2": p.softmax_scale_log2,
        "softcap": p.softcap,
        "inverse_softcap": scale / p.softcap if p.softcap else 0.0,
        "window_left": window_left,
        "window_right": window_right,
        "top_left": int(p.top_left),
        "of_head": key_blocks(kernel, problem),
        "row_tiles": tiles,
        "heads": heads,
        "heads_at_once": heads_at_once,
        "keeps_floats": int(problem.keeps_floats),
        "head_splits": splits.heads,
        "row_splits": splits.rows,
        "whole_blocks": splits.whole_blocks,
        "whole_rows": splits.whole_rows,
    }
    of_sums: dict[str, Argument] = {
        **{name: Address(name) for name in ("dk_sums", "dv_sums", "dk", "dv")},
        **lengths,
        **_strides(problem, "dk", "dv"),
        "rows": rows_of_keys(problem),
        "seqlen": p.total_kv or p.seqlen_kv,
        "num_heads": p.num_heads_kv,
        "splits": splits.count,
        "head_dim": p.head_dim,
        "head_dim_v": p.head_dim_v,
        "sequences": p.batch,
        "whole_blocks": splits.whole_blocks,
        "whole_rows": splits.whole_rows,
        "first_row": first_split_row(kernel, problem, splits, heads_at_once),
        "heads_at_once": heads_at_once,
        "block_keys": kernel.tile["kv"],
        "keeps_floats": int(problem.keeps_floats),
        "padding": 0,
    }
    of_rows: dict[str, Argument] = {
        **{name: Address(name) for name in ("o", "dout", "lse", "rows")},
        "dlse": Address("dlse") if problem.dlse else 0,
        "dq": Address(sums),
        "cu_seqlens_q": lengths["cu_seqlens_q"],
        "order": order,
        **_strides(problem, "o", "dout"),
        **_strides_of_sums(problem, "dq"),
        "lse_stride_batch": 0 if p.varlen else Stride("lse", "batch"),
        "lse_stride_head": Stride("lse", "head"),
        "dlse_stride_batch": Stride("dlse", "batch") if problem.dlse and not p.varlen else 0,
        "dlse_stride_head": Stride("dlse", "head") if problem.dlse else 0,
        **{name: getattr(p, name) for name in ("seqlen_q", "head_dim", "head_dim_v")},
        "row_tiles": tiles,
        "tile_rows": kernel.tile["q"],
        "num_heads": p.num_heads_q,
        "batch": p.batch,
        **_log2_factor(problem),
        "padding": 0,
    }
    of_sinks: dict[str, Argument] = {
        **{name: Address(name) for name in ("rows", "sinks", "dsinks")},
        "batch": p.batch,
        "num_heads": p.num_heads_q,
        "row_tiles": tiles,
        "tile_rows": kernel.tile["q"],
        **_log2_factor(problem),
    }
    rounding: dict[str, Argument] = {
        "from": Address(sums),
        "to": Address("dq"),
        "cu_seqlens_q": lengths["cu_seqlens_q"],
        **_strides_of_sums(problem, "from"),
        **{name.replace("dq", "to"): value for name, value in _strides(problem, "dq").items()},
        "seqlen": p.total_q or p.seqlen_q,
        "num_heads": p.num_heads_q,
        "columns": p.head_dim,
        "sequences": p.batch,
    }
    return {
        (op, name): value
        for op, args in (
            *((BACKWARD, main), (ROWS, of_rows), (SUM, of_sums), (SINKS, of_sinks)),
            (ROUND, rounding),
        )
        for name, value in args.items()
    }


def _results(problem: BackwardProblem, splits: Splits) -> dict[str, Argument]:
    """Where dk and dv go; splits write float32 to the workspace, with heads outermost."""
    p, found = problem.forward, dict[str, Argument]()
    for name, columns in (("dk", p.head_dim), ("dv", p.head_dim_v)):
        rows, is_split = p.total_kv or p.seqlen_kv, splits.count > 1
        strides = {
            "batch": 0 if p.varlen else p.num_heads_kv * rows * columns,
            "seq": columns,
            "head": rows * columns,
            "split": rows_of_keys(problem) * columns,
        }
        found[name] = Address(name) if splits.some_are_whole else 0
        found[f"{name}_sums"] = Address(f"{name}_sums") if is_split else 0
        found[f"{name}_stride_split"] = strides.pop("split") if is_split else 0
        for axis, stride in strides.items():
            found[f"{name}_sums_stride_{axis}"] = stride if is_split else 0
    return found


def _log2_factor(problem: BackwardProblem) -> dict[str, Argument]:
    """The factor from natural logarithms to base 2 in the main kernel, as a sum of two float32.

    The kernel scales scores by a rounded float32. The log-sum-exp gets the same rounding error, so
    that for scores far from 0 only the difference matters.
    """
    p = problem.forward
    exact, rounded = p.softmax_scale or 0.0, _float32(p.softmax_scale_log2)
    if p.softcap:
        exact, rounded = p.softcap, _float32(p.softcap * _float32(LOG2_E))
    factor = rounded / exact if abs(rounded) > _LEAST_SCALE else LOG2_E
    return {"log2_factor": _float32(factor), "log2_rest": factor - _float32(factor)}


def _float32(x: float) -> float:
    return ctypes.c_float(x).value


_LEAST_SCALE = 2.0**-100  # for greater scales the rounding error is relative
_SIZES = ("num_heads_q", "num_heads_kv", "seqlen_q", "seqlen_kv", "head_dim", "head_dim_v")
_AXES = ("batch", "seq", "head")


def _strides(problem: BackwardProblem, *operands: str) -> dict[str, Argument]:
    """Strides of operands by field; that of the batch is 0 for sequences of several lengths."""
    return {
        f"{operand}_stride_{axis}": (
            0 if problem.forward.varlen and axis == "batch" else Stride(operand, axis)
        )
        for operand in operands
        for axis in _AXES
    }


def _strides_of_sums(problem: BackwardProblem, field: str) -> dict[str, Argument]:
    """Strides of the float32 sums of dq: those of dq, or compact ones in the workspace."""
    p = problem.forward
    if problem.keeps_floats:
        strides = _strides(problem, "dq")
        return {name.replace("dq", field): value for name, value in strides.items()}
    row = p.num_heads_q * p.head_dim
    return {
        f"{field}_stride_batch": 0 if p.varlen else p.seqlen_q * row,
        f"{field}_stride_seq": row,
        f"{field}_stride_head": p.head_dim,
    }
