"""Attention plans that can be run, also those of a cache of keys that grows with every call."""

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
    """A plan that can be run. Made by `plan_attention`; see `Plan` for what it holds."""

    result_names: ClassVar[tuple[str, ...]] = ("o", "lse")
    result_labels: ClassVar[tuple[str, ...]] = ("out", "lse")
    default_variant: ClassVar[str] = "bshd"
    _base: AttentionPlan | None = None  # that differs in the number of keys alone

    # -- operands --------------------------------------------------------------------------------

    def operands(self, variant: str) -> Specs:
        """Q, k, v, what else the plan reads, o and lse; `variant` is the layout."""
        if self._base is not None:  # only k and v have other shapes
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
        """What in the address or strides of q, k, v or o the kernel's loads cannot take."""
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
        """The plan of a problem that has an equal `basis`: other keys, and all else the same."""
        made: AttentionPlan = object.__new__(AttentionPlan)
        # Without launches and reasons, which are worked out when they are asked for.
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
        """The operands of what was given, after every check."""
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
        """The same operands if they passed before with other numbers of keys, and do so again."""
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
        """What launches need of one operand, after its own checks."""
        if spec.name in _OF_KEYS:
            return super().admit_one(spec, view, variant)
        known = (self._base or self)._known
        key = spec.name, variant, view.facts
        found = known.get(key)
        if found is None:
            found = super().admit_one(spec, view, variant)
            keep(known, key, found)
        return found

    # -- rows that no block is loaded of ---------------------------------------------------------

    def to_gather(self, k: View, v: View, layout: str) -> str:
        """Which of k and v have rows that this plan cannot load blocks of: a plan's `gather`.

        Host arrays need none: they are copied to the device, and so that it can.
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
        """Run the plan on arrays of its shapes; parameters and results as `flash_attn_func`.

        With device arrays for q, k, v, `out`, `lse` if the plan returns it, and `workspace` if the
        plan has one, nothing is allocated. Safe from any thread and on any stream.

        Parameters
        ----------
        lse : array, float32, (batch, num_heads_q, seqlen_q), optional
            Of last stride 1; written instead of a new array. Only for a plan with `return_lse`.
        sinks, cu_seqlens_q, cu_seqlens_k : array
            As `flash_attn_func` and `flash_attn_varlen_func` take them, for plans that need them.
        workspace : device array, optional
            Compact, of at least ``plan.workspace.total_bytes`` bytes, for partial results: of
            `new_workspace`, or with 0 in the first ``plan.workspace.zero_bytes`` of them, which a
            run leaves 0 (see `GemmPlan.run` for what became of one that was aborted); the other
            contents are lost. Runs at the same time need workspaces of their own. Without it each
            run takes memory from the cache. While a graph is captured from `stream`, it and the
            results must be given. What was written on other streams before is waited for then, but
            for the default stream: replays on a stream that was made with hipStreamNonBlocking do
            not wait for it, so synchronize before.
        """
        if type(layout) is not str or layout not in LAYOUTS:
            layout = scalars.word("layout", layout)
            axis_order(layout)  # refuses what is none
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
        """As `run`, with the `input_names` seen as views already.

        Results are of the kind of the array `kind`.
        """
        results = self.execute(kind, inputs, (out, lse), layout, stream, workspace)
        return results if self.problem.return_lse else results[0]


def _but_for_keys(name: str, view: View) -> object:
    """What checks of an operand depend on, but for how many keys there are."""
    if name in _OF_KEYS:
        return view.address, view.strides, view.dtype.name, view.ordinal
    return name, view.facts
