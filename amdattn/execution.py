"""Attention plans that can be run: checks, the memory of what was checked, launches."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, TypeVar

from amdattn import launch, runtime
from amdattn.buffers import DeviceArray, View, allocate, host_empty
from amdattn.dlpack import compact_strides
from amdattn.dtypes import DType, as_dtype
from amdattn.errors import UnsupportedDeviceError
from amdattn.interchange import as_view, like
from amdattn.operands import (
    check_alignment,
    check_output,
    check_placement,
    check_shape,
    is_compact,
    misalignment,
    operand,
)
from amdattn.plan import Operand, Plan
from amdattn.staging import stage

_Kept = TypeVar("_Kept")
_Inputs = tuple[View, View, View]
_LABELS = {"o": "out", "lse": "lse"}  # what callers call the results
_MAX_KEPT = 64


class AttentionPlan(Plan):
    """A plan that can be run. Made by `plan_attention`; see `Plan` for what it holds."""

    @functools.cached_property
    def _prepared(self) -> tuple[launch.PreparedLaunch, ...]:
        return launch.prepare(self, runtime.get())

    # Sets of device operands that passed every check, by the facts that the checks depend on. One
    # with every result that is seen again is packed, and then needs nothing but to be submitted.

    @functools.cached_property
    def _bound(self) -> dict[object, tuple[launch.BoundLaunch, ...]]:
        return {}

    @functools.cached_property
    def _checked(self) -> dict[object, dict[str, Operand]]:
        return {}

    def run(
        self,
        q: Any,
        k: Any,
        v: Any,
        out: Any = None,
        *,
        lse: Any = None,
        layout: str = "bshd",
        stream: Any = None,
    ) -> Any:
        """Run the plan on arrays of its shapes; parameters and results as `flash_attn_func`.

        With device arrays for q, k, v, `out` (and `lse`, if the plan returns it) nothing is
        allocated. Safe from any thread and on any stream.

        Parameters
        ----------
        lse : array, float32, (batch, num_heads_q, seqlen_q), optional
            Compact; written instead of a new array. Only for a plan with `return_lse`.
        """
        handle = runtime.stream_handle(stream)
        inputs = as_view(q, "q", handle), as_view(k, "k", handle), as_view(v, "v", handle)
        return self.run_on_views(q, inputs, out, lse, layout, handle)

    def run_on_views(
        self, q: Any, inputs: _Inputs, out: Any, lse: Any, layout: str, stream: int
    ) -> Any:
        """As `run`, with q, k and v seen as views already; results are of the kind of `q`."""
        q_view, k_view, v_view = inputs
        o_view = None if out is None else _output_view(out, "out", stream)
        lse_view = None if lse is None else _output_view(lse, "lse", stream)
        key = (
            layout,
            q_view.facts,
            k_view.facts,
            v_view.facts,
            o_view and o_view.facts,
            lse_view and lse_view.facts,
        )
        bound = self._bound.get(key)
        if bound is not None:
            launch.submit(bound, runtime.get(), stream)
        else:
            views = {"q": q_view, "k": k_view, "v": v_view}
            outputs = {
                name: view for name, view in (("o", o_view), ("lse", lse_view)) if view is not None
            }
            made = self._run_unbound(views, outputs, key, layout, stream)
            out = like(q, made["o"]) if out is None else out
            lse = like(q, made["lse"]) if "lse" in made and lse is None else lse
        if isinstance(out, DeviceArray):
            out.stream = stream
        if isinstance(lse, DeviceArray):
            lse.stream = stream
        return (out, lse) if self.problem.return_lse else out

    def _run_unbound(
        self,
        views: Mapping[str, View],
        outputs: Mapping[str, View],
        key: object,
        layout: str,
        stream: int,
    ) -> dict[str, Any]:
        """Check and run; the results that were not given, as arrays in the place of the inputs."""
        device = runtime.get()
        operands = self._checked.get(key)
        if operands is None:
            if device.props.arch != self.props.arch:
                raise UnsupportedDeviceError(
                    f"this plan is for {self.props.arch}, but {device.props.name} "
                    f"({device.props.arch}) is bound"
                )
            if "lse" in outputs and not self.problem.return_lse:
                raise ValueError("lse was given, but return_lse is false")
            labelled = {**views, **{_LABELS[name]: view for name, view in outputs.items()}}
            check_placement(labelled)
            operands = self._check(views, outputs, layout)
            if not views["q"].on_device:
                return self._run_on_host(views, outputs, layout, stream)
            labelled_operands = {_LABELS.get(name, name): x for name, x in operands.items()}
            check_alignment(labelled_operands, self.launches[0].kernel)
            _keep(self._checked, key, operands)
        elif operands.keys() >= self._expected(layout).keys():
            _keep(self._bound, key, launch.bind(self._prepared, operands))
        return self._run_on_device(operands, layout, stream)

    def _run_on_device(
        self, operands: dict[str, Operand], layout: str, stream: int
    ) -> dict[str, DeviceArray]:
        """Launch on checked operands; allocate and return the results that are not among them."""
        made = {}
        operands = operands.copy()
        for name, expected in self._expected(layout).items():
            if name not in operands:
                array = made[name] = allocate(expected.shape, expected.strides, expected.dtype)
                array.stream = stream
                operands[name] = Operand(array.address, expected.axis_strides)
        launch.run(self._prepared, operands, runtime.get(), stream)
        return made

    def _run_on_host(
        self, views: Mapping[str, View], outputs: Mapping[str, View], layout: str, stream: int
    ) -> dict[str, Any]:
        """Copy in, run, copy out."""
        device = runtime.get()
        kernel = self.launches[0].kernel
        staged, memory = stage(
            views, lambda view: not misalignment(operand(view, layout), kernel), device, stream
        )
        operands = {name: operand(view, layout) for name, view in staged.items()}
        if not self.problem.return_lse:
            operands["lse"] = launch.ABSENT
        results: dict[str, Any] = {}
        for name, array in self._run_on_device(operands, layout, stream).items():
            host = host_empty(array.shape, self._expected(layout)[name].dtype)
            device.download(host.ctypes.data, array.address, host.nbytes, stream)
            results[name] = host
        device.synchronize(stream)
        del memory  # the kernel has finished: only now may its operands go
        for name, view in outputs.items():
            assert view.array is not None
            view.array[...] = results[name]
        return results

    def _expected(self, layout: str) -> dict[str, _Expected]:
        """Every operand of the plan, "lse" only if it is asked for."""
        expected = self._expected_by_layout.get(layout)
        if expected is None:
            p = self.problem
            expected = {
                name: _Expected.of(p.shape(name, layout), p.dtype, layout) for name in "qkvo"
            }
            if p.return_lse:
                lse_shape = (p.batch, p.num_heads_q, p.seqlen_q)
                expected["lse"] = _Expected.of(lse_shape, "float32", layout)
            self._expected_by_layout[layout] = expected
        return expected

    @functools.cached_property
    def _expected_by_layout(self) -> dict[str, dict[str, _Expected]]:
        return {}

    def _check(
        self, views: Mapping[str, View], outputs: Mapping[str, View], layout: str
    ) -> dict[str, Operand]:
        """Every check that does not depend on the kernel; the operands of what was given."""
        expected = self._expected(layout)
        for name, view in views.items():
            check_shape(view, name, expected[name].shape, expected[name].dtype.name, layout)
        taken = dict(views)
        for name, view in outputs.items():
            label = _LABELS[name]
            check_shape(view, label, expected[name].shape, expected[name].dtype.name, layout)
            if name == "lse" and not is_compact(view):
                raise ValueError(f"lse has strides {view.strides} (elements); it must be compact")
            check_output(label, view, taken)
            taken[label] = view
        operands = {name: operand(view, layout) for name, view in {**views, **outputs}.items()}
        if not self.problem.return_lse:
            operands["lse"] = launch.ABSENT
        return operands


@dataclasses.dataclass(frozen=True, slots=True)
class _Expected:
    """What an operand must be, and the strides of one that is made for it: compact."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    axis_strides: Mapping[str, int]

    @staticmethod
    def of(shape: tuple[int, ...], dtype: str, layout: str) -> _Expected:
        element = as_dtype(dtype)
        view = View(0, shape, compact_strides(shape), element, False, None)
        return _Expected(shape, view.strides, element, operand(view, layout).strides)


def _keep(cache: dict[object, _Kept], key: object, value: _Kept) -> None:
    if len(cache) >= _MAX_KEPT:
        cache.clear()
    cache[key] = value


def _output_view(x: Any, name: str, stream: int) -> View:
    if isinstance(x, DeviceArray):
        return x.view_on(stream)
    if type(x).__module__.partition(".")[0] in ("jax", "jaxlib"):
        raise TypeError(f"{name} is a JAX array, which cannot be written; leave {name} out")
    return as_view(x, name, stream)
