"""Plans of attention of many queries over a cache that can be run."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from amdattn.arrays.buffers import View
from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import FLOAT32, as_dtype
from amdattn.op.indices import private
from amdattn.op.plan import Operand
from amdattn.op.spec import OperandSpec, Specs
from amdattn.ops.attention.alignment import wrong_for_blocks
from amdattn.ops.attention.lengths import SumsOfLengths
from amdattn.ops.attention.select import ATTENTION
from amdattn.ops.cache_attention.decode_plan import DecodePlan
from amdattn.ops.cache_attention.indices import IndexCheck, check_pages
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem
from amdattn.scalars import INT32_MAX

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_INT32 = as_dtype("int32")
_CACHES = ("k_cache", "v_cache")


class PrefillPlan(DecodePlan):
    """A plan that can be run. Made by `plan_prefill`; see `Plan` for what it holds."""

    problem: PrefillProblem

    def operands(self, variant: str) -> Specs:
        """As of a plan of few queries; chunks of several lengths are the rows of all."""
        p, specs = self.problem, dict(super().operands(variant))
        room, total = p.max_seqlen_kv - p.seqlen_new, p.max_total_kv - p.batch * p.seqlen_new
        is_bounded = total < p.batch * room
        if p.max_seqlen_kv < p.seqlen_kv or is_bounded:
            check = IndexCheck(
                *((p.batch,), room, f"max_seqlen_k={p.max_seqlen_kv} is declared"),
                *((total, f"max_total_k={p.max_total_kv} is declared") if is_bounded else ()),
            )
            typical = functools.partial(_alike, min(room, total // p.batch), p.batch)
            specs["cache_seqlens"] = dataclasses.replace(
                specs["cache_seqlens"], host_check=check, typical=typical
            )
        if p.is_ragged:
            used = specs["cache_seqlens"]
            specs["cache_seqlens"] = dataclasses.replace(used, label="seqused_k")
            for name in _CACHES:
                specs[name] = dataclasses.replace(specs[name], label=name[0])
        last = {name: specs.pop(name) for name in ("sinks", "out", "lse")}
        for name, label, present, total, longest in (
            ("cu_seqlens_q", "", p.is_ragged, p.total_q, p.seqlen_q),
            ("cu_seqlens_kv", "cu_seqlens_k", p.has_key_sums, p.max_total_kv, p.max_seqlen_kv),
        ):
            specs[name] = OperandSpec(
                *(name, "in", (p.batch + 1,), _INT32, (), label),
                present=present,
                condition="total_q",
                host_check=SumsOfLengths(total, longest),
                typical=functools.partial(_sums, total, longest, p.batch),
            )
        specs |= last
        if p.is_ragged:
            for name, dim in (("q", p.head_dim), ("out", p.head_dim_v)):
                specs[name] = dataclasses.replace(
                    specs[name],
                    shape=(p.total_q, p.num_heads_q, dim),
                    axes=("seq", "head"),
                    layout="total_q, num_heads, head_dim",
                    partly=name == "out",
                )
            shape = p.num_heads_q, p.total_q
            specs["lse"] = OperandSpec(
                *("lse", "out", shape, FLOAT32, ("head",)),
                present=p.return_lse,
                condition="return_lse",
                layout="num_heads, total_q",
                partly=True,
            )
        return specs

    def misfit(self, spec: OperandSpec, operand: Operand) -> str:
        """What in the address or strides of an operand kernels cannot take."""
        if wrong := super().misfit(spec, operand):
            return wrong
        p, strides = self.problem, operand.strides
        if spec.name in _CACHES and not p.copies_keys:
            return self._unread(strides, spec.shape[-1])
        of_rows = spec.name == "out" or (spec.name == "q" and not p.copies_queries)
        if of_rows and not p.is_ragged and p.batch > 1 < p.seqlen_q:
            whole = p.seqlen_q * strides["seq"]
            if strides["batch"] != whole:
                unless = " unless the plan copies queries (copies)" * (spec.name == "q")
                return (
                    f"batch stride {strides['batch']}, which must be {whole}, seqlen_q times the "
                    f"seq stride{unless}"
                )
        return ""

    def admit(
        self, inputs: Mapping[str, View], outputs: Mapping[str, View], variant: str
    ) -> dict[str, Operand]:
        """The operands of what was given, after every check."""
        operands = super().admit(inputs, outputs, variant)
        if inputs["q"].on_device:
            self.check_together(operands)
        return operands

    def misfit_of_copy(self, spec: OperandSpec, operand: Operand) -> str:
        """Sequences of both caches begin at the same rows where these have no gaps."""
        p = self.problem
        if spec.name in _CACHES and not p.copies_keys and p.num_pages > 1:
            apart = self._rows_of_entry(operand.strides)
            # The step of a lone key is taken to be that of heads.
            whole = p.page_keys if p.page_keys > 1 else p.num_heads_kv
            if apart != whole:
                return f"sequences {apart} rows apart, which must be {whole}"
        return self.misfit(spec, operand)

    def check_together(self, operands: Mapping[str, Operand]) -> None:
        """That sequences begin at the same rows of both caches, if these are read as they lie."""
        if self.problem.copies_keys:
            return
        k, v = (self._rows_of_entry(operands[name].strides) for name in _CACHES)
        if k != v:
            raise ValueError(
                f"sequences of k_cache are {k} rows apart, those of v_cache {v}; both must be the "
                "same unless the plan copies them (copies)"
            )

    # -- what lies so that no kernel reads it ----------------------------------------------------

    def to_copy(self, views: Mapping[str, View]) -> str:
        """What of these has strides of which this plan needs copies: a plan's `copies`.

        Host arrays need none: they are copied to the device, and so that it can.
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
        """Of strides alone: an address that is wrong for loads is wrong for copies."""
        return self.misfit(self.specs()[name], Operand(0, operand.strides))

    def _unread(self, strides: Mapping[str, int], dim: int) -> str:
        """Why the forward kernel does not read keys as they lie."""
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

    # -- runs ------------------------------------------------------------------------------------

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
        cu_seqlens_q: Any = None,
        cu_seqlens_k: Any = None,
    ) -> Any:
        """Run the plan on arrays of its shapes; parameters, results as `flash_attn_with_kvcache`.

        Parameters
        ----------
        cu_seqlens_q, cu_seqlens_k : array
            As `flash_attn_varlen_func` takes them, for a plan with `total_q`; `cu_seqlens_k` for
            one without `cache_seqlens`, which are what it calls seqused_k.
        workspace : device array, optional
            Of `new_workspace`, as `GemmPlan.run` takes it. While a graph is captured it must be
            given.
        """
        p = self.problem
        given = {"q": q, "k_cache": k_cache, "v_cache": v_cache, "k": k, "v": v}
        given |= {"rotary_cos": rotary_cos, "rotary_sin": rotary_sin}
        given |= {"cache_seqlens": cache_seqlens, "cache_batch_idx": cache_batch_idx}
        given |= {"cache_leftpad": cache_leftpad, "block_table": block_table}
        given |= {"k_descale": k_descale, "v_descale": v_descale}
        given |= {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_kv": cu_seqlens_k, "sinks": sinks}
        for name in COUNTED if p.page_size else ():
            given[name] = private(given[name], name)
        views, handle = self.views_of(given, stream)
        if p.page_size:
            check_pages_of(p, given)
        results = self.execute(q, views, (out, lse), "", handle, workspace)
        return results if p.return_lse else results[0]


# What tells which pages are used.
COUNTED = ("block_table", "cache_seqlens", "cu_seqlens_q", "cu_seqlens_kv")


def check_pages_of(problem: PrefillProblem, given: Mapping[str, Any]) -> None:
    """That pages on the host are there, as far as is known which are used; of `private` ones."""
    p = problem
    lengths = lengths_of_sums(given["cu_seqlens_kv"]) if p.has_key_sums else given["cache_seqlens"]
    chunks = lengths_of_sums(given["cu_seqlens_q"]) if p.is_ragged else p.seqlen_q
    check_pages(given["block_table"], lengths, p, chunks)


def lengths_of_sums(sums: Any) -> Any:
    """Lengths of sequences of sums on the host; of others these, which nobody knows here."""
    import numpy as np

    return np.diff(sums) if isinstance(sums, np.ndarray) else sums


def _alike(value: int, count: int) -> NDArray[np.int32]:
    import numpy as np

    return np.full(count, value, np.int32)


def _sums(total: int, longest: int, count: int) -> NDArray[np.int32]:
    """Of sequences that are equally long, as far as rows suffice."""
    import numpy as np

    each = min(longest, -(-total // count))
    return np.minimum(np.arange(count + 1) * each, total).astype(np.int32)
