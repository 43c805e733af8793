"""Times of shapes and micro kernels: measured on a GPU, modelled on the virtual device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amdattn.arrays.buffers import empty
from amdattn.arrays.interchange import asarray
from amdattn.bench import micro, micro_table
from amdattn.bench.kernels import Functions
from amdattn.bench.micro_rows import ARCH, Row as MicroRow
from amdattn.bench.operation import run_operation
from amdattn.bench.record import MEASURED, MODELLED
from amdattn.bench.run import is_virtual
from amdattn.bench.shapes import Shape
from amdattn.bench.shipped import Shipped
from amdattn.device import runtime
from amdattn.dtypes import as_dtype
from amdattn.ops.gemm.plans import plan_gemm
from amdattn.report.rows import ABSENT, FAILED, INFO, Row, Step
from amdattn.testing.bench import do_bench
from amdattn.virtual import profiled

_QUANTILES = (0.1, 0.5, 0.9)
_NOTHING = "the virtual device measures nothing; the figures of its model are below"


@dataclass(frozen=True)
class Product:
    """``a @ b^T`` of one size, in bfloat16."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"gemm {self.m}x{self.n}x{self.k}"

    @property
    def flops(self) -> int:
        """Number of operations."""
        return 2 * self.m * self.n * self.k


# From little work to much. The last one is in the tables of docs/studies/performance-model.md.
SHAPES: tuple[Product | Shape, ...] = (
    Product(1, 4096, 4096),
    Product(16, 4096, 4096),
    Shape(1, 8, 8, 512, 512, 128),
    Product(16, 14336, 4096),
    Shape(1, 64, 8, 1024, 1024, 64, causal=True, window=(127, -1), sinks=True),
    Product(64, 4096, 14336),
    Shape(1, 20, 20, 1500, 1500, 64),
    Shape(1, 32, 8, 1, 4096, 128),
    Shape(1, 16, 16, 1024, 1024, 128),
    Shape(1, 8, 8, 1024, 1024, 192, causal=True, head_dim_v=128),
    Shape(1, 16, 4, 2048, 2048, 128, causal=True),
    Shape(2, 24, 24, 8192, 8192, 128),
)
QUICK_SHAPES = 2
# Micro kernels by step, and the names of a quick report.
_GROUPS: tuple[tuple[str, str, Sequence[MicroRow], str], ...] = (
    ("alone", "instructions alone", micro_table.ALONE, "fma_f32,chain_lds"),
    ("lds", "LDS rates", micro_table.LDS, "lds_read_b128"),
    ("beside", "beside a matrix instruction", micro_table.BESIDE, "beside_pk_mul_f32_x4"),
    ("other_wave", "beside a matrix instruction of another wave", micro_table.OTHER_WAVE, ""),
    ("latencies", "latencies", micro_table.LATENCIES, "latency_l2"),
    ("regions", "L1 and L2 rates", micro_table.REGIONS, ""),
    ("streams", "HBM and MALL rates", micro_table.STREAMS, "hbm_read_1"),
    ("clocks", "clocks under load", micro_table.CLOCKS, ""),
)


def name_of(shape: Product | Shape) -> str:
    """The name of its row."""
    return str(shape) if isinstance(shape, Product) else f"attention {shape}"


def measured_steps(quick: bool) -> list[Step]:
    """Steps on the bound device, if that is a GPU."""
    return _steps(quick, "", 90, _measured_shape)


def modelled_steps(quick: bool) -> list[Step]:
    """Steps on the virtual device."""
    return _steps(quick, " (modelled)", 240, _modelled_shape)


