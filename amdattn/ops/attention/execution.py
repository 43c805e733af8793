"""Runnable plans of attention, also for a cache of keys that grows with every call."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar

from amdattn import scalars
from amdattn.arrays.interchange import as_view
from amdattn.arrays.views import View
from amdattn.device import manifest, runtime
from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import FLOAT32, as_dtype
from amdattn.op.cache import keep
from amdattn.op.colocation import view_colocated
from amdattn.op.executor import RunnablePlan
from amdattn.op.plan import Operand
from amdattn.op.spec import HostCheck, OperandSpec, Specs
from amdattn.ops.attention.alignment import misalignment, wrong_for_blocks
from amdattn.ops.attention.basis import SEQLEN_KV, with_keys
from amdattn.ops.attention.lengths import SumsOfLengths
from amdattn.ops.attention.planning import PlannedAttention, plan_attention
from amdattn.ops.attention.problem import (
    LABELS,
    LAYOUTS,
    VARLEN_LAYOUT,
    AttentionProblem,
    axis_order,
)

_TENSORS, _OF_KEYS = ("q", "k", "v", "o"), ("k", "v")
_INT32 = as_dtype("int32")


class AttentionPlan(PlannedAttention, RunnablePlan[AttentionProblem]):
    """A plan that can be run, from `plan_attention`; see `Plan` for its contents."""

    result_names: ClassVar[tuple[str, ...]] = ("o", "lse")
    result_labels: ClassVar[tuple[str, ...]] = ("out", "lse")
    default_variant: ClassVar[str] = "bshd"
    _base: AttentionPlan | None = None  # a plan that differs only in the number of keys

    # -- operands --------------------------------------------------------------------------------

    def operands(self, variant: str) -> Specs:
        """Specs of q, k, v, other inputs of the plan, o and lse; `variant` is the layout."""
        if self._base is not None:  # only the shapes of k and v differ
            base = self._base.specs(variant)
            sums = dataclasses.replace(base["cu_seqlens_kv"], host_check=self._key_sums)
            keys = {
                name: dataclasses.replace(base[name], shape=self._shape_of_keys(base[name]))
                for name in _OF_KEYS
            }
            return {**base, **keys, "cu_seqlens_kv": sums}
        p = self.problem
        layout = VARLEN_LAYOUT if p.varlen else variant
        order, element = axis_order(layout), as_dtype(p.dtype)
        specs = [
            *(OperandSpec(name, "in", p.shape(name, layout), element, order) for name in "qkv"),
            OperandSpec(
                *("sinks", "in", (p.num_heads_q,), FLOAT32, ()),
                present=p.sinks,
                condition="sinks",
                host_check=view_colocated,
            ),
            *(
                OperandSpec(
                    *(name, "in", (p.batch + 1,), _INT32, (), LABELS.get(name, name)),
                    present=p.varlen,
                    condition="total_q",
                    host_check=check,
                )
                for name, check in (
                    ("cu_seqlens_q", SumsOfLengths(p.total_q, p.seqlen_q)),
                    ("cu_seqlens_kv", self._key_sums),
                )
            ),
            OperandSpec(
                *("o", "out", p.shape("o", layout), element, order, "out"), partly=p.varlen
            ),
            OperandSpec(
                *("lse", "out", p.shape("lse", layout), FLOAT32),
                ("head",) if p.varlen else ("batch", "head"),
                present=p.return_lse,
                condition="return_lse",
                partly=p.varlen,
            ),
        ]
        return {spec.name: dataclasses.replace(spec, layout=layout) for spec in specs}

    def misfit(self, spec: OperandSpec, operand: Operand) -> str:
        """The reason why the kernel cannot load q, k, v or o with these strides, or ""."""
        if spec.name not in _TENSORS:
            return ""
        of_blocks = spec.name in _OF_KEYS and spec.name not in self.problem.gather
        wrong = misalignment(operand, self._kernel, spec.shape[-1], of_blocks)
        return wrong and f"{wrong} for kernel {self._kernel.name}"

    @functools.cached_property
    def _kernel(self) -> KernelSpec:
        return self.forward.kernel

    # -- one key more ----------------------------------------------------------------------------

    def with_keys(self, problem: AttentionProblem) -> AttentionPlan:
        """The plan of a problem with an equal `basis`, which differs only in the keys."""
        made: AttentionPlan = object.__new__(AttentionPlan)
        # Launches and reasons are computed when they are needed.
        made.__dict__.update(
            problem=problem,
            props=self.props,
            _numbers=((SEQLEN_KV, problem.seqlen_kv),),
            workspace=self.workspace,
            _base=self,
            input_names=self.input_names,
            _kernel=self._kernel,
            _can_be_bound=self._can_be_bound,
            _updated=self._updated,
            _prepared=self._prepared,
            _made=self._made,
            _steps=self._steps,
            _specs={},
            _bound={},
            _checked={},
        )
        return made

    def __getattr__(self, name: str) -> Any:
        if name == "launches" and self._base is not None:
            found: Any = with_keys(self._base.launches, self.problem.seqlen_kv)
        elif name == "reasons":
            found = plan_attention(self.problem, self.props, manifest.kernels()).reasons
        else:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.__dict__[name] = found
        return found

    @property
    def _key_sums(self) -> HostCheck:
        return SumsOfLengths(self.problem.total_kv, self.problem.seqlen_kv)

    @property
    def _num_keys(self) -> int:
        return self.problem.total_kv or self.problem.seqlen_kv

    def _shape_of_keys(self, of_base: OperandSpec) -> tuple[int, ...]:
        seq, shape = of_base.axes.index("seq"), of_base.shape
        return (*shape[:seq], self._num_keys, *shape[seq + 1 :])

    # What has nothing to do with the keys and passed for one number of them passes for all.
    @functools.cached_property
    def _admitted(self) -> dict[object, dict[str, Operand]]:
        return {}

    @functools.cached_property
    def _known(self) -> dict[object, Operand]:
        return {}

    def admit(
        self, inputs: Mapping[str, View], outputs: Mapping[str, View], variant: str
    ) -> dict[str, Operand]:
        """Check the given arrays and return the operands."""
        alike = (
            variant,
            *[_but_for_keys(name, view) for name, view in {**inputs, **outputs}.items()],
        )
        operands = self._admitted_alike(alike, inputs, outputs, variant)
        if operands is None:
            operands = super().admit(inputs, outputs, variant)
            if inputs["q"].on_device and self._num_keys > 1:
                keep((self._base or self)._admitted, alike, operands)
        return operands

    def _admitted_alike(
        self,
        alike: object,
        inputs: Mapping[str, View],
        outputs: Mapping[str, View],
        variant: str,
    ) -> dict[str, Operand] | None:
        """The operands, if the arrays passed checks before with another number of keys."""
        if self._base is None or self._num_keys == 1:  # a stride along one key counts for nothing
            return None
        operands = self._base._admitted.get(alike)
        if operands is None:
            return None
        specs = self._base.specs(variant)
        ranges = [output.extent() for output in outputs.values()]
        for name in _OF_KEYS:
            if inputs[name].shape != self._shape_of_keys(specs[name]):
                return None
            low, high = inputs[name].extent()
            if any([begin < high and low < end for begin, end in ranges]):
                return None
        return operands

    def admit_one(self, spec: OperandSpec, view: View, variant: str) -> Operand:
        """Check one array and return its operand for launches."""
        if spec.name in _OF_KEYS:
            return super().admit_one(spec, view, variant)
        known = (self._base or self)._known
        key = spec.name, variant, view.facts
        found = known.get(key)
        if found is None:
            found = super().admit_one(spec, view, variant)
            keep(known, key, found)
        return found

    # -- rows from which no block can be loaded --------------------------------------------------

    def to_gather(self, k: View, v: View, layout: str) -> str:
        """Which of k and v have rows from which this plan cannot load blocks, as a plan's `gather`.

        Host arrays need no gather, because they are copied to the device with suitable strides.
        """
        if k.ordinal is None:
            return ""
        seq, k_least, v_least, most = self._block_steps(layout)
        if k_least <= k.strides[seq] <= most and v_least <= v.strides[seq] <= most:
            return ""
        return "".join(
            name
            for name, view in (("k", k), ("v", v))
            if view.shape[seq] > 1
            and wrong_for_blocks(view.strides[seq], view.shape[-1], self._kernel)
        )

    @functools.cached_property
    def _steps(self) -> dict[str, tuple[int, int, int, int]]:
        return {}

    def _block_steps(self, layout: str) -> tuple[int, int, int, int]:
        """Axis of the rows of k and v, and strides that are right for any number of them."""
        found = self._steps.get(layout)
        if found is None:
            least, most = self._kernel.accepts["kv_stride_seq"]
            dims = self.problem.head_dim, self.problem.head_dim_v
            seq = axis_order(layout).index("seq")
            found = seq, *[dim if least == 0 else least for dim in dims], most
            self._steps[layout] = found
        return found

    # -- runs ------------------------------------------------------------------------------------

    def run(
        self,
        q: Any,
        k: Any,
        v: Any,
        out: Any = None,
        *,
        lse: Any = None,
        sinks: Any = None,
        cu_seqlens_q: Any = None,
        cu_seqlens_k: Any = None,
        layout: str = "bshd",
        workspace: Any = None,
        stream: Any = None,
    ) -> Any:
        """Run the plan on arrays of its shapes; parameters and results as in `flash_attn_func`.

        If q, k, v, `out`, `lse` (if the plan returns it) and `workspace` (if the plan has one) are
        device arrays, nothing is allocated. It is safe on any thread and any stream.

        Parameters
        ----------
        lse : array, float32, (batch, num_heads_q, seqlen_q), optional
            Written instead of a new array; its last stride must be 1. Only for a plan with
            `return_lse`.
        sinks, cu_seqlens_q, cu_seqlens_k : array
            As in `flash_attn_func` and `flash_attn_varlen_func`, for plans that need them.
        workspace : device array, optional
            Compact memory of at least ``plan.workspace.total_bytes`` bytes for partial results:
            from `new_workspace`, or with 0 in the first ``plan.workspace.zero_bytes`` bytes. A run
            leaves these 0 (see `GemmPlan.run` for a run that was aborted) and overwrites the rest.
            Concurrent runs need separate workspaces. Without it each run takes memory from the
            cache. While a graph is captured from `stream`, the workspace and the results must be
            given. The capture then waits for earlier writes on other streams, except the default
            stream: replays on a stream that was made with hipStreamNonBlocking do not wait for it,
            so synchronize before.
        """
        if type(layout) is not str or layout not in LAYOUTS:
            layout = scalars.word("layout", layout)
            axis_order(layout)  # raises for an unknown layout
        if sinks is None and cu_seqlens_q is None and cu_seqlens_k is None and self._is_plain:
            handle = runtime.stream_handle(stream)
            views = as_view(q, "q", handle), as_view(k, "k", handle), as_view(v, "v", handle)
            results = self.execute(q, views, (out, lse), layout, handle, workspace)
            return results if self.problem.return_lse else results[0]
        given = dict(zip("qkv", (q, k, v), strict=True))
        given |= {"sinks": sinks, "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_kv": cu_seqlens_k}
        inputs, handle = self.views_of(given, stream)
        return self.run_on_views(q, inputs, out, lse, layout, handle, workspace)

    @functools.cached_property
    def _is_plain(self) -> bool:
        return len(self.input_names) == len("qkv")

    def run_on_views(
        self,
        kind: Any,
        inputs: tuple[View, ...],
        out: Any,
        lse: Any,
        layout: str,
        stream: int,
        workspace: Any = None,
    ) -> Any:
        """Like `run`, but the inputs, in the order of `input_names`, are views.

        New results are arrays of the library of `kind`.
        """
        results = self.execute(kind, inputs, (out, lse), layout, stream, workspace)
        return results if self.problem.return_lse else results[0]


def _but_for_keys(name: str, view: View) -> object:
    """The facts on which checks of an operand depend, except the number of keys."""
    if name in _OF_KEYS:
        return view.address, view.strides, view.dtype.name, view.ordinal
    return name, view.facts
