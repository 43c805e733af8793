"""Runnable plans of attention over a cache."""

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
# The offset of a load covers 16 keys, chunks and columns of a head; it must be below 2^30 bytes.
_MOST_STRIDE = {"seq": 2**25, "column_chunk": 2**23, "column": 2**20, "seq_chunk": 2**25}
_LOADED = ("q", "k_cache", "v_cache", "k", "v", "out")
_IN_ORDER = ("q", "k_cache", "v_cache", "k", "v")
_BY_BLOCKS = ("k_cache", "v_cache", "k", "v")


class CachePlan(RunnablePlan[P]):
    """The common base of plans of attention over a cache."""

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
        """Run the plan on arrays of its shapes; parameters and results are the function's.

        Parameters
        ----------
        *arrays
            q, k_cache, v_cache, k and v, as in `flash_attn_with_kvcache`.
        workspace : device array, optional
            From `new_workspace`, as in `GemmPlan.run`. It is required while a graph is captured, if
            the plan has one.
        **operands
            Other arrays of `flash_attn_with_kvcache` by name. For a plan with `total_q`, also
            cu_seqlens_q of `flash_attn_varlen_func`, and cu_seqlens_k unless the plan has
            `cache_seqlens` (there called seqused_k). For a cascade, k_prefix, v_prefix and
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
        """Names of the inputs that callers may give, in the order of the operands."""
        return tuple(spec for spec in self.specs().values() if spec.role != "out")


class DecodePlan(CachePlan[DecodeProblem]):
    """A plan that can be run, from `plan_decode`; see `Plan` for its contents."""

    def operands(self, variant: str) -> Specs:
        """Specs of q, the caches, appended rows, indices and lengths, out and lse."""
        return operands(self.problem)

    def misfit(self, spec: OperandSpec, operand: Operand) -> str:
        """The reason why kernels do not support the address or strides of an operand, or ""."""
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
    """The reason why rows have gaps between them, or ""."""
    step = spec.shape[-1]
    for axis, length in zip(reversed(spec.axes), reversed(spec.shape[:-1]), strict=True):
        if length > 1 and operand.strides[axis] != step:
            return f"{axis} stride {operand.strides[axis]}, which must be {step}, without gaps"
        step *= length
    return ""
