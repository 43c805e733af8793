"""The bench commands for kernels."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amdattn.cli.check import extent
from amdattn.cli.output import AsJson, Layout, print_json, progress_bar, stdout
from amdattn.problem import ROUND_MODES
from amdattn.profiling import TRANS

if TYPE_CHECKING:
    from amdattn.bench.kernels import Functions, Kernel
    from amdattn.bench.moonmath import MoonMath
    from amdattn.bench.run import Outcome
    from amdattn.bench.shapes import Shape
    from amdattn.bench.shipped import Shipped
    from amdattn.checking.subjects import CodeObject

PEERS = ("aiter=DIR", "moonmath=DIR", "triton", "object=FILE")
_TRACE_EVENTS = 200_000

Peer = Annotated[
    list[str] | None,
    typer.Option(
        help="Another kernel beside ours: aiter=DIR (a checkout of ROCm/aiter), moonmath=DIR (its "
        "compiled code objects), triton (compiled on the spot) or object=FILE (a code object, with "
        "--grid and --args). Repeatable."
    ),
]
KernelName = Annotated[str | None, typer.Option(help="Of an object that holds several.")]
Grid = Annotated[str | None, typer.Option(help="Workgroups of an object: X, X,Y or X,Y,Z.")]
Workgroup = Annotated[str | None, typer.Option(help="Its lanes: X, X,Y or X,Y,Z.")]
Args = Annotated[
    str, typer.Option(help="Its arguments, or @FILE with them, as `amdattn check` takes them.")
]
DynamicLds = Annotated[int, typer.Option(min=0, help="Bytes of dynamic LDS of an object.")]
ClockMhz = Annotated[
    int, typer.Option(min=0, help="Assumed sustained clock; 0: the architecture's.")
]
Trans = Annotated[
    str,
    typer.Option(
        help="Of the model: transcendentals run beside MFMAs, or wait for them (exclusive): "
        "open for gfx942; both: a row for each."
    ),
]
SimulatedWorkgroups = Annotated[
    int,
    typer.Option(min=0, help="Of an object, simulate the first so many of an XCD; 0: all."),
]
Csv = Annotated[Path | None, typer.Option("--csv", help="Also write rows to this file.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")]
Wide = Annotated[
    bool, typer.Option("--wide", help="Every column, however wide; default: what fits 80.")
]
Plot = Annotated[
    tuple[str, Path] | None,
    typer.Option(help="roofline, timeline, stalls or sweep, and a .png or .svg file."),
]
Trace = Annotated[
    Path | None, typer.Option(help="Events of CU 0 of the last kernel, for ui.perfetto.dev.")
]

app = typer.Typer(
    help="Cycles and times of kernels: modelled on the virtual device, measured on a GPU.",
    no_args_is_help=True,
)


@dataclass(frozen=True)
class Output:
    """Where results go."""

    as_json: bool
    markdown: bool
    wide: bool
    csv: Path | None
    plot: tuple[str, Path] | None
    trace: Path | None

    def __post_init__(self) -> None:
        if self.as_json and self.markdown:
            raise ValueError("--json and --markdown exclude each other")
        if self.plot is not None:
            from amdattn.bench.plots import check_request

            check_request(*self.plot)

    @property
    def trace_events(self) -> int:
        """How many events the model has to keep."""
        wanted = self.trace is not None or (self.plot is not None and self.plot[0] == "timeline")
        return _TRACE_EVENTS if wanted else 0


@app.command()
def attention(
    batch: Annotated[int, typer.Option("-b", "--batch")] = 1,
    heads_q: Annotated[int, typer.Option("-hq", "--heads-q")] = 32,
    heads_kv: Annotated[int, typer.Option("-hkv", "--heads-kv", help="0: as heads-q.")] = 0,
    seqlen_q: Annotated[int, typer.Option("-s", "--seqlen-q")] = 4096,
    seqlen_kv: Annotated[int, typer.Option("--seqlen-kv", help="0: as seqlen-q.")] = 0,
    head_dim: Annotated[int, typer.Option("-d", "--head-dim")] = 128,
    causal: Annotated[bool, typer.Option("--causal", help="Mask aligned bottom right.")] = False,
    layout: Layout = "bshd",
    round_mode: Annotated[
        str, typer.Option(help="Of the probabilities: rtne, rtna, rtz, or rtne,rtz, or all.")
    ] = "rtne",
    preset: Annotated[
        str | None,
        typer.Option(
            help="A set of shapes: moonmath, llama3-8b, llama3-70b, causal, gpt-oss, deepseek, "
            "wan2.1, flux or whisper."
        ),
    ] = None,
    peer: Peer = None,
    kernel: KernelName = None,
    grid: Grid = None,
    workgroup: Workgroup = None,
    args: Args = "",
    dynamic_lds: DynamicLds = 0,
    sampling: Annotated[
        str, typer.Option(help="auto, sampled, or full: simulate every workgroup of an XCD.")
    ] = "auto",
    simulated_workgroups: SimulatedWorkgroups = 0,
    clock_mhz: ClockMhz = 0,
    trans: Trans = "beside",
    as_json: AsJson = False,
    csv: Csv = None,
    markdown: Markdown = False,
    wide: Wide = False,
    plot: Plot = None,
    trace: Trace = None,
    details: Annotated[
        bool, typer.Option("--details", help="Stalls, bytes and the longest waits of each row.")
    ] = False,
) -> None:
    """Attention forward in bfloat16, our kernels and others in one table."""
    from amdattn.bench.kernels import Functions
    from amdattn.bench.operation import run_operation
    from amdattn.bench.run import reading
    from amdattn.bench.shapes import Shape, preset as shapes_of

    output = Output(as_json, markdown, wide, csv, plot, trace)
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
            )
        ]
    else:
        shapes = shapes_of(preset)
    kernels, files = _peers(peer or [], round_mode)
    objects = _objects(files, kernel, grid, workgroup, args, dynamic_lds)
    functions = Functions()
    outcomes: list[Outcome] = []
    start = time.perf_counter()
    readings = _readings(trans)
    pairs = [(shape, way, one) for shape in shapes for way in readings for one in kernels]
    with progress_bar() as progress:
        count = len(pairs) + len(objects) * len(readings)
        overall = progress.add_task(f"{count} rows", total=count)
        task = progress.add_task("", total=1)

        def advance(what: str, done: int, total: int) -> None:
            progress.update(task, description=what, completed=done, total=total)

        for shape, way, candidate in pairs:
            with reading(way):
                outcome = run_operation(
                    candidate,
                    shape,
                    functions,
                    method=sampling,
                    clock_mhz=clock_mhz,
                    trace_events=output.trace_events,
                    advance=advance,
                )
            outcomes.append(outcome)
            progress.advance(overall)
        for subject in objects:
            for way in readings:
                with reading(way):
                    outcome = _run_object(
                        subject, functions, "attention", simulated_workgroups, clock_mhz, output
                    )
                outcomes.append(outcome)
                progress.advance(overall)
    _show("attention forward, bfloat16", outcomes, output, time.perf_counter() - start, details)
    if all(outcome.record.refused for outcome in outcomes):
        raise typer.Exit(1)


@app.command()
def gemm(
    peer: Peer = None,
    kernel: KernelName = None,
    grid: Grid = None,
    workgroup: Workgroup = None,
    args: Args = "",
    dynamic_lds: DynamicLds = 0,
    simulated_workgroups: SimulatedWorkgroups = 0,
    clock_mhz: ClockMhz = 0,
    trans: Trans = "beside",
    as_json: AsJson = False,
    csv: Csv = None,
    markdown: Markdown = False,
    wide: Wide = False,
    plot: Plot = None,
    trace: Trace = None,
) -> None:
    """Matrix products of your own code objects: needs --peer object=FILE, --grid and --args.

    `amdattn tune gemm` times the kernels of gemm_nt; benchmarks/decode_gemm.py knows its peers.
    """
    from amdattn.bench.kernels import Functions
    from amdattn.bench.run import reading

    output = Output(as_json, markdown, wide, csv, plot, trace)
    files = [_object_file(given) for given in peer or []]
    if not files or None in files:
        raise ValueError(
            "bench gemm runs code objects of your own, e.g. --peer object=gemm.hsaco --grid 64,64 "
            "--workgroup 256 --args @gemm.txt; --peer aiter and triton are of attention, and "
            "`amdattn tune gemm` times the kernels of gemm_nt"
        )
    paths = [file for file in files if file is not None]
    functions = Functions()
    start = time.perf_counter()
    outcomes = []
    for subject in _objects(paths, kernel, grid, workgroup, args, dynamic_lds):
        for way in _readings(trans):
            with reading(way):
                outcomes.append(
                    _run_object(subject, functions, "gemm", simulated_workgroups, clock_mhz, output)
                )
    _show("gemm", outcomes, output, time.perf_counter() - start, False)


def _readings(trans: str) -> tuple[str, ...]:
    if trans not in (*TRANS, "both"):
        raise ValueError(f"--trans={trans!r} must be one of {(*TRANS, 'both')}")
    return TRANS if trans == "both" else (trans,)


def _peers(
    given: Sequence[str], round_mode: str
) -> tuple[list[Shipped | MoonMath | Kernel], list[Path]]:
    """The kernels to run, ours first, and code object files."""
    from amdattn.bench.aiter import Aiter
    from amdattn.bench.moonmath import MoonMath
    from amdattn.bench.shipped import Shipped
    from amdattn.bench.triton_peer import Triton

    modes = ROUND_MODES if round_mode == "all" else tuple(round_mode.split(","))
    if not set(modes) <= set(ROUND_MODES):
        raise ValueError(f"--round-mode={round_mode!r} must be one of {(*ROUND_MODES, 'all')}")
    kernels: list[Shipped | MoonMath | Kernel] = [Shipped(mode) for mode in modes]
    files: list[Path] = []
    for name in given:
        kind, equals, value = name.partition("=")
        file = _object_file(name)
        if file is not None:
            files.append(file)
        elif kind == "aiter" and value:
            kernels += [Aiter(Path(value), mode) for mode in modes]
        elif kind == "moonmath" and value:
            kernels += [MoonMath(Path(value), mode) for mode in modes]
        elif kind == "triton" and not equals:
            triton = Triton()
            triton.try_compile()
            kernels.append(triton)
        else:
            raise ValueError(f"--peer={name!r} must be one of {', '.join(PEERS)}")
    return kernels, files


def _object_file(peer: str) -> Path | None:
    kind, _, value = peer.partition("=")
    return Path(value) if kind == "object" and value else None


def _objects(
    files: Sequence[Path],
    kernel: str | None,
    grid: str | None,
    workgroup: str | None,
    args: str,
    dynamic_lds: int,
) -> list[CodeObject]:
    from amdattn.checking.arguments import read_arguments
    from amdattn.checking.subjects import CodeObject

    if not files:
        given = {"kernel": kernel, "grid": grid, "workgroup": workgroup, "args": args or None}
        needless = [name for name, value in given.items() if value is not None]
        if needless:
            raise ValueError(f"--{needless[0]} needs --peer object=FILE")
        return []
    if grid is None:
        raise ValueError("--peer object=FILE needs --grid")
    return [
        CodeObject(
            file,
            kernel,
            extent("grid", grid),
            None if workgroup is None else extent("workgroup", workgroup),
            read_arguments(args),
            dynamic_lds,
        )
        for file in files
    ]


def _run_object(
    subject: CodeObject,
    functions: Functions,
    operation: str,
    simulated_workgroups: int,
    clock_mhz: int,
    output: Output,
) -> Outcome:
    from amdattn.bench.code_object import run_code_object

    return run_code_object(
        subject,
        functions,
        operation=operation,
        simulated_workgroups=simulated_workgroups,
        clock_mhz=clock_mhz,
        trace_events=output.trace_events,
    )


def _show(
    title: str, outcomes: Sequence[Outcome], output: Output, seconds: float, details: bool
) -> None:
    from amdattn import runtime
    from amdattn.bench import plots, report, trace
    from amdattn.bench.record import document

    records = [outcome.record for outcome in outcomes]
    profiles = [o.modelled.profile for o in outcomes if o.modelled is not None]
    if output.csv is not None:
        report.write_csv(output.csv, records)
    if output.plot is not None:
        plots.plot(*output.plot, records, profiles[-1] if profiles else None)
    if output.trace is not None:
        if not profiles:
            raise ValueError("--trace needs a modelled launch: run on the virtual device")
        trace.write_trace(output.trace, profiles[-1])
    if output.as_json:
        print_json(document(records, seconds))
    elif output.markdown:
        typer.echo(report.markdown(records), nl=False)
    else:
        title = f"{title}, {runtime.get().title}"
        report.print_table(stdout, title, records, wide=output.wide)
        for record in records:
            if details and record.stalls:
                stdout.print(f"{record.shape} {record.label}", highlight=False)
                report.print_details(stdout, record)
        stdout.print(f"{seconds:.1f} s, measured on this CPU", style="dim", highlight=False)
