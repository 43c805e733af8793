"""Prints element-wise operations of rows beside their bar, modelled.

    python -m benchmarks.elementwise OPERATION [--dtype bfloat16] [--every] [--triton]
                                     [--clock-mhz 2100] [--shapes SIZE,SIZE... ...]

Caches are cold. The bar is a launch, 1.2 us, and every byte once at 0.95 of the rate at which the
model copies (`hbm_rate` of the micro kernels); times count a launch as well. --every runs every
kernel, and says how far the one that the plan takes is behind the fastest. --triton models Triton's
kernels of the same operands (`triton_elementwise`) beside them, where there are any: layer
normalisation and rotary embedding of x alone; it needs Triton, which compiles without a GPU.
AMDATTN_DEVICE chooses another architecture, such as virtual:gfx950.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import amdattn
from amdattn import virtual
from amdattn.arrays.dlpack import compact_strides
from amdattn.arrays.views import View
from amdattn.bench.clocks import clocks
from amdattn.bench.kernels import Functions
from amdattn.device import manifest, runtime
from amdattn.op import launch
from amdattn.op.plan import Operand
from amdattn.op.spec import OperandSpec
from amdattn.op.workspace import Region
from amdattn.ops import registry
from amdattn.ops.embedding.problem import EmbeddingProblem
from amdattn.ops.gated.problem import ACTIVATIONS, GatedProblem
from amdattn.ops.layer_norm.problem import NARROW, LayerNormProblem
from amdattn.ops.rotary.problem import RotaryProblem
from benchmarks.performance_model.micro import hbm_rate

_FIXED_US, _SHARE_OF_RATE = 1.2, 0.95
_APART = 256
_FLOATS = ("bfloat16", "float16", "float32")
_FILLED = 1 << 20  # elements

Sizes = tuple[int, ...]


class Memory:
    """Device memory for the largest plan. Numbers that are read are normally distributed.

    Whether a mean is far from 0 decides about the time of normalisations, as indices do.
    """

    def __init__(self, plans: list[Any]) -> None:
        most = max(
            sum(map(_room, (*plan.specs().values(), *plan.workspace.regions))) for plan in plans
        )
        self._base = runtime.get().malloc(most)

    def operands(self, plan: Any) -> dict[str, Operand]:
        """Of one plan, without gaps."""
        found, at = {}, self._base
        for spec in plan.specs().values():
            if not spec.present:
                continue
            strides = compact_strides(spec.shape)
            view = View(at, spec.shape, strides, spec.dtype, False, None, ordinal=0)
            found[spec.name] = plan.operand(spec, view)
            if spec.typical is not None:
                host = np.ascontiguousarray(spec.typical())
                runtime.get().upload(at, host.ctypes.data, host.nbytes, 0)
                runtime.synchronize()
            elif spec.role == "in" and spec.dtype.name in _FLOATS:
                _fill(at, spec)
            at += _room(spec)
        for region in plan.workspace.regions:
            runtime.get().clear(at, region.nbytes, 0)
            found[region.name] = Operand(at, {})
            at += _room(region)
        return found


def _fill(at: int, spec: OperandSpec) -> None:
    """The same numbers again and again."""
    numbers = np.random.default_rng(0).standard_normal(_FILLED, np.float32)
    part = numbers.astype(spec.dtype.numpy())
    for begin in range(0, spec.nbytes, part.nbytes):
        nbytes = min(part.nbytes, spec.nbytes - begin)
        runtime.get().upload(at + begin, part.ctypes.data, nbytes, 0)
    runtime.synchronize()


def _room(spec: OperandSpec | Region) -> int:
    return -(-spec.nbytes // _APART) * _APART


def modelled_us(plan: Any, memory: Memory, clock_mhz: int, launch_us: float) -> float:
    """With the launch overhead."""
    device, operands = runtime.get(), memory.operands(plan)
    prepared = launch.PreparedLaunches(plan.launches).on(device)
    with virtual.profile(clock_mhz=clock_mhz) as profile:
        launch.run(prepared, operands, device, 0)
        runtime.synchronize()
    return sum(launch_us + one.cycles / clock_mhz for one in profile.launches)


def triton_us(
    problem: Any, operands: dict[str, Operand], clock_mhz: int, launch_us: float
) -> float | None:
    """The same of Triton's kernel; None: there is none of this problem."""
    from benchmarks import triton_compiled

    peer = triton_compiled.launch(problem, operands)
    if peer is None:
        return None
    with virtual.profile(clock_mhz=clock_mhz) as profile:
        peer.enqueue(Functions())
        runtime.synchronize()
    return launch_us + profile.launches[0].cycles / clock_mhz


def _gated(dtype: str, shapes: list[Sizes]) -> Iterator[GatedProblem]:
    every = [(rows, columns) for columns in (4096, 14336) for rows in (1, 16, 64, 256, 2048, 8192)]
    for rows, columns in shapes or every:
        for activation in ACTIVATIONS:
            if activation == "silu" or rows == 2048:
                yield GatedProblem((rows,), columns, dtype, activation)


