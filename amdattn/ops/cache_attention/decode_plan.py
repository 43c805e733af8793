"""Plans of attention over a cache that can be run."""

from __future__ import annotations

import functools
from collections.abc import Mapping
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
_NOT_READ = ("out", "lse", "workspace", "stream")
_BY_BLOCKS = ("k_cache", "v_cache", "k", "v")


class CachePlan(RunnablePlan[P]):
    """What plans of attention over a cache have in common."""

    result_names: ClassVar[tuple[str, ...]] = ("out", "lse")
    result_labels: ClassVar[tuple[str, ...]] = ("out", "lse")

    def _run_on(
        self, given: dict[str, Any], out: Any, lse: Any, workspace: Any, stream: Any
    ) -> Any:
        """Run on operands by name, in their order."""
        problem: Any = self.problem
        for name in COUNTED if problem.own.page_size else ():
            if given.get(name) is not None:
                given[name] = private(given[name], name)
        views, handle = self.views_of(given, stream)
        if problem.own.page_size:
            check_pages(given, problem.own)
        results = self.execute(given["q"], views, (out, lse), "", handle, workspace)
        return results if self.specs()["lse"].present else results[0]

    def _run_on_all(self, arrays: tuple[Any, ...], others: Mapping[str, Any]) -> Any:
        """Run on all that a caller gives: arrays in their order, others by name."""
        given = {**dict(zip(_LOADED, arrays, strict=False)), **others}
        results = [given.get(name) for name in _NOT_READ]
        return self._run_on({name: given.get(name) for name in self._takes}, *results)

    @functools.cached_property
    def _takes(self) -> tuple[str, ...]:
        """What callers may give, in the order of the operands."""
        return tuple(spec.name for spec in self.specs().values() if spec.role != "out")


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

    def run(
        self,
        q: Any,
        k_cache: Any,
        v_cache: Any,
        k: Any = None,
        v: Any = None,
        *,
        rotary_cos: Any = None,
        rotary_sin: Any = None,
        cache_seqlens: Any = None,
        cache_batch_idx: Any = None,
        cache_leftpad: Any = None,
        block_table: Any = None,
        sinks: Any = None,
        k_descale: Any = None,
        v_descale: Any = None,
        out: Any = None,
        lse: Any = None,
        workspace: Any = None,
        stream: Any = None,
    ) -> Any:
        """Run the plan on arrays of its shapes; parameters, results as `flash_attn_with_kvcache`.

        Parameters
        ----------
        workspace : device array, optional
            Of `new_workspace`, as `GemmPlan.run` takes it. While a graph is captured it must be
            given if the plan has one.
        """
        given = {"q": q, "k_cache": k_cache, "v_cache": v_cache, "k": k, "v": v}
        given |= {"rotary_cos": rotary_cos, "rotary_sin": rotary_sin}
        given |= {"cache_seqlens": cache_seqlens, "cache_batch_idx": cache_batch_idx}
        given |= {"cache_leftpad": cache_leftpad, "block_table": block_table}
        given |= {"k_descale": k_descale, "v_descale": v_descale, "sinks": sinks}
        return self._run_on(given, out, lse, workspace, stream)


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
