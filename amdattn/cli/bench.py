"""The bench command for attention."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amdattn.cli import bench_planned
from amdattn.cli.bench_output import (
    OF_OBJECTS,
    Args,
    BenchCommand,
    ClockMhz,
    Csv,
    Details,
    DynamicLds,
    Grid,
    InputsName,
    KernelName,
    Markdown,
    Output,
    Plot,
    Readings,
    SimulatedWorkgroups,
    TileInputs,
    Trace,
    Wide,
    Workgroup,
    chosen_readings,
    object_file,
    objects,
    run_object,
    show,
)
from amdattn.cli.options import (
    Batch,
    Causal,
    HeadDim,
    HeadDimV,
    HeadsKv,
    HeadsQ,
    Layout,
    SeqlenKv,
    SeqlenQ,
    Sinks,
    WindowSize,
    refuse_given,
)
from amdattn.cli.output import AsJson, progress_bar
from amdattn.cli.problem import registry_group
from amdattn.ops.attention.problem import ROUND_MODES

if TYPE_CHECKING:
    from amdattn.bench.peer import Peer, PeerKind
    from amdattn.bench.run import Outcome
    from amdattn.bench.shapes import Shape

# Parameters whose values a preset determines.
_SIZES = (
    *("batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_kv", "head_dim", "head_dim_v"),
    *("causal", "window_size", "sinks", "layout"),
)
_OBJECT = "object=FILE"

app = typer.Typer(
    cls=registry_group(bench_planned.bench, "Time {}.", BenchCommand),
    help="Cycles and times of kernels: modelled on the virtual device, measured on a GPU.",
    no_args_is_help=True,
)


@app.command(cls=BenchCommand)
def attention(
    context: typer.Context,
    batch: Batch = 1,
    heads_q: HeadsQ = 32,
    heads_kv: HeadsKv = 0,
    seqlen_q: SeqlenQ = 4096,
    seqlen_kv: SeqlenKv = 0,
    head_dim: HeadDim = 128,
    head_dim_v: HeadDimV = 0,
    causal: Causal = False,
    window_size: WindowSize = (-1, -1),
    sinks: Sinks = False,
    layout: Layout = "bshd",
    round_mode: Annotated[
        str, typer.Option(help="Rounding of probabilities: rtne, rtna, rtz, rtne,rtz or all.")
    ] = "rtne",
    preset: Annotated[
        str | None,
        typer.Option(
            help="A set of shapes: moonmath, hipkittens, gluon, llama3-8b, llama3-70b, causal, "
            "gpt-oss, deepseek, wan2.1, flux or whisper."
        ),
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            help="Another kernel to compare: object=FILE (a code object, with --grid and --args), "
            "or a peer that benchmarks/attention_peers.py adds. Repeatable."
        ),
    ] = None,
    kernel: KernelName = None,
    grid: Grid = None,
    workgroup: Workgroup = None,
    args: Args = "",
    dynamic_lds: DynamicLds = 0,
    inputs: InputsName = "normal",
    tile_inputs: TileInputs = False,
    sampling: Annotated[
        str, typer.Option(help="full simulates every workgroup of an XCD; or auto, or sampled.")
    ] = "auto",
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
    """Time the bfloat16 attention forward of this package, and your own code objects beside it.

    benchmarks/attention_peers.py adds the kernels of AITER, MoonMath and Triton.
    """
    from amdattn.bench import run
    from amdattn.bench.inputs import named
    from amdattn.bench.kernels import Functions
    from amdattn.bench.operation import run_operation
    from amdattn.bench.shapes import Shape, preset as shapes_of

    output = Output(as_json, markdown, wide, csv, plot or [], trace)
    shapes: Sequence[Shape]
    if preset is None:
        shapes = [
            Shape(
                batch,
                heads_q,
                heads_kv or heads_q,
                seqlen_q,
                seqlen_kv or seqlen_q,
                head_dim,
                causal,
                layout,
                head_dim_v,
                window_size,
                sinks,
            )
        ]
    else:
        refuse_given(context, _SIZES, "cannot be combined with --preset")
        shapes = shapes_of(preset)
    contents = named(inputs, is_tiled=tile_inputs)
    for shape in shapes:
        contents.check(shape.sizes)
    refuse_given(context, () if peer else OF_OBJECTS, "needs --peer object=FILE")
    kernels, files = _peers(peer or [], round_mode, context.obj or ())
    code_objects = objects(files, kernel, grid, workgroup, args, dynamic_lds)
    functions = Functions()
    outcomes: list[Outcome] = []
    start = time.perf_counter()
    ways = chosen_readings(reading)
    pairs = [(shape, way, one) for shape in shapes for way in ways for one in kernels]
    with progress_bar() as progress:
        count = len(pairs) + len(code_objects) * len(ways)
        overall = progress.add_task(f"{count} rows", total=count)
        task = progress.add_task("", total=1)

        def advance(what: str, done: int, total: int) -> None:
            progress.update(task, description=what, completed=done, total=total)

        for shape, way, candidate in pairs:
            with run.reading(way):
                outcome = run_operation(
                    candidate,
                    shape,
                    functions,
                    method=sampling,
                    clock_mhz=clock_mhz,
                    trace_events=output.trace_events,
                    advance=advance,
                    inputs=contents,
                )
            outcomes.append(outcome)
            progress.advance(overall)
        for subject in code_objects:
            for way in ways:
                with run.reading(way):
                    outcome = run_object(
                        subject, functions, "attention", simulated_workgroups, clock_mhz, output
                    )
                outcomes.append(outcome)
                progress.advance(overall)
    seconds = time.perf_counter() - start
    show("attention forward, bfloat16", outcomes, output, seconds, details=details)
    if all(outcome.record.refused for outcome in outcomes):
        raise typer.Exit(1)


def _peers(
    given: Sequence[str], round_mode: str, kinds: Sequence[PeerKind]
) -> tuple[list[Peer], list[Path]]:
    """The kernels to run, this package's first, and the code object files."""
    from amdattn.bench.shipped import Shipped

    modes = ROUND_MODES if round_mode == "all" else tuple(round_mode.split(","))
    if not set(modes) <= set(ROUND_MODES):
        raise ValueError(
            f"--round-mode={round_mode!r} must be all, or some of {', '.join(ROUND_MODES)}"
        )
    kernels: list[Peer] = [Shipped(mode) for mode in modes]
    files: list[Path] = []
    for name in given:
        file = object_file(name)
        if file is not None:
            files.append(file)
            continue
        made = [
            kind.make(value, modes) for kind in kinds if (value := kind.value(name)) is not None
        ]
        if not made:
            raise ValueError(f"--peer={name!r} must be {_spellings(kinds)}")
        kernels += made[0]
    return kernels, files


def _spellings(kinds: Sequence[PeerKind]) -> str:
    if not kinds:
        return f"{_OBJECT}; benchmarks/attention_peers.py has other peers"
    return f"one of {', '.join([*(kind.spelling for kind in kinds), _OBJECT])}"
