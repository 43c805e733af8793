"""The bench command for matrix products."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from amdattn.cli.bench_output import (
    OF_OBJECTS,
    Args,
    ClockMhz,
    Csv,
    Details,
    DynamicLds,
    Grid,
    KernelName,
    Markdown,
    Output,
    Plot,
    Readings,
    SimulatedWorkgroups,
    Trace,
    Wide,
    Workgroup,
    chosen_readings,
    object_file,
    objects,
    run_object,
    show,
)
from amdattn.cli.options import Activation, Bias, Deterministic, Dtype, refuse_given
from amdattn.cli.output import AsJson, progress_bar

if TYPE_CHECKING:
    from amdattn.bench.run import Outcome

_M, _N, _K = 16, 2560, 7168


def gemm(
    context: typer.Context,
    m: Annotated[
        list[int] | None, typer.Option("--m", "-m", help=f"Rows of a. Repeatable; default: {_M}.")
    ] = None,
    n: Annotated[
        int | None, typer.Option("--n", "-n", help=f"Columns of the result; default: {_N}.")
    ] = None,
    k: Annotated[
        int | None, typer.Option("--k", "-k", help=f"Elements of a dot product; default: {_K}.")
    ] = None,
    dtype: Dtype = "bfloat16",
    out_dtype: Annotated[
        str, typer.Option(help="bfloat16, float16 or float32; default: as --dtype.")
    ] = "",
    bias: Bias = False,
    activation: Activation = None,
    split_k: Annotated[int, typer.Option(help="Splits of k; 0: the plan chooses.")] = 0,
    deterministic: Deterministic = True,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            help="object=FILE: a code object to compare for the same product, with --grid and "
            "--args. Repeatable. `amdattn bench object FILE` runs one alone."
        ),
    ] = None,
    kernel: KernelName = None,
    grid: Grid = None,
    workgroup: Workgroup = None,
    args: Args = "",
    dynamic_lds: DynamicLds = 0,
    simulated_workgroups: SimulatedWorkgroups = 0,
    clock_mhz: ClockMhz = 0,
    reading: Readings = None,
    as_json: AsJson = False,
    csv: Csv = None,
    markdown: Markdown = False,
    wide: Wide = False,
    plot: Plot = None,
    trace: Trace = None,
    details: Details = False,
) -> None:
    """Time matrix products with few rows by gemm_nt, and your own code objects beside it.

    `amdattn tune gemm` times every kernel for a product. benchmarks/decode_gemm.py adds the kernels
    of AITER, FlyDSL and Triton.
    """
    from amdattn.bench import run
    from amdattn.bench.kernels import Functions
    from amdattn.bench.planned import Planned, run_planned
    from amdattn.ops import registry
    from amdattn.ops.gemm.problem import GemmProblem

    output = Output(as_json, markdown, wide, csv, plot or [], trace)
    files = [object_file(given) for given in peer or []]
    for given, file in zip(peer or [], files, strict=True):
        if file is None:
            raise ValueError(
                f"--peer={given!r} must be object=FILE; benchmarks/decode_gemm.py has other peers"
            )
    refuse_given(context, () if files else OF_OBJECTS, "needs --peer object=FILE")
    subjects = objects([file for file in files if file], kernel, grid, workgroup, args, dynamic_lds)
    products = [
        Planned(
            registry.operation("gemm"),
            GemmProblem(
                *(rows, _N if n is None else n, _K if k is None else k, dtype, out_dtype, bias),
                activation=activation,
                split_k=split_k,
                deterministic=deterministic,
            ),
        )
        for rows in m or [_M]
    ]
    if subjects and len(products) > 1:
        raise ValueError(
            f"--m is given {len(products)} times; with --peer object=FILE it must be given once"
        )
    for product in products:
        product.plan()  # raises for an unsupported product before anything runs
    functions = Functions()
    start = time.perf_counter()
    outcomes: list[Outcome] = []
    ways = chosen_readings(reading)
    with progress_bar() as progress:
        task = progress.add_task("", total=len(ways) * (len(products) + len(subjects)))
        for way in ways:
            with run.reading(way):
                for product in products:
                    progress.update(task, description=str(product))
                    outcomes.append(
                        run_planned(product, clock_mhz=clock_mhz, trace_events=output.trace_events)
                    )
                    progress.advance(task)
                for subject in subjects:
                    progress.update(task, description=subject.title)
                    outcomes.append(
                        run_object(
                            subject, functions, "gemm", simulated_workgroups, clock_mhz, output
                        )
                    )
                    progress.advance(task)
    if len(products) == 1:
        outcomes = [products[0].compared(outcome) for outcome in outcomes]
    seconds = time.perf_counter() - start
    show("matrix products", outcomes, output, seconds, details=details, unit="us")
