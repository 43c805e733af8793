"""Plans of attention over a cache that can be run."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

from amdattn.op.executor import RunnablePlan
from amdattn.op.indices import private
from amdattn.op.plan import Operand, P
from amdattn.op.spec import OperandSpec, Specs
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from amdattn.ops.cache_attention.indices import COUNTED, check_pages
from amdattn.ops.cache_attention.operands import operands
from amdattn.scalars import INT32_MAX

ALIGN_BYTES = 16  # of what a lane loads at a time
_STRIDE_MULTIPLE = 8
# A load's offset has rows of 16 keys, chunks and columns of a head: less than 2^30 bytes.
_MOST_STRIDE = {"seq": 2**25, "column_chunk": 2**23, "column": 2**20, "seq_chunk": 2**25}
_LOADED = ("q", "k_cache", "v_cache", "k", "v", "out")
_IN_ORDER = ("q", "k_cache", "v_cache", "k", "v")
_BY_BLOCKS = ("k_cache", "v_cache", "k", "v")


class CachePlan(RunnablePlan[P]):
    """What plans of attention over a cache have in common."""

    result_names: ClassVar[tuple[str, ...]] = ("out", "lse")
    result_labels: ClassVar[tuple[str, ...]] = ("out", "lse")

    def run(
        self,
        *arrays: Any,
        out: Any = None,
        lse: Any = None,
        workspace: Any = None,
        stream: Any = None,
        **operands: Any,
    ) -> Any:
        """Run the plan on arrays of its shapes; parameters and results as of the planned function.

        Parameters
        ----------
        *arrays
            q, k_cache, v_cache, k and v, as `flash_attn_with_kvcache` takes them.
        workspace : device array, optional
            Of `new_workspace`, as `GemmPlan.run` takes it. While a graph is captured it must be
            given if the plan has one.
        **operands
            Arrays by name: what else `flash_attn_with_kvcache` takes; cu_seqlens_q and
            cu_seqlens_k of `flash_attn_varlen_func`, for a plan with `total_q` (cu_seqlens_k for
            one without `cache_seqlens`, which are what it calls seqused_k); k_prefix, v_prefix and
            prefix_table of `cascade_attention`.
        """
        problem: Any = self.problem
        if len(arrays) > len(_IN_ORDER):
            raise TypeError(f"run() takes {len(_IN_ORDER)} arrays in order, not {len(arrays)}")
        operands |= dict(zip(_IN_ORDER, arrays, strict=False))
        if "cu_seqlens_k" in operands:
            operands["cu_seqlens_kv"] = operands.pop("cu_seqlens_k")
        given = {spec.name: operands.pop(spec.name, None) for spec in self._inputs}
        if operands:
            raise TypeError(f"run() got an unexpected keyword argument {min(operands)!r}")
        if problem.own.page_size:
            for name in COUNTED:
                if given.get(name) is not None:
                    given[name] = private(given[name], name)
        views, handle = self.views_of(given, stream)
        if problem.own.page_size:
            check_pages(given, problem.own)
        results = self.execute(given["q"], views, (out, lse), "", handle, workspace)
        return results if self.specs()["lse"].present else results[0]

    @functools.cached_property
    def _inputs(self) -> tuple[OperandSpec, ...]:
        """What callers may give, in the order of the operands."""
        return tuple(spec for spec in self.specs().values() if spec.role != "out")


class DecodePlan(CachePlan[DecodeProblem]):
    """A plan that can be run. Made by `plan_decode`; see `Plan` for what it holds."""

    def operands(self, variant: str) -> Specs:
        """Q, the caches, what is appended to them, what tells keys from others, out and lse."""
        return operands(self.problem)

    def misfit(self, spec: OperandSpec, operand: Operand) -> str:
        """What in the address or strides of an operand kernels cannot take."""
        if spec.name in _LOADED:
            return _misalignment(spec, operand)
        if spec.name in ("lse", "rotary_cos", "rotary_sin"):
            return _gaps(spec, operand)
        step = operand.strides.get("batch", 0)
        if spec.name == "block_table" and not 0 <= step <= INT32_MAX:
            return f"batch stride {step}, which must be in 0..{INT32_MAX} elements"
        return ""


def _misalignment(spec: OperandSpec, operand: Operand) -> str:
    if operand.address % ALIGN_BYTES:
        return f"address {operand.address:#x}, which must be a multiple of {ALIGN_BYTES} bytes"
    for axis, step in operand.strides.items():
        if step % _STRIDE_MULTIPLE:
            return f"{axis} stride {step}, which must be a multiple of {_STRIDE_MULTIPLE} elements"
        most = _MOST_STRIDE.get(axis)
        if spec.name in _BY_BLOCKS and most and not 0 <= step <= most:
            return f"{axis} stride {step}, which must be in 0..{most} elements"
    return ""


def _gaps(spec: OperandSpec, operand: Operand) -> str:
    """That rows do not lie one behind the other."""
    step = spec.shape[-1]
    for axis, length in zip(reversed(spec.axes), reversed(spec.shape[:-1]), strict=True):
        if length > 1 and operand.strides[axis] != step:
            return f"{axis} stride {operand.strides[axis]}, which must be {step}, without gaps"
        step *= length
    return ""
