"""Host overhead: what one launch costs the calling thread, by the way in which it is made.

The virtual device accepts launches here without executing them (option "null"). It completes them
once inside the call and once on the stream's own thread; the difference is due to the device, not
the caller. On a GPU the same calls are timed with launches executed.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import itertools
import statistics
import timeit
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from amdattn.arrays import buffers, memory
from amdattn.arrays.interchange import asarray
from amdattn.device import runtime
from amdattn.device.kernarg import packer
from amdattn.device.runtime import Runtime
from amdattn.dtypes import BFLOAT16
from amdattn.op import launch
from amdattn.op.operands import operand_of
from amdattn.ops.attention.dense import flash_attn_func, plan_attention
from amdattn.ops.attention.planning import PlannedAttention
from amdattn.ops.attention.problem import axis_order

RAW = "hip-python, `extra` prebuilt"
PLAN_RUN = "`plan.run`, DeviceArray"
EAGER = "`flash_attn_func`, DeviceArray, `out` given"
EAGER_ALLOCATED = "`flash_attn_func`, DeviceArray, result allocated"
GROWING = "`flash_attn_func`, DeviceArray, one more key every call"
# Microseconds that a path may cost beyond RAW.
BARS = {PLAN_RUN: 5.0, EAGER: 15.0, EAGER_ALLOCATED: 15.0, GROWING: 50.0}
# Calls that a path makes at a time. Those of GROWING cover a block of keys, which is planned anew.
_CALLS = {GROWING: 32}

_BATCH_SECONDS = 5e-4  # much shorter than a time slice, so that most batches are not interrupted
_CALIBRATION_CALLS = 10
_FORGOTTEN = 200  # more operand sets than a plan remembers
_BATCH, _SEQLEN, _HEADS_Q, _HEADS_KV, _HEAD_DIM = 1, 16, 2, 1, 128
_LAYOUT = "bshd"


@dataclass(frozen=True, slots=True)
class Row:
    """Microseconds per call of one path.

    Attributes
    ----------
    path : str
    minimum, median, low, high : float
        Over the rounds; `low` and `high` are the quartiles.
    beyond_raw : float
        Median over the rounds of the difference to RAW in the same round.
    bar : float or None
        The most that `beyond_raw` may be.
    """

    path: str
    minimum: float
    median: float
    low: float
    high: float
    beyond_raw: float
    bar: float | None

    @property
    def ok(self) -> bool:
        """Whether `beyond_raw` is within the bar, if there is one."""
        return self.bar is None or self.beyond_raw <= self.bar


@dataclass(frozen=True, slots=True)
class Measurement:
    """Rows of all paths, with one way in which the device completes launches."""

    title: str
    rows: tuple[Row, ...]


def measure(rounds: int, advance: Callable[[], None] = lambda: None) -> list[Measurement]:
    """Time every path; the paths take turns, so that all meet the same disturbances.

    Parameters
    ----------
    rounds : int
        At least 2. Each round times one batch of about half a millisecond per path.
    advance : callable
        Called after every round, `num_rounds(rounds)` times.

    Raises
    ------
    ValueError
        `rounds` is less than 2.
    """
    if rounds < 2:
        raise ValueError(f"rounds={rounds} must be at least 2")
    device = runtime.get()
    measurements = []
    for title, options in _devices(device).items():
        with _options(device, options), memory.caching(True):
            measurements.append(Measurement(title, _measure(_paths(device), rounds, advance)))
    return measurements


def num_rounds(rounds: int) -> int:
    """Total number of rounds of `measure(rounds)`."""
    return rounds * len(_devices(runtime.get()))


def _devices(device: Runtime) -> dict[str, dict[str, int]]:
    if device.choice.kind != "virtual":
        return {f"{device.props.name}, launches executed": {}}
    return {
        "null device, launches complete inside the call": {"null": 2},
        "null device, launches complete on the stream's thread": {"null": 1},
    }


@contextmanager
def _options(device: Runtime, options: Mapping[str, int]) -> Iterator[None]:
    restore = device.virtual_exports().set_options(**options) if options else {}
    try:
        yield
    finally:
        if restore:
            device.virtual_exports().set_options(**restore)


def _measure(
    paths: Mapping[str, Callable[[], Any]], rounds: int, advance: Callable[[], None]
) -> tuple[Row, ...]:
    timers = {name: timeit.Timer(call) for name, call in paths.items()}
    calls = {}
    for name, timer in timers.items():
        timer.timeit(_CALIBRATION_CALLS)  # loads kernels, fills caches
        few = max(1, _CALIBRATION_CALLS // _CALLS.get(name, 1))
        calls[name] = max(1, int(_BATCH_SECONDS / _seconds(timer, few)))
    times: dict[str, list[float]] = {name: [] for name in paths}
    for _ in range(rounds):
        for name, timer in timers.items():
            each = _seconds(timer, calls[name]) / _CALLS.get(name, 1)
            times[name].append(each * 1e6)
        advance()
    return tuple(_row(name, times[name], times[RAW]) for name in paths)


def _seconds(timer: timeit.Timer, calls: int) -> float:
    """Seconds per call, without the wait for work that the calls left on the device."""
    seconds = timer.timeit(calls) / calls
    runtime.synchronize()
    return seconds


def _row(path: str, times: list[float], raw: list[float]) -> Row:
    low, median, high = statistics.quantiles(times, n=4)
    beyond = statistics.median(mine - its for mine, its in zip(times, raw, strict=True))
    return Row(path, min(times), median, low, high, beyond, BARS.get(path))


# -- the paths -------------------------------------------------------------------------------------


class _Foreign:
    """Device memory of another library, which supports DLPack and nothing else."""

    def __init__(self, array: buffers.DeviceArray) -> None:
        self._array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)


def _paths(device: Runtime) -> dict[str, Callable[[], Any]]:
    hosts = _inputs()
    q, k, v = map(asarray, hosts)
    foreign = _Foreign(q), _Foreign(k), _Foreign(v)
    out = buffers.empty(q.shape)
    others = itertools.cycle(buffers.empty(q.shape) for _ in range(_FORGOTTEN))
    plan = plan_attention(
        _BATCH, _SEQLEN, _SEQLEN, _HEADS_Q, _HEADS_KV, _HEAD_DIM, device=device.props
    )
    paths: dict[str, Callable[[], Any]] = {
        "hip-python, a call without effect": device.hip.hipPeekAtLastError,
        **_raw_paths(device, plan, {"q": q, "k": k, "v": v, "o": out}),
        PLAN_RUN: lambda: plan.run(q, k, v, out),
        "`plan.run`, DeviceArray, `out` not seen before": lambda: plan.run(q, k, v, next(others)),
        EAGER: lambda: flash_attn_func(q, k, v, out=out),
        EAGER_ALLOCATED: lambda: flash_attn_func(q, k, v),
        "... of which the array, from the cache": lambda: buffers.allocate(
            out.shape, out.strides, BFLOAT16
        ),
        "`hipMalloc` and `hipFree`, which the cache saves": lambda: device.free(
            device.malloc(out.nbytes)
        ),
        GROWING: _growing(),
        "`flash_attn_func`, DLPack array, `out` given": lambda: flash_attn_func(*foreign, out=out),
        "... of which the producer's exports": lambda: [
            x.__dlpack__(stream=0, max_version=(1, 0)) for x in foreign
        ],
        "`flash_attn_func`, NumPy, staged": lambda: flash_attn_func(*hosts),
        "... of which allocations, copies and waits": lambda: _stage(device, hosts),
    }
    if importlib.util.find_spec("jax") is not None:
        # The package itself accepts JAX arrays without importing JAX.
        jax_arrays = [importlib.import_module("jax.numpy").asarray(x) for x in hosts]
        paths["`flash_attn_func`, JAX on the CPU, staged"] = lambda: flash_attn_func(*jax_arrays)
    return paths


def _growing() -> Callable[[], Any]:
    """Decoding steps over more different numbers of keys than plans are remembered."""
    batch, heads_q, heads_kv, first, most = 8, 32, 8, 1024, 4096
    q = buffers.empty((batch, 1, heads_q, _HEAD_DIM))
    out = buffers.empty(q.shape)
    k, v = (buffers.empty((batch, first + most, heads_kv, _HEAD_DIM)) for _ in range(2))
    seen = itertools.cycle([(k[:, :n], v[:, :n]) for n in range(first + 1, first + most + 1)])

    def steps() -> None:
        for keys, values in itertools.islice(seen, _CALLS[GROWING]):
            flash_attn_func(q, keys, values, out=out)

    return steps


def _inputs() -> list[Any]:
    import numpy as np

    rng = np.random.default_rng(0)
    return [
        rng.standard_normal((_BATCH, _SEQLEN, heads, _HEAD_DIM), np.float32).astype(
            BFLOAT16.numpy()
        )
        for heads in (_HEADS_Q, _HEADS_KV, _HEADS_KV)
    ]


def _stage(device: Runtime, hosts: list[Any]) -> None:
    """Make the HIP calls of a call on host arrays, except its launch."""
    sizes = [array.nbytes for array in hosts]
    operands, result = device.malloc(sum(sizes)), device.malloc(sizes[0])
    for i, array in enumerate(hosts):
        device.upload(operands + sum(sizes[:i]), array.ctypes.data, sizes[i])
    device.synchronize(0)
    device.download(hosts[0].ctypes.data, operands, sizes[0])
    device.synchronize(0)
    device.free(operands)
    device.free(result)


def _raw_paths(
    device: Runtime, plan: PlannedAttention, arrays: Mapping[str, buffers.DeviceArray]
) -> dict[str, Callable[[], Any]]:
    """The same launch, made directly in the ways that hip-python offers."""
    kernel = plan.forward.kernel
    operands = {
        name: operand_of(array.view(), axis_order(_LAYOUT)) for name, array in arrays.items()
    }
    operands["lse"] = launch.ABSENT
    prepared = launch.PreparedLaunches(plan.launches).on(device)
    _, ((configuration, kernargs),) = launch.bind(prepared, operands, device)
    packed = packer(kernel)
    values = packed.unpack(bytes(kernargs.block))
    types = {name: c_type for name, _, _, c_type in kernel.kernarg.fields}
    as_ctypes = tuple(
        getattr(ctypes, f"c_{types[name].removesuffix('_t')}")(value)
        for name, value in values.items()
    )
    numbers = tuple(values.values())
    call = device.hip.hipModuleLaunchKernel
    head, params = (*configuration, 0), kernargs.params

    def packing() -> Any:
        packed.pack_into(kernargs.block, 0, *numbers)
        return call(*head, params, kernargs.extra)

    raw: dict[str, Callable[[], Any]] = {
        "hip-python, `extra` = tuple of ctypes": lambda: call(*head, None, as_ctypes),
        "hip-python, `extra` prebuilt, arguments packed": packing,
        RAW: lambda: call(*head, params, kernargs.extra),
    }
    for path in raw.values():
        device.check("hipModuleLaunchKernel", path())
    return raw


# -- the report ------------------------------------------------------------------------------------


COLUMNS = ("path", "min", "median", "quartiles", "beyond raw", "bar")
FEW_COLUMNS = ("path", "median", "beyond raw", "bar")


def markdown(measurements: list[Measurement]) -> str:
    """The tables of `docs/studies/launch-overhead.md`, in Markdown."""
    lines = []
    for measurement in measurements:
        lines += [
            f"{measurement.title.capitalize()}, µs per call:",
            "",
            f"| {' | '.join(COLUMNS)} |",
            "|---" + "|---:" * (len(COLUMNS) - 1) + "|",
        ]
        for row in measurement.rows:
            lines.append(f"| {' | '.join(cells(row).values())} |")
        lines.append("")
    return "\n".join(lines)


def cells(row: Row) -> dict[str, str]:
    """The texts of a row by column of COLUMNS; times in microseconds."""
    bar = "" if row.bar is None else f"{row.bar:.0f} {'met' if row.ok else 'MISSED'}"
    beyond = "" if row.path == RAW else f"{row.beyond_raw:+.2f}"
    quartiles = f"{row.low:.2f} .. {row.high:.2f}"
    texts = row.path, f"{row.minimum:.2f}", f"{row.median:.2f}", quartiles, beyond, bar
    return dict(zip(COLUMNS, texts, strict=True))
