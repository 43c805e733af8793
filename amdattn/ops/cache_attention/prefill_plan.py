"""Runnable plans of attention of many queries over a cache."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from amdattn.arrays.views import View
from amdattn.device.manifest import KernelSpec
from amdattn.op.plan import Operand
from amdattn.op.spec import OperandSpec
from amdattn.ops.attention.alignment import wrong_for_blocks
from amdattn.ops.attention.select import ATTENTION
from amdattn.ops.cache_attention.decode_plan import DecodePlan
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem
from amdattn.scalars import INT32_MAX

_CACHES = ("k_cache", "v_cache")


def apart(strides: Mapping[str, int], seqlen_q: int, is_query: bool) -> str:
    """The reason why rows of all sequences are not evenly spaced, or ""."""
    whole = seqlen_q * strides["seq"]
    if strides["batch"] == whole:
        return ""
    unless = " unless the plan copies queries (copies)" * is_query
    return (
        f"batch stride {strides['batch']}, which must be {whole}, seqlen_q times the seq "
        f"stride{unless}"
    )


class PrefillPlan(DecodePlan):
    """A plan that can be run, from `plan_prefill`; see `Plan` for its contents."""

    problem: PrefillProblem

    def misfit(self, spec: OperandSpec, operand: Operand) -> str:
        """The reason why kernels do not support the address or strides of an operand, or ""."""
        if wrong := super().misfit(spec, operand):
            return wrong
        p, strides = self.problem, operand.strides
        if spec.name in _CACHES and not p.copies_keys:
            return self._unread(strides, spec.shape[-1])
        of_rows = spec.name == "out" or (spec.name == "q" and not p.copies_queries)
        if of_rows and not p.is_ragged and p.batch > 1 < p.seqlen_q:
            return apart(strides, p.seqlen_q, spec.name == "q")
        return ""

    def admit(
        self, inputs: Mapping[str, View], outputs: Mapping[str, View], variant: str
    ) -> dict[str, Operand]:
        """Check the given arrays and return the operands."""
        operands = super().admit(inputs, outputs, variant)
        if inputs["q"].on_device:
            self.check_together(operands)
        return operands

    def misfit_of_copy(self, spec: OperandSpec, operand: Operand) -> str:
        """Sequences of both caches begin at the same rows where these have no gaps."""
        p = self.problem
        if spec.name in _CACHES and not p.copies_keys and p.num_pages > 1:
            apart = self._rows_of_entry(operand.strides)
            # The stride of a single key is taken to be that of heads.
            whole = p.page_keys if p.page_keys > 1 else p.num_heads_kv
            if apart != whole:
                return f"sequences {apart} rows apart, which must be {whole}"
        return self.misfit(spec, operand)

    def check_together(self, operands: Mapping[str, Operand]) -> None:
        """Check that sequences begin at the same rows of both caches, if no copy is made."""
        if self.problem.copies_keys:
            return
        k, v = (self._rows_of_entry(operands[name].strides) for name in _CACHES)
        if k != v:
            raise ValueError(
                f"sequences of k_cache are {k} rows apart, those of v_cache {v}; both must be the "
                "same unless the plan copies them (copies)"
            )

    # -- operands with strides that kernels do not support ---------------------------------------

    def to_copy(self, views: Mapping[str, View]) -> str:
        """The operands whose strides require copies, as the `copies` of a plan.

        Host arrays need none, because they are copied to the device with suitable strides.
        """
        p = self.problem
        if not views["q"].on_device:
            return p.copies
        copies = {name: self.operand(spec, views[name]) for name, spec in self._read_as_they_lie}
        wants_q = p.copies_queries or ("q" in copies and bool(self._misfit("q", copies["q"])))
        wants_kv = p.copies_keys
        if not wants_kv:
            strides = [copies[name].strides for name in _CACHES]
            wrong = [self._misfit(name, copies[name]) for name in _CACHES]
            wants_kv = any(wrong) or len(set(map(self._rows_of_entry, strides))) > 1
        return "q" * wants_q + "kv" * wants_kv

    @functools.cached_property
    def _read_as_they_lie(self) -> tuple[tuple[str, OperandSpec], ...]:
        p, specs = self.problem, self.specs()
        names = ("q",) * (not p.copies_queries) + _CACHES * (not p.copies_keys)
        return tuple((name, specs[name]) for name in names)

    def _misfit(self, name: str, operand: Operand) -> str:
        """The reason against the strides alone; an unaligned address also prevents copies."""
        return self.misfit(self.specs()[name], Operand(0, operand.strides))

    def _unread(self, strides: Mapping[str, int], dim: int) -> str:
        """The reason why the forward kernel cannot read keys without a copy."""
        unless = " unless the plan copies its rows (copies)"
        if wrong := wrong_for_blocks(strides["seq"], dim, self._forward):
            return f"{wrong}{unless}"
        if self.problem.num_pages == 1:
            return ""
        page, seq = strides["page"], strides["seq"]
        if page % max(seq, 1) or not 0 <= page // max(seq, 1) * self.problem.num_pages <= INT32_MAX:
            return (
                f"page stride {page}, which must be a whole number of rows of {seq} elements, of "
                f"all sequences less than {INT32_MAX}{unless}"
            )
        return ""

    def _rows_of_entry(self, strides: Mapping[str, int]) -> int:
        if self.problem.num_pages == 1:
            return 0
        return strides["page"] // max(strides["seq"], 1)

    @functools.cached_property
    def _forward(self) -> KernelSpec:
        return next(one.kernel for one in self.launches if one.kernel.op == ATTENTION)
