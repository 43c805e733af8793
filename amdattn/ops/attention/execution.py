"""Attention plans that can be run: checks, the memory of what was checked, launches."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from amdattn import scalars
from amdattn.arrays.buffers import DeviceArray, View, allocate
from amdattn.arrays.interchange import as_view, like
from amdattn.device import manifest, runtime
from amdattn.device.manifest import KernelSpec
from amdattn.device.runtime import Runtime
from amdattn.dtypes import as_dtype
from amdattn.op import launch
from amdattn.op.cache import keep
from amdattn.op.operands import operand_of
from amdattn.op.outputs import capture_text, output_view
from amdattn.op.plan import Operand
from amdattn.op.staging import run_on_host
from amdattn.ops.attention.admission import Admission
from amdattn.ops.attention.alignment import misalignment, operand, wrong_for_blocks
from amdattn.ops.attention.basis import SEQLEN_KV, with_keys
from amdattn.ops.attention.lengths import lengths_view
from amdattn.ops.attention.planning import PlannedAttention, plan_attention
from amdattn.ops.attention.problem import LABELS, VARLEN_LAYOUT, AttentionProblem, axis_order

_QKV = 3
_OUTPUTS = ("o", "lse", "workspace")
_BYTES = as_dtype("uint8")


class AttentionPlan(PlannedAttention):
    """A plan that can be run. Made by `plan_attention`; see `Plan` for what it holds."""

    _base: AttentionPlan | None = None  # that differs in the number of keys alone
    _numbers: launch.Numbers = ()  # constant arguments that differ from those of `_base`

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
            _admission=self._admission.with_keys(problem),
            input_names=self.input_names,
            _kernel=self._kernel,
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

    @functools.cached_property
    def _prepared(self) -> launch.PreparedLaunches:
        """Of the plan that this was made from, if it was made from one."""
        if self._base is not None:
            return self._base._prepared
        return launch.PreparedLaunches(self.launches)

    # Sets of device operands that passed every check, by the facts that the checks depend on. One
    # with every result that is seen again is packed, and then needs nothing but to be submitted.

    @functools.cached_property
    def _bound(self) -> dict[object, launch.BoundLaunches]:
        return {}

    @functools.cached_property
    def _checked(self) -> dict[object, dict[str, Operand]]:
        return {}

    @functools.cached_property
    def _kernel(self) -> KernelSpec:
        return self.forward.kernel

    @functools.cached_property
    def _admission(self) -> Admission:
        nbytes = self.workspace.total_bytes
        return Admission(self.problem, self.props, self._kernel, nbytes, self.input_names)

    def to_gather(self, k: View, v: View, layout: str) -> str:
        """Which of k and v have rows that this plan cannot load blocks of: a plan's `gather`.

        Host arrays need none: they are copied to the device, and so that it can.
        """
        if not k.on_device:
            return ""
        kernel = self._kernel
        seq = axis_order(layout).index("seq")
        return "".join(
            name
            for name, view in (("k", k), ("v", v))
            if view.shape[seq] > 1 and wrong_for_blocks(view.strides[seq], view.shape[-1], kernel)
        )

    @functools.cached_property
    def input_names(self) -> tuple[str, ...]:
        """Operands that the plan reads, in the order that `run_on_views` takes them."""
        p = self.problem
        lengths = ("cu_seqlens_q", "cu_seqlens_kv")
        return ("q", "k", "v", *(("sinks",) * p.sinks), *(lengths * p.varlen))

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
            Compact, of at least ``plan.workspace.total_bytes`` bytes, for partial results; its
            contents are lost. Runs at the same time need workspaces of their own. Without it each
            run takes memory from the cache. While a graph is captured from `stream`, it and the
            results must be given. What was written on other streams before is waited for then, but
            for the default stream: replays on a stream that was made with hipStreamNonBlocking do
            not wait for it, so synchronize before.
        """
        handle = runtime.stream_handle(stream)
        if type(layout) is not str:
            layout = scalars.word("layout", layout)
        inputs: tuple[View, ...] = (
            as_view(q, "q", handle),
            as_view(k, "k", handle),
            as_view(v, "v", handle),
        )
        given = sinks is not None or cu_seqlens_q is not None or cu_seqlens_k is not None
        if given or len(self.input_names) > _QKV:
            more = {"sinks": sinks, "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_kv": cu_seqlens_k}
            inputs += self._further_inputs(more, inputs[0].ordinal, handle)
        return self.run_on_views(q, inputs, out, lse, layout, handle, workspace)

    def _further_inputs(
        self, given: Mapping[str, Any], ordinal: int | None, stream: int
    ) -> tuple[View, ...]:
        p = self.problem
        rows = {
            "cu_seqlens_q": (p.total_q, p.seqlen_q),
            "cu_seqlens_kv": (p.total_kv, p.seqlen_kv),
        }
        views = []
        for name, array in given.items():
            label = LABELS.get(name, name)
            if name not in self.input_names:
                if array is not None:
                    raise ValueError(f"{label} was given, but the plan has none")
            elif name in rows:
                views.append(lengths_view(array, label, *rows[name], ordinal, stream))
            else:
                views.append(as_view(array, label, stream))
        return tuple(views)

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
        if len(inputs[0].shape) == len(VARLEN_LAYOUT) and self.problem.varlen:
            layout = VARLEN_LAYOUT
        o_view = None if out is None else output_view(out, "out", stream)
        lse_view = None if lse is None else output_view(lse, "lse", stream)
        scratch = None if workspace is None else output_view(workspace, "workspace", stream)
        key: tuple[object, ...] = (
            layout,
            inputs[0].facts,
            inputs[1].facts,
            inputs[2].facts,
            o_view and o_view.facts,
            lse_view and lse_view.facts,
            scratch and scratch.facts,
        )
        if len(inputs) > _QKV:
            key += tuple([view.facts for view in inputs[_QKV:]])
        bound = self._bound.get(key)
        if bound is not None:
            launch.submit(bound, stream)
        else:
            device = runtime.get(inputs[0].ordinal)
            made: Mapping[str, Any]
            operands = self._checked.get(key)
            if operands is not None:
                made = self._run_again(operands, key, layout, device, stream)
            else:
                views = dict(zip(self.input_names, inputs, strict=True))
                given = dict(zip(_OUTPUTS, (o_view, lse_view, scratch), strict=True))
                outputs = {name: view for name, view in given.items() if view is not None}
                operands = self._admission.admit(views, outputs, layout)
                if inputs[0].on_device:
                    made = self._run_on_device(operands, layout, device, stream)
                    keep(self._checked, key, operands)
                else:
                    made = self._run_on_host(views, outputs, layout, device, stream)
            out = like(kind, made["o"]) if out is None else out
            lse = like(kind, made["lse"]) if "lse" in made and lse is None else lse
        if isinstance(out, DeviceArray):
            out.stream = stream
        if isinstance(lse, DeviceArray):
            lse.stream = stream
        if isinstance(workspace, DeviceArray):
            workspace.stream = stream
        return (out, lse) if self.problem.return_lse else out

    def _run_on_device(
        self, operands: Mapping[str, Operand], layout: str, device: Runtime, stream: int
    ) -> Mapping[str, DeviceArray]:
        """Launch on checked operands; allocate and return the results that are not among them."""
        made = self._allocate(operands, layout, device, stream)
        complete = self._with_results(operands, made, layout)
        launch.run(self._prepared.on(device), complete, device, stream, self._numbers)
        return made

    def _run_again(
        self,
        operands: Mapping[str, Operand],
        key: object,
        layout: str,
        device: Runtime,
        stream: int,
    ) -> Mapping[str, DeviceArray]:
        """The same for operands that were seen before: packs them for good.

        Dropped results leave their memory to the next ones, so that operands recur with them.
        """
        made = self._allocate(operands, layout, device, stream)
        if made:
            key = key, *[array.address for array in made.values()]
        bound = self._bound.get(key)
        if bound is None:
            complete = self._with_results(operands, made, layout)
            bound = launch.bind(self._prepared.on(device), complete, device, self._numbers)
            keep(self._bound, key, bound)
        launch.submit(bound, stream)
        return made

    def _allocate(
        self, operands: Mapping[str, Operand], layout: str, device: Runtime, stream: int
    ) -> dict[str, DeviceArray]:
        """The results that are not among the operands, and the workspace if there is one.

        A workspace lives as long as this dictionary. The next user of its memory comes after this
        run: on the same stream, or after it has been waited for.
        """
        expected = self._admission.expected(layout)
        missing = {name: x for name, x in expected.items() if name not in operands}
        nbytes = 0 if "workspace" in operands else self.workspace.total_bytes
        if not missing and not nbytes:
            return {}
        if stream and (missing or nbytes) and device.is_capturing(stream):
            raise ValueError(capture_text(["out" if n == "o" else n for n in missing], nbytes))
        made = {
            name: allocate(x.shape, x.strides, x.dtype, stream, device)
            for name, x in missing.items()
        }
        if nbytes:
            made["workspace"] = allocate((nbytes,), (1,), _BYTES, stream, device)
        return made

    def _with_results(
        self, operands: Mapping[str, Operand], made: Mapping[str, DeviceArray], layout: str
    ) -> Mapping[str, Operand]:
        complete = dict(operands)
        expected = self._admission.expected(layout)
        for name, array in made.items():
            strides = expected[name].axis_strides if name in expected else {}
            complete[name] = Operand(array.address, strides)
        for region in self.workspace.regions:
            complete[region.name] = Operand(complete["workspace"].address + region.offset, {})
        return complete

    def _run_on_host(
        self,
        views: Mapping[str, View],
        outputs: Mapping[str, View],
        layout: str,
        device: Runtime,
        stream: int,
    ) -> dict[str, Any]:
        kernel = self._kernel
        axes = len(axis_order(layout)) + 1

        def aligned(view: View) -> bool:
            return len(view.shape) != axes or not misalignment(
                operand(view, layout), kernel, view.shape[-1]
            )

        def run(staged: Mapping[str, View]) -> Mapping[str, DeviceArray]:
            expected = self._admission.expected(layout, with_inputs=True)
            operands = {name: operand_of(x, expected[name].axes) for name, x in staged.items()}
            return self._run_on_device(operands, layout, device, stream)

        return run_on_host(views, outputs, aligned, run, device, stream)
