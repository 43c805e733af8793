"""Options, code objects and output that the bench commands for kernels share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from amdattn.arch import readings
from amdattn.cli.check import extent
from amdattn.cli.output import print_json, stdout
from amdattn.output_files import check_outputs

if TYPE_CHECKING:
    from amdattn.bench.kernels import Functions
    from amdattn.bench.run import Outcome
    from amdattn.checking.subjects import CodeObject

_TRACE_EVENTS = 200_000
_MAX_MHZ = 10_000
# Parameters of --peer object=FILE.
OF_OBJECTS = ("kernel", "grid", "workgroup", "args", "dynamic_lds", "simulated_workgroups")

KernelName = Annotated[
    str | None, typer.Option(help="The kernel to run, if a code object has several.")
]
Grid = Annotated[
    str | None, typer.Option(help="Workgroups of the grid of a code object: X, X,Y or X,Y,Z.")
]
Workgroup = Annotated[
    str | None, typer.Option(help="Lanes of a workgroup of a code object: X, X,Y or X,Y,Z.")
]
Args = Annotated[
    str,
    typer.Option(help="Arguments of a code object, or @FILE with them, as for `amdattn check`."),
]
DynamicLds = Annotated[
    int, typer.Option(metavar="N", min=0, help="Bytes of dynamic LDS of a code object.")
]
ClockMhz = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        max=_MAX_MHZ,
        help="Assumed sustained clock in MHz; 0: the architecture's.",
    ),
]
Readings = Annotated[
    list[str] | None,
    typer.Option(
        "--reading",
        metavar="NAME",
        help="A row for another reading of the hardware, such as lost-slots-2, or for all of them "
        "(docs/generated/readings.md). Repeatable.",
    ),
]
InputsName = Annotated[
    str,
    typer.Option(
        "--inputs",
        metavar="NAME|FILE.npz",
        help="Contents of q, k and v: normal, which is N(0, 1); model-like; worst; another class "
        "of docs/bench.md; or the arrays q, k and v of a file.",
    ),
]
TileInputs = Annotated[
    bool,
    typer.Option(
        "--tile-inputs",
        help="Repeat or cut the arrays of a file if the problem has other sizes.",
    ),
]
SimulatedWorkgroups = Annotated[
    int,
    typer.Option(metavar="N", min=0, help="Simulate the first N workgroups of an XCD; 0: all."),
]
Csv = Annotated[Path | None, typer.Option("--csv", help="Also write the rows to this file.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")]
Wide = Annotated[
    bool, typer.Option("--wide", help="Print all columns; default: those that fit 80 characters.")
]
Plot = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND FILE",
        help="Draw a roofline, timeline, stalls or sweep to a .png or .svg file. Repeatable.",
    ),
]
Details = Annotated[
    bool, typer.Option("--details", help="Print stalls, bytes and the longest waits of each row.")
]
Trace = Annotated[
    Path | None,
    typer.Option(help="Write the events of CU 0 of the last kernel, for ui.perfetto.dev."),
]


class BenchCommand(TyperCommand):
    """A command with a repeatable `--plot KIND FILE`, for which typer has no type."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Join the two words of each plot to one argument, KIND=FILE."""
        joined: list[str] = []
        rest = iter(args)
        for arg in rest:
            joined.append(arg)
            if arg == "--plot":
                kind = next(rest, "")
                joined.append(kind if "=" in kind else f"{kind}={next(rest, '')}")
        return super().parse_args(ctx, joined)


