"""Attention: check, plan, run."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from amdattn import launch, manifest, runtime
from amdattn.buffers import DeviceArray, View, empty, host_empty
from amdattn.device import DeviceProps, as_device_props
from amdattn.dtypes import FLOAT32, DType, as_dtype
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
from amdattn.plan import Operand, Plan, attention as planning
from amdattn.problem import AttentionProblem, attention_problem
from amdattn.staging import stage


def flash_attn_func(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    *,
    out: Any = None,
    return_lse: bool = False,
    layout: str = "bshd",
    round_mode: str = "rtne",
    num_splits: int = 0,
    stream: Any = None,
) -> Any:
    """Attention forward: ``softmax(softmax_scale * q @ k^T) @ v`` for every batch and head.

    Parameters
    ----------
    q : array, bfloat16, (batch, seqlen_q, num_heads_q, head_dim)
        numpy (with ml_dtypes), `DeviceArray`, or any DLPack array on the CPU or the bound device.
        Any strides, the last one 1; nothing is transposed or made contiguous on the device.
    k, v : array, bfloat16, (batch, seqlen_kv, num_heads_kv, head_dim)
        `num_heads_kv` divides `num_heads_q`: each KV head serves a group of query heads.
    dropout_p : float
        Must be 0.
    softmax_scale : float, optional
        Defaults to ``1 / sqrt(head_dim)``.
    causal, window_size, softcap
        Not built yet: only False, (-1, -1) and 0.
    out : array, optional
        Written instead of a new array; shaped like the result, sharing no memory with the inputs.
    return_lse : bool
        Return ``(out, lse)``.
    layout : {"bshd", "bhsd"}
        Order of the axes of q, k, v and the result.
    round_mode : {"rtne"}
        Rounding of the probabilities to bfloat16 before ``p @ v``.
    num_splits : int
        0 lets the plan choose; splits of the KV range are not built yet.
    stream : hipStream_t, optional
        An int or a hip-python stream; defaults to the default stream. Calls on device arrays return
        before the kernel has finished, calls on host arrays after the result is copied back.

    Returns
    -------
    out : array, bfloat16, (batch, seqlen_q, num_heads_q, head_dim_v)
        Of the kind of `q`.
    lse : array, float32, (batch, num_heads_q, seqlen_q)
        Natural log of the sum of exponentials; only with `return_lse`.

    Raises
    ------
    UnsupportedProblem
        (a NotImplementedError and ValueError) No kernel does this; the message says what there is.
    ValueError, TypeError
        Malformed input. Nothing was launched.
    UnsupportedDeviceError, HipError
        The device is of another architecture; a HIP call failed.
    """
    handle = runtime.stream_handle(stream)
    views = _views(q, k, v, handle)
    problem = _problem_of(
        (views["q"].shape, views["k"].shape, views["v"].shape),
        layout,
        dtype=views["q"].dtype.name,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=tuple(window_size) if isinstance(window_size, list) else window_size,
        softcap=softcap,
        dropout_p=dropout_p,
        round_mode=round_mode,
        num_splits=num_splits,
        return_lse=return_lse,
    )
    plan = _planned(problem, runtime.device_props())
    return plan._run(q, views, out, None, layout, handle)


class AttentionPlan(Plan):
    """A plan that can be run. Made by `plan_attention`; see `Plan` for what it holds."""

    @functools.cached_property
    def _prepared(self) -> tuple[launch.PreparedLaunch, ...]:
        return launch.prepare(self, runtime.get())

    @functools.cached_property
    def _checked(self) -> dict[object, dict[str, Operand]]:
        """Operand sets that passed every check, by the facts the checks depend on."""
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
        return self._run(q, _views(q, k, v, handle), out, lse, layout, handle)

    def _run(
        self, q: Any, views: dict[str, View], out: Any, lse: Any, layout: str, stream: int
    ) -> Any:
        device = runtime.get()
        problem = self.problem
        if device.props.arch != self.props.arch:
            raise UnsupportedDeviceError(
                f"this plan is for {self.props.arch}, but {device.props.name} "
                f"({device.props.arch}) is bound"
            )
        if lse is not None and not problem.return_lse:
            raise ValueError("lse was given, but return_lse is false")
        given = {"o": out}
        if problem.return_lse:
            given["lse"] = lse
        outputs = {
            name: _output_view(x, _LABELS[name], stream)
            for name, x in given.items()
            if x is not None
        }
        check_placement({**views, **{_LABELS[name]: view for name, view in outputs.items()}})
        if views["q"].on_device:
            results = self._run_on_device(views, outputs, layout, stream)
        else:
            results = self._run_on_host(views, outputs, layout, stream)
        for name, x in given.items():
            if x is None:
                given[name] = like(q, results[name])
            elif isinstance(x, DeviceArray):
                x.stream = stream
        return (given["o"], given["lse"]) if problem.return_lse else given["o"]

    def _run_on_device(
        self, views: dict[str, View], outputs: dict[str, View], layout: str, stream: int
    ) -> dict[str, Any]:
        """Launch on device views; allocate and return the outputs that were not given."""
        everything = {**views, **outputs}
        key = (layout, tuple((name, view.facts) for name, view in everything.items()))
        operands = self._checked.get(key)
        if operands is None:
            operands = self._check(views, outputs, layout)
            kernel = self.launches[0].kernel
            named = {**views, **{_LABELS[name]: view for name, view in outputs.items()}}
            check_alignment(named, layout, kernel)
            if len(self._checked) >= _MAX_CHECKED:
                self._checked.clear()
            self._checked[key] = operands
        made = {}
        missing = [name for name in self._results(layout) if name not in outputs]
        if missing:
            operands = operands.copy()
            for name in missing:
                made[name] = empty(*self._results(layout)[name])
                made[name].stream = stream
                operands[name] = operand(made[name].view(), layout)
        launch.run(self._prepared, operands, runtime.get(), stream)
        return made

    def _run_on_host(
        self, views: dict[str, View], outputs: dict[str, View], layout: str, stream: int
    ) -> dict[str, Any]:
        """Copy in, run, copy out."""
        self._check(views, outputs, layout)
        device = runtime.get()
        kernel = self.launches[0].kernel
        staged, memory = stage(
            views, lambda view: not misalignment(view, layout, kernel), device, stream
        )
        results: dict[str, Any] = {}
        for name, array in self._run_on_device(staged, {}, layout, stream).items():
            host = host_empty(*self._results(layout)[name])
            device.download(host.ctypes.data, array.address, host.nbytes, stream)
            results[name] = host
        device.synchronize(stream)
        del memory  # the kernel has finished: only now may its operands go
        for name, view in outputs.items():
            assert view.array is not None
            view.array[...] = results[name]
        return results

    def _results(self, layout: str) -> dict[str, tuple[tuple[int, ...], DType]]:
        """Shape and element type of each result: "o", and "lse" if it is returned."""
        problem = self.problem
        results: dict[str, tuple[tuple[int, ...], DType]] = {
            "o": (problem.shape("o", layout), as_dtype(problem.dtype))
        }
        if problem.return_lse:
            shape = (problem.batch, problem.num_heads_q, problem.seqlen_q)
            results["lse"] = (shape, FLOAT32)
        return results

    def _check(
        self, views: Mapping[str, View], outputs: Mapping[str, View], layout: str
    ) -> dict[str, Operand]:
        """Every check that does not depend on the kernel; the operands of what was given."""
        problem = self.problem
        for name, view in views.items():
            check_shape(view, name, problem.shape(name, layout), problem.dtype, layout)
        taken = dict(views)
        for name, view in outputs.items():
            label = _LABELS[name]
            shape, dtype = self._results(layout)[name]
            check_shape(view, label, shape, dtype.name, layout)
            if name == "lse" and not is_compact(view):
                raise ValueError(f"lse has strides {view.strides} (elements); it must be compact")
            check_output(label, view, taken)
            taken[label] = view
        operands = {name: operand(view, layout) for name, view in {**views, **outputs}.items()}
        if not problem.return_lse:
            operands["lse"] = launch.ABSENT
        return operands


_LABELS = {"o": "out", "lse": "lse"}  # what callers call the results
_MAX_CHECKED = 64


def _views(q: Any, k: Any, v: Any, stream: int) -> dict[str, View]:
    return {name: as_view(x, name, stream) for name, x in (("q", q), ("k", k), ("v", v))}


def _output_view(x: Any, name: str, stream: int) -> View:
    if type(x).__module__.partition(".")[0] in ("jax", "jaxlib"):
        raise TypeError(f"{name} is a JAX array, which cannot be written; leave {name} out")
    return as_view(x, name, stream)


# -- planning --------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024, typed=True)
def _problem_of(
    shapes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], layout: str, **options: Any
) -> AttentionProblem:
    return attention_problem(*shapes, layout, **options)


@functools.lru_cache(maxsize=1024)
def _planned(problem: AttentionProblem, props: DeviceProps) -> AttentionPlan:
    plan = planning.plan_attention(problem, props, manifest.kernels())
    return AttentionPlan(
        **{field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
    )


def plan_attention(
    batch: int,
    seqlen_q: int,
    seqlen_kv: int,
    num_heads_q: int,
    num_heads_kv: int,
    head_dim: int,
    *,
    device: DeviceProps | str,
    **options: Any,
) -> AttentionPlan:
    """Plan an attention call. Pure: no device is queried or bound.

    Parameters
    ----------
    batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim : int
    device : DeviceProps or str
        `amdattn.device_props()` for the bound device, or a known name such as "MI300X".
    **options
        head_dim_v, dtype, softmax_scale, causal, window_size, softcap, dropout_p, round_mode,
        num_splits, return_lse: see `AttentionProblem`.

    Returns
    -------
    AttentionPlan

    Raises
    ------
    UnsupportedProblem, UnsupportedDeviceError, ValueError, TypeError
    """
    problem = AttentionProblem(
        batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim, **options
    )
    return _planned(problem, as_device_props(device))


def supports(
    batch: int,
    seqlen_q: int,
    seqlen_kv: int,
    num_heads_q: int,
    num_heads_kv: int,
    head_dim: int,
    *,
    device: DeviceProps | str,
    **options: Any,
) -> manifest.Support:
    """Whether a kernel exists for a well-formed problem; parameters as `plan_attention`.

    Returns
    -------
    Support
        True in a condition if `ok`; else `reason`, and `nearest`: arguments to change.
    """
    problem = AttentionProblem(
        batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim, **options
    )
    return manifest.support(manifest.kernels(), problem, as_device_props(device))


def explain(*args: Any, **kwargs: Any) -> str:
    """The text of `plan_attention(...).explain()`."""
    return plan_attention(*args, **kwargs).explain()
