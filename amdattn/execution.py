"""Attention plans that can be run: checks, the memory of what was checked, launches."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, TypeVar

from amdattn import launch, manifest, runtime
from amdattn.buffers import DeviceArray, View, allocate, host_empty
from amdattn.dlpack import compact_strides
from amdattn.dtypes import FLOAT32, DType, as_dtype
from amdattn.errors import UnsupportedDeviceError
from amdattn.interchange import as_view, like
from amdattn.lengths import lengths_view
from amdattn.manifest import KernelSpec
from amdattn.operands import (
    LABELS,
    check_alignment,
    check_output,
    check_placement,
    check_shape,
    check_workspace,
    misalignment,
    operand,
    operand_of,
    wrong_for_blocks,
)
from amdattn.plan import Operand, Plan
from amdattn.plan.attention import plan_attention
from amdattn.plan.basis import SEQLEN_KV, with_keys
from amdattn.problem import VARLEN_LAYOUT, AttentionProblem, axis_order
from amdattn.staging import stage

_Kept = TypeVar("_Kept")
_QKV = 3
_TENSORS, _OF_KEYS = ("q", "k", "v", "o"), ("k", "v")
_OUTPUTS = ("o", "lse", "workspace")
_BYTES, _INT32 = as_dtype("uint8"), as_dtype("int32")
_MAX_KEPT = 64


class AttentionPlan(Plan):
    """A plan that can be run. Made by `plan_attention`; see `Plan` for what it holds."""

    _base: AttentionPlan | None = None  # that differs in the number of keys alone

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
            _bound={},
            _checked={},
            _expected_by_layout={},
        )
        return made

    _numbers: launch.Numbers = ()  # constant arguments that differ from those of `_base`

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
    def _prepared(self) -> tuple[launch.PreparedLaunch, ...]:
        """Of the plan that this was made from, if it was made from one."""
        return launch.prepare(self, runtime.get()) if self._base is None else self._base._prepared

    # Sets of device operands that passed every check, by the facts that the checks depend on. One
    # with every result that is seen again is packed, and then needs nothing but to be submitted.

    @functools.cached_property
    def _bound(self) -> dict[object, tuple[launch.BoundLaunch, ...]]:
        return {}

    @functools.cached_property
    def _checked(self) -> dict[object, dict[str, Operand]]:
        return {}

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
            results must be given.
        """
        handle = runtime.stream_handle(stream)
        inputs: tuple[View, ...] = (
            as_view(q, "q", handle),
            as_view(k, "k", handle),
            as_view(v, "v", handle),
        )
        given = sinks is not None or cu_seqlens_q is not None or cu_seqlens_k is not None
        if given or len(self.input_names) > _QKV:
            more = {"sinks": sinks, "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_kv": cu_seqlens_k}
            inputs += self._further_inputs(more, inputs[0].on_device, handle)
        return self.run_on_views(q, inputs, out, lse, layout, handle, workspace)

    def _further_inputs(
        self, given: Mapping[str, Any], on_device: bool, stream: int
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
                views.append(lengths_view(array, label, *rows[name], on_device, stream))
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
            launch.submit(bound, runtime.get(), stream)
        else:
            made: Mapping[str, Any]
            operands = self._checked.get(key)
            if operands is not None:
                made = self._run_again(operands, key, layout, stream)
            else:
                views = dict(zip(self.input_names, inputs, strict=True))
                given = dict(zip(_OUTPUTS, (o_view, lse_view, scratch), strict=True))
                outputs = {name: view for name, view in given.items() if view is not None}
                operands = self._admit(views, outputs, layout)
                if inputs[0].on_device:
                    made = self._run_on_device(operands, layout, stream)
                    keep(self._checked, key, operands)
                else:
                    made = self._run_on_host(views, outputs, layout, stream)
            out = like(kind, made["o"]) if out is None else out
            lse = like(kind, made["lse"]) if "lse" in made and lse is None else lse
        if isinstance(out, DeviceArray):
            out.stream = stream
        if isinstance(lse, DeviceArray):
            lse.stream = stream
        if isinstance(workspace, DeviceArray):
            workspace.stream = stream
        return (out, lse) if self.problem.return_lse else out

    def _admit(
        self, views: Mapping[str, View], outputs: Mapping[str, View], layout: str
    ) -> dict[str, Operand]:
        """The operands of what was given, after every check."""
        alike = layout, *[_but_for_keys(name, view) for name, view in {**views, **outputs}.items()]
        operands = self._admitted_alike(alike, views, outputs, layout)
        if operands is None:
            operands = self._check_all(views, outputs, layout)
            if views["q"].on_device and self._num_keys > 1:
                keep((self._base or self)._admitted, alike, operands)
        return operands

    @functools.cached_property
    def _admitted(self) -> dict[object, dict[str, Operand]]:
        return {}

    @property
    def _num_keys(self) -> int:
        return self.problem.total_kv or self.problem.seqlen_kv

    def _admitted_alike(
        self,
        alike: object,
        views: Mapping[str, View],
        outputs: Mapping[str, View],
        layout: str,
    ) -> dict[str, Operand] | None:
        """The same operands if they passed before with other numbers of keys, and do so again."""
        if self._base is None or self._num_keys == 1:  # a stride along one key counts for nothing
            return None
        operands = self._base._admitted.get(alike)
        if operands is None:
            return None
        expected = self._base._expected(layout, with_inputs=True)
        ranges = [output.extent() for output in outputs.values()]
        for name in _OF_KEYS:
            if views[name].shape != self._shape_of_keys(expected[name]):
                return None
            low, high = views[name].extent()
            if any([begin < high and low < end for begin, end in ranges]):
                return None
        return operands

    def _check_all(
        self, views: Mapping[str, View], outputs: Mapping[str, View], layout: str
    ) -> dict[str, Operand]:
        device = runtime.get()
        if device.props.arch != self.props.arch:
            raise UnsupportedDeviceError(
                f"this plan is for {self.props.arch}, but {device.props.name} "
                f"({device.props.arch}) is bound"
            )
        if "lse" in outputs and not self.problem.return_lse:
            raise ValueError("lse was given, but return_lse is false")
        arrays = {**views, **outputs}
        check_placement({LABELS.get(name, name): view for name, view in arrays.items()})
        return self._check(views, outputs, layout)

    def _run_on_device(
        self, operands: Mapping[str, Operand], layout: str, stream: int
    ) -> Mapping[str, DeviceArray]:
        """Launch on checked operands; allocate and return the results that are not among them."""
        made = self._allocate(operands, layout, stream)
        complete = self._with_results(operands, made, layout)
        launch.run(self._prepared, complete, runtime.get(), stream, self._numbers)
        return made

    def _run_again(
        self, operands: Mapping[str, Operand], key: object, layout: str, stream: int
    ) -> Mapping[str, DeviceArray]:
        """The same for operands that were seen before: packs them for good.

        Dropped results leave their memory to the next ones, so that operands recur with them.
        """
        made = self._allocate(operands, layout, stream)
        if made:
            key = key, *[array.address for array in made.values()]
        bound = self._bound.get(key)
        if bound is None:
            complete = self._with_results(operands, made, layout)
            bound = launch.bind(self._prepared, complete, self._numbers)
            keep(self._bound, key, bound)
        launch.submit(bound, runtime.get(), stream)
        return made

    def _allocate(
        self, operands: Mapping[str, Operand], layout: str, stream: int
    ) -> dict[str, DeviceArray]:
        """The results that are not among the operands, and the workspace if there is one.

        A workspace lives as long as this dictionary. The next user of its memory comes after this
        run: on the same stream, or after it has been waited for.
        """
        expected = (self._base or self)._expected(layout)
        missing = {name: x for name, x in expected.items() if name not in operands}
        nbytes = 0 if "workspace" in operands else self.workspace.total_bytes
        if not missing and not nbytes:
            return {}
        if stream and (missing or nbytes) and runtime.get().is_capturing(stream):
            raise ValueError(_capture_text(["out" if n == "o" else n for n in missing], nbytes))
        made = {name: allocate(x.shape, x.strides, x.dtype, stream) for name, x in missing.items()}
        if nbytes:
            made["workspace"] = allocate((nbytes,), (1,), _BYTES, stream)
        return made

    def _with_results(
        self, operands: Mapping[str, Operand], made: Mapping[str, DeviceArray], layout: str
    ) -> Mapping[str, Operand]:
        complete = dict(operands)
        expected = self._expected(layout)
        for name, array in made.items():
            strides = expected[name].axis_strides if name in expected else {}
            complete[name] = Operand(array.address, strides)
        for region in self.workspace.regions:
            complete[region.name] = Operand(complete["workspace"].address + region.offset, {})
        return complete

    def _run_on_host(
        self, views: Mapping[str, View], outputs: Mapping[str, View], layout: str, stream: int
    ) -> dict[str, Any]:
        """Copy in, run, copy out."""
        device = runtime.get()
        if stream and device.is_capturing(stream):
            raise ValueError(
                "q is on the host, but a graph is being captured from the stream: replays read and "
                "write device memory, so pass device arrays"
            )
        kernel = self._kernel
        axes = len(axis_order(layout)) + 1

        def aligned(view: View) -> bool:
            return len(view.shape) != axes or not misalignment(
                operand(view, layout), kernel, view.shape[-1]
            )

        staged, memory = stage(views, aligned, device, stream)
        expected = self._expected(layout, with_inputs=True)
        operands = {name: operand_of(view, expected[name].axes) for name, view in staged.items()}
        results: dict[str, Any] = {}
        made = self._run_on_device(operands, layout, stream)
        for name, array in made.items():
            if name != "workspace":
                host = host_empty(array.shape, self._expected(layout)[name].dtype)
                device.download(host.ctypes.data, array.address, host.nbytes, stream)
                results[name] = host
        device.synchronize(stream)
        del memory, made  # the kernels have finished: only now may their operands go
        for name, view in outputs.items():
            assert view.array is not None
            view.array[...] = results[name]
        return results

    def _expected(self, layout: str, with_inputs: bool = False) -> Mapping[str, _Expected]:
        """The results of the plan, "lse" only if it is asked for; or all operands."""
        key = layout, with_inputs
        expected = self._expected_by_layout.get(key)
        if expected is None:
            if self._base is None:
                names = ("o", *(("lse",) * self.problem.return_lse))
                expected = self._facts(layout, (*names, *(self.input_names * with_inputs)))
            else:  # only k and v have other shapes
                expected = self._base._expected(layout, with_inputs)
                if with_inputs:
                    keys = {name: self._of_keys(expected[name]) for name in _OF_KEYS}
                    expected = {**expected, **keys}
            self._expected_by_layout[key] = expected
        return expected

    def _of_keys(self, of_base: _Expected) -> _Expected:
        """What k or v must be, of what that of the plan with other keys must be."""
        return _Expected(self._shape_of_keys(of_base), of_base.dtype, of_base.axes)

    def _shape_of_keys(self, of_base: _Expected) -> tuple[int, ...]:
        seq, shape = of_base.axes.index("seq"), of_base.shape
        return (*shape[:seq], self._num_keys, *shape[seq + 1 :])

    def _facts(self, layout: str, names: tuple[str, ...]) -> dict[str, _Expected]:
        p = self.problem
        found = {}
        for name in names:
            if name in _TENSORS:
                facts = p.shape(name, layout), as_dtype(p.dtype), axis_order(layout)
            elif name == "lse":
                axes = ("head",) if p.varlen else ("batch", "head")
                facts = p.shape("lse", layout), FLOAT32, axes
            elif name == "sinks":
                facts = (p.num_heads_q,), FLOAT32, ()
            else:
                facts = (p.batch + 1,), _INT32, ()
            found[name] = _Expected.made(*facts) if name in _OUTPUTS else _Expected(*facts)
        return found

    @functools.cached_property
    def _expected_by_layout(self) -> dict[tuple[str, bool], Mapping[str, _Expected]]:
        return {}

    def _check(
        self, views: Mapping[str, View], outputs: Mapping[str, View], layout: str
    ) -> dict[str, Operand]:
        """The operands of what was given, after every check of them."""
        expected = self._expected(layout, with_inputs=True)
        taken: dict[str, View] = {}
        operands: dict[str, Operand] = {}
        for name, view in {**views, **outputs}.items():
            label = LABELS.get(name, name)
            if name == "workspace":
                check_workspace(view, self.workspace.total_bytes)
                operands[name] = operand_of(view, ())
            else:
                operands[name] = self._operand(name, view, label, expected[name], layout)
            if name in outputs:
                check_output(label, view, taken)
            taken[label] = view
        return operands

    def _operand(
        self, name: str, view: View, label: str, wanted: _Expected, layout: str
    ) -> Operand:
        """What a launch needs of one operand, whose shape, type and alignment are right."""
        # What is not of the keys is so for every number of them.
        known = (self._base or self)._known if name not in _OF_KEYS else None
        key = name, layout, view.facts
        if known is not None and (found := known.get(key)) is not None:
            return found
        check_shape(view, label, wanted.shape, wanted.dtype.name, layout)
        operand = operand_of(view, wanted.axes)
        if view.on_device and name in _TENSORS:
            of_blocks = name in _OF_KEYS and name not in self.problem.gather
            check_alignment(operand, label, self._kernel, wanted.shape[-1], of_blocks)
        if known is not None:
            keep(known, key, operand)
        return operand

    @functools.cached_property
    def _known(self) -> dict[object, Operand]:
        return {}

    @functools.cached_property
    def _kernel(self) -> KernelSpec:
        return self.forward.kernel


@dataclasses.dataclass(frozen=True, slots=True)
class _Expected:
    """What an operand must be; of a result also the strides of one that is made: compact."""

    shape: tuple[int, ...]
    dtype: DType
    axes: tuple[str, ...]  # all but the last, which has stride 1
    strides: tuple[int, ...] = ()
    axis_strides: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @staticmethod
    def made(shape: tuple[int, ...], dtype: DType, axes: tuple[str, ...]) -> _Expected:
        view = View(0, shape, compact_strides(shape), dtype, False, None)
        return _Expected(shape, dtype, axes, view.strides, operand_of(view, axes).strides)


def _capture_text(missing: list[str], nbytes: int) -> str:
    """What a run lacks that a graph is captured from; nothing can be allocated for it."""
    workspace = f"workspace= (a plan's run takes it, of {nbytes} bytes; with num_splits=1 none)"
    names = [*(f"{name}=" for name in missing), *([workspace] if nbytes else [])]
    return (
        "a graph is being captured from the stream: what its replays write must last as long as "
        f"the graph, so pass {' and '.join(names)}"
    )


def keep(cache: dict[object, _Kept], key: object, value: _Kept) -> None:
    """Remember a value, among a bounded number of them."""
    if len(cache) >= _MAX_KEPT:
        cache.clear()
    cache[key] = value


def _but_for_keys(name: str, view: View) -> object:
    """What checks of an operand depend on, but for how many keys there are."""
    if name in _OF_KEYS:
        return view.address, view.strides, view.dtype.name, view.on_device
    return name, view.facts


def output_view(x: Any, name: str, stream: int) -> View:
    """See the memory of an array that is to be written."""
    if isinstance(x, DeviceArray):
        return x.view_on(stream)
    if type(x).__module__.partition(".")[0] in ("jax", "jaxlib"):
        raise TypeError(f"{name} is a JAX array, which cannot be written; leave {name} out")
    return as_view(x, name, stream, is_output=True)