def _steps(
    quick: bool, label: str, limit_s: float, of_shape: Callable[[Any], dict[str, float]]
) -> list[Step]:
    steps = []
    origin = MODELLED if label else MEASURED
    for name, what, rows, few in _GROUPS:
        parts = few.split(",") if few else []
        chosen = [r for r in rows if not quick or any(part in r.name for part in parts)]
        if chosen and not (origin == MODELLED and name == "clocks"):
            run = functools.partial(micro_rows, origin, chosen)
            steps.append(Step(f"micro_{name}", f"micro kernels: {what}{label}", limit_s, run))
    for i, shape in enumerate(SHAPES[: QUICK_SHAPES if quick else None]):
        run = functools.partial(shape_row, origin, shape, of_shape)
        steps.append(Step(f"shape_{i}", f"{name_of(shape)}{label}", limit_s, run))
    return steps


def micro_rows(origin: str, rows: Sequence[MicroRow]) -> Iterator[Row]:
    """A row for each micro kernel."""
    if origin == MEASURED and is_virtual():
        yield Row("micro kernels", ABSENT, _NOTHING)
        return
    if runtime.get().props.arch != ARCH:
        yield Row("micro kernels", ABSENT, f"their readings are for {ARCH} only")
        return
    for figure in micro.figures(rows):
        text = f"{figure.value:.4g} {figure.row.unit}, {figure.origin}"
        sound = np.isfinite(figure.value) and figure.value > 0
        yield Row(
            figure.row.what,
            INFO if sound else FAILED,
            text if sound else f"{text}, which is not a possible time",
            {"micro": figure.as_dict()},
        )


def shape_row(
    origin: str, shape: Product | Shape, times: Callable[[Any], dict[str, float]]
) -> Iterator[Row]:
    """One shape, in microseconds."""
    if origin == MEASURED and is_virtual():
        yield Row(name_of(shape), ABSENT, _NOTHING)
        return
    found = times(shape)
    text = ", ".join(f"{name} {us:.1f}" for name, us in found.items())
    facts = {"name": name_of(shape), "flops": shape.flops, "origin": origin, **found}
    yield Row(name_of(shape), INFO, f"{text} us, {origin}", {"shape": facts})


# -- a GPU -----------------------------------------------------------------------------------------


def _measured_shape(shape: Product | Shape) -> dict[str, float]:
    if isinstance(shape, Shape):
        times = run_operation(Shipped("rtne"), shape, Functions()).record.times
        found = (times.low_us, times.median_us, times.high_us)
    else:
        product, keep = _product(shape)
        found = tuple(1000 * ms for ms in do_bench(product, quantiles=_QUANTILES))
        del keep
    return {
        name: float(us or 0.0)
        for name, us in zip(("low_us", "median_us", "high_us"), found, strict=True)
    }


def _product(shape: Product) -> tuple[Callable[[], Any], list[Any]]:
    """A function that launches the product once, and the arrays that it needs."""
    element = as_dtype("bfloat16").numpy()
    rng = np.random.default_rng(0)
    plan = plan_gemm(shape.m, shape.n, shape.k, device=runtime.device_props())
    if is_virtual():  # only memory that is read is written, since the rest takes no space
        a, b = (empty((rows, shape.k), "bfloat16") for rows in (shape.m, shape.n))
    else:
        a, b = (
            asarray(rng.standard_normal((rows, shape.k), np.float32).astype(element))
            for rows in (shape.m, shape.n)
        )
    out = empty((shape.m, shape.n), "bfloat16")
    workspace = plan.new_workspace() if plan.workspace.regions else None
    return lambda: plan.run(a, b, out, workspace=workspace), [a, b, out, workspace]


# -- the model -------------------------------------------------------------------------------------


def _modelled_shape(shape: Product | Shape) -> dict[str, float]:
    """Times at the peak clock, a lower bound, and for attention at the estimated clock."""
    if isinstance(shape, Shape):
        record = run_operation(Shipped("rtne"), shape, Functions()).record
        if record.refused:
            raise ValueError(record.refused)
        times = record.times
        return {
            "at_peak_us": float(times.at_peak_us or 0.0),
            "estimated_us": float(times.estimated_us or 0.0),
        }
    run, keep = _product(shape)
    runtime.synchronize()
    launches = profiled(run, clock_mhz=micro.PEAK_MHZ)
    del keep
    return {"at_peak_us": sum(launch.microseconds() for launch in launches)}