def _rotary(dtype: str, shapes: list[Sizes]) -> Iterator[RotaryProblem]:
    """Batch, tokens, heads, heads of k and their columns; as HipKittens has them: B16 H16 D128."""
    every = [
        *((1, 1, 32, 8, 128), (64, 1, 32, 8, 128), (1, 256, 32, 8, 128), (1, 2048, 32, 0, 128)),
        *((1, 2048, 32, 8, 128), (1, 8192, 32, 8, 128), (16, 1024, 16, 0, 128)),
        *((16, 2048, 16, 0, 128), (16, 4096, 16, 0, 128)),
    ]
    for batch, seqlen, heads, heads_k, dim in shapes or every:
        yield RotaryProblem(batch, seqlen, heads, dim, heads_k, dtype=dtype)


def _embedding(dtype: str, shapes: list[Sizes]) -> Iterator[EmbeddingProblem]:
    """Rows, their columns, and rows of the table."""
    every = [(rows, 4096, 32000) for rows in (1, 16, 64, 256, 2048, 8192)]
    for rows, columns, table_rows in shapes or every:
        yield EmbeddingProblem((rows,), columns, table_rows, dtype)


def _layer_norm(dtype: str, shapes: list[Sizes]) -> Iterator[LayerNormProblem]:
    """Rows and columns, of every combination of options; as HipKittens has them: B16 D2048."""
    plain: dict[str, Any] = {"bias": True}
    fused = {**plain, "residual": True, "dropout_p": 0.1}
    ways = plain, {**plain, "residual": True}, fused
    narrow = {**plain, "to": NARROW}, {**fused, "to": NARROW}, {"rms": True, "to": NARROW}
    every = [(rows, 4096) for rows in (1, 16, 64, 256, 512, 2048, 8192)]
    for rows, columns in shapes or every:
        for options in (*ways, *narrow) if rows in (256, 2048) or shapes else ways:
            yield LayerNormProblem((rows,), columns, dtype, **options)
    for tokens in () if shapes else (1024, 4096, 8192, 16384):
        yield LayerNormProblem((16 * tokens,), 2048, dtype, **fused)


_PROBLEMS: dict[str, Callable[[str, list[Sizes]], Iterator[Any]]] = {
    "gated_activation": _gated,
    "rotary": _rotary,
    "embedding": _embedding,
    "layer_norm": _layer_norm,
}


def _shape(text: str) -> Sizes:
    return tuple(map(int, text.split(",")))


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operation", choices=tuple(_PROBLEMS))
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--triton", action="store_true")
    parser.add_argument("--clock-mhz", type=int, help="default: the device's greatest")
    parser.add_argument("--shapes", nargs="*", type=_shape, default=[])
    options = parser.parse_args()
    props, operation = amdattn.device_props(), registry.operation(options.operation)
    clock = options.clock_mhz or round(1000 * props.peak_clock_ghz)
    problems = list(_PROBLEMS[operation.name](options.dtype, options.shapes))
    plans = [operation.planned(problem, props) for problem in problems]
    memory, launch_us = Memory(plans), clocks(props.architecture.name).launch_us
    rate = 1000 * hbm_rate(1, True, mhz=clock)
    print(f"us, modelled of {props.name} at {clock} MHz; copies at {rate:.0f} bytes/ns\n")
    heads = ["problem", "bar", "modelled", "of bar", "TB/s"]
    heads += ["Triton", "TB/s", "Triton / ours"] if options.triton else []
    print(f"| {' | '.join(heads)} |\n|---|{'--:|' * (len(heads) - 1)}")
    met = 0
    for problem in problems:
        found = operation.choices(problem, props, manifest.kernels())
        times = {}
        chosen = operation.best(found.items)
        for choice in found.items if options.every else [chosen]:
            plan = operation.plan_of(problem, props, choice, found)
            times[choice.kernel.name] = modelled_us(plan, memory, clock, launch_us)
        took = times[chosen.kernel.name]
        bar = launch_us + _FIXED_US + problem.nbytes / (_SHARE_OF_RATE * rate) / 1000
        met += took <= bar
        line = f"| {problem.brief} | {bar:.2f} | {took:.2f} | {took / bar:.3f} "
        line += f"| {problem.nbytes / took / 1e6:.2f} |"
        if options.triton:
            theirs = triton_us(problem, memory.operands(plan), clock, launch_us)
            line += (
                f" {theirs:.2f} | {problem.nbytes / theirs / 1e6:.2f} | {theirs / took:.2f} |"
                if theirs
                else " | | |"
            )
        if options.every:
            line += " " + ", ".join(f"{name}: {us:.2f}" for name, us in times.items())
        print(line, flush=True)
    print(f"\n{met} of {len(problems)} shapes meet the bar.")


if __name__ == "__main__":
    main()
