"""Runnable plans of attention over a shared prefix and own keys."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from amdattn.arrays.views import View
from amdattn.device import manifest
from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import as_dtype
from amdattn.op.plan import Operand
from amdattn.op.spec import OperandSpec, Specs
from amdattn.ops.attention.alignment import misalignment
from amdattn.ops.attention.select import ATTENTION
from amdattn.ops.cache_attention.cascade_planning import PREFIX_O, QUERIES, own_plan
from amdattn.ops.cache_attention.cascade_problem import CascadeProblem
from amdattn.ops.cache_attention.decode_plan import CachePlan, DecodePlan
from amdattn.ops.cache_attention.indices import IndexCheck
from amdattn.ops.cache_attention.operands import in_order, operands
from amdattn.ops.cache_attention.prefill_plan import PrefillPlan, apart

_PREFIX = ("k_prefix", "v_prefix")


class CascadePlan(CachePlan[CascadeProblem]):
    """A plan that can be run, from `plan_cascade`; see `Plan` for its contents."""

    def operands(self, variant: str) -> Specs:
        """Specs of the operands of attention over the cache alone, and of the prefix."""
        p, own = self.problem, self.problem.own
        of_prefix = [
            OperandSpec(
                *(name, "in", (p.prefix_len, own.num_heads_kv, dim), as_dtype(own.dtype)),
                ("seq", "head"),
                present=not p.prefix_pages,
                condition="prefix_pages",
                layout="prefix_len, num_heads of k_cache, head_dim",
            )
            for name, dim in zip(_PREFIX, (own.head_dim, own.head_dim_v), strict=True)
        ]
        table = OperandSpec(
            *("prefix_table", "in", (p.prefix_pages,), as_dtype("int32"), ()),
            present=p.prefix_pages > 0,
            condition="prefix_pages",
            host_check=IndexCheck((p.prefix_pages,), own.num_pages - 1, "the pages of k_cache"),
            typical=functools.partial(in_order, own.num_pages, p.prefix_pages),
        )
        specs = operands(own, *of_prefix, table)
        specs["lse"] = dataclasses.replace(specs["lse"], present=p.return_lse)
        least = own.seqlen_q - own.seqlen_new
        if own.causal and least > 0:
            lengths = specs["cache_seqlens"]
            assert isinstance(lengths.host_check, IndexCheck)
            why = f"with causal as many as the {own.seqlen_q} queries"
            why += " with those of k" * (own.seqlen_new > 0)
            check = dataclasses.replace(lengths.host_check, least=least, why_least=why)
            specs["cache_seqlens"] = dataclasses.replace(lengths, host_check=check)
        return specs

    def misfit(self, spec: OperandSpec, operand: Operand) -> str:
        """The reason why kernels do not support the address or strides of an operand, or ""."""
        if spec.name in _PREFIX:
            cache = dataclasses.replace(spec, name=f"{spec.name[0]}_cache")
            wrong = DecodePlan.misfit(self.own, cache, operand)
            if not wrong and self._tiled is not None:
                wrong = misalignment(operand, self._tiled, spec.shape[-1])
            return wrong.replace(" unless the plan gathers its rows (gather)", "")
        if wrong := self.own.misfit(spec, operand):
            return wrong
        own = self.problem.own
        if spec.name == "q" and not self._copies_queries and own.batch > 1 < own.seqlen_q:
            return apart(operand.strides, own.seqlen_q, True)
        return ""

    @functools.cached_property
    def _tiled(self) -> KernelSpec | None:
        """The forward kernel that attends over the prefix, if one does."""
        of_prefix = [one.kernel for one in self.launches if PREFIX_O in one.writes]
        return next((kernel for kernel in of_prefix if kernel.op == ATTENTION), None)

    @functools.cached_property
    def _copies_queries(self) -> bool:
        return any(region.name == QUERIES for region in self.workspace.regions)

    def to_copy(self, q: View) -> str:
        """Whether q has strides of which this plan needs a copy: a plan's `copies`."""
        operand = self.operand(self.specs()["q"], q)
        wrong = q.on_device and self.misfit(self.specs()["q"], Operand(0, operand.strides))
        return "q" if wrong else self.problem.copies

    def admit(
        self, inputs: Mapping[str, View], outputs: Mapping[str, View], variant: str
    ) -> dict[str, Operand]:
        """Check the given arrays and return the operands."""
        operands = super().admit(inputs, outputs, variant)
        if isinstance(self.own, PrefillPlan) and inputs["q"].on_device:
            self.own.check_together(operands)
        return operands

    def misfit_of_copy(self, spec: OperandSpec, operand: Operand) -> str:
        """See attention over the cache alone."""
        if spec.name in ("k_cache", "v_cache"):
            return self.own.misfit_of_copy(spec, operand)
        return self.misfit(spec, operand)

    @functools.cached_property
    def own(self) -> DecodePlan:
        """The plan of attention over the cache alone, with its requirements on operands."""
        kind = PrefillPlan if self.problem.is_chunked else DecodePlan
        return kind.of(own_plan(self.problem.own, self.props, manifest.kernels()))