@dataclass(frozen=True)
class Output:
    """Where results go; `plots` are KIND=FILE.

    Raises
    ------
    ValueError
        Options contradict each other, a file cannot be written, or a GPU is bound and something
        that is modelled was requested.
    PlotError
        A plot was requested and matplotlib is missing.
    """

    as_json: bool
    markdown: bool
    wide: bool
    csv: Path | None
    plots: Sequence[str]
    trace: Path | None

    def __post_init__(self) -> None:
        if self.as_json and self.markdown:
            raise ValueError("--json and --markdown cannot be combined")
        if self.plots:
            from amdattn.bench.plots import check_request

            for kind, file in self.pictures:
                check_request(kind, file)
        check_outputs(
            [
                ("--csv", self.csv),
                *(("--plot", file) for _, file in self.pictures),
                ("--trace", self.trace),
            ]
        )
        modelled = [f"--plot {kind}" for kind, _ in self.pictures if kind != "sweep"]
        if self.trace is not None:
            modelled.append("--trace")
        if modelled:
            from amdattn.bench.run import is_virtual

            if not is_virtual():
                raise ValueError(f"{modelled[0]} needs the virtual device; a GPU is bound")

    @property
    def pictures(self) -> list[tuple[str, Path]]:
        """Kind and file of each plot."""
        parts = [plot.partition("=") for plot in self.plots]
        for kind, _, file in parts:
            if not file or file.startswith("--"):
                raise ValueError(f"--plot={kind!r} needs a file: --plot KIND FILE")
        return [(kind, Path(file)) for kind, _, file in parts]

    @property
    def trace_events(self) -> int:
        """The number of events that the model has to keep."""
        timeline = any(kind == "timeline" for kind, _ in self.pictures)
        return _TRACE_EVENTS if self.trace is not None or timeline else 0


def chosen_readings(given: Sequence[str] | None) -> tuple[str, ...]:
    """The readings that --reading requests, for the architecture of the bound device."""
    from amdattn.device import runtime

    return readings.chosen(given, runtime.device_props().arch)


def object_file(peer: str) -> Path | None:
    """FILE of object=FILE; None for any other peer."""
    kind, _, value = peer.partition("=")
    return Path(value) if kind == "object" and value else None


def objects(
    files: Sequence[Path],
    kernel: str | None,
    grid: str | None,
    workgroup: str | None,
    args: str,
    dynamic_lds: int,
) -> list[CodeObject]:
    """The kernels of code object files, all with the same arguments and grid.

    Raises
    ------
    ValueError
        There are files but no grid, or an option is malformed.
    """
    from amdattn.checking.arguments import read_arguments
    from amdattn.checking.subjects import CodeObject

    if not files:
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


def run_object(
    subject: CodeObject,
    functions: Functions,
    operation: str,
    simulated_workgroups: int,
    clock_mhz: int,
    output: Output,
) -> Outcome:
    """Model or measure one code object."""
    from amdattn.bench.code_object import run_code_object

    return run_code_object(
        subject,
        functions,
        operation=operation,
        simulated_workgroups=simulated_workgroups,
        clock_mhz=clock_mhz,
        trace_events=output.trace_events,
    )


def show(
    title: str,
    outcomes: Sequence[Outcome],
    output: Output,
    seconds: float,
    *,
    details: bool,
    unit: str = "ms",
) -> None:
    """Write the requested files, and print the results.

    Parameters
    ----------
    title : str
        Heading of the table.
    outcomes : sequence of Outcome
    output : Output
    seconds : float
        Wall time of the run.
    details : bool
        Also print stalls, bytes and waits of each row.
    unit : {"ms", "us"}
        Of times in tables.
    """
    from amdattn.bench import plots, report, trace
    from amdattn.bench.record import document
    from amdattn.device import runtime

    records = [outcome.record for outcome in outcomes]
    profiles = [o.modelled.profile for o in outcomes if o.modelled is not None]
    if output.csv is not None:
        report.write_csv(output.csv, records)
    for kind, file in output.pictures:
        plots.plot(kind, file, records, profiles[-1] if profiles else None)
    if output.trace is not None:
        if not profiles:
            raise ValueError("--trace needs a modelled launch: run on the virtual device")
        trace.write_trace(output.trace, profiles[-1])
    if output.as_json:
        print_json(document(records, seconds))
    elif output.markdown:
        typer.echo(report.markdown(records, unit), nl=False)
    else:
        title = f"{title}, {runtime.get().title}"
        report.print_table(stdout, title, records, wide=output.wide, unit=unit)
        for record in records:
            if details and record.stalls:
                stdout.print(f"{record.shape} {record.label}", highlight=False)
                report.print_details(stdout, record)
        stdout.print(f"{seconds:.1f} s, measured on this CPU", style="dim", highlight=False)
