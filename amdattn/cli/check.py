"""The check command."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amdattn.cli.options import (
    Batch,
    Causal,
    Dtype,
    Gather,
    HeadDim,
    HeadDimV,
    HeadsKv,
    HeadsQ,
    Layout,
    NumSplits,
    RoundMode,
    SeqlenKv,
    SeqlenQ,
    Sinks,
    Softcap,
    SoftmaxScale,
    TopLeft,
    WindowSize,
    refuse_given,
)
from amdattn.cli.output import AsJson, print_json, progress_bar, stdout
from amdattn.ops import registry

if TYPE_CHECKING:
    from amdattn.checking.findings import Finding
    from amdattn.checking.schedules import Subject
    from amdattn.checking.session import Check
    from amdattn.checking.sources import SourceLines
    from amdattn.checking.subjects import CodeObject
    from amdattn.device.virtual_library import Instruction

    Disassembly = tuple[list[Instruction], SourceLines]

_ALL = "all"
# Parameters of the command that apply to some subjects only; the others apply to all.
_LENGTHS = ("batch", "seqlen_q", "seqlen_kv")
_ATTENTION = (
    *(*_LENGTHS, "heads_q", "heads_kv", "head_dim", "head_dim_v", "layout", "dtype", "lengths"),
    *("softmax_scale", "lse", "causal", "window_size", "top_left", "sinks", "softcap", "gather"),
    *("round_mode", "num_splits"),
)
_MAX_EXTENT = 2**32 - 1  # of a launch
_CODE_OBJECT = ("kernel", "grid", "workgroup", "args", "dynamic_lds")


def check(
    context: typer.Context,
    subject: Annotated[
        str,
        typer.Argument(
            help=f"{', '.join(registry.names())}, all (every operation and kernel, in many sizes), "
            "or a code object file."
        ),
    ],
    batch: Batch = 1,
    seqlen_q: SeqlenQ = 300,
    seqlen_kv: SeqlenKv = 0,
    heads_q: HeadsQ = 2,
    heads_kv: HeadsKv = 0,
    layout: Layout = "bshd",
    softmax_scale: SoftmaxScale = None,
    lse: Annotated[bool, typer.Option(help="Also compute the log-sum-exp.")] = True,
    head_dim: HeadDim = 128,
    head_dim_v: HeadDimV = 0,
    dtype: Dtype = "bfloat16",
    causal: Causal = False,
    window_size: WindowSize = (-1, -1),
    top_left: TopLeft = False,
    sinks: Sinks = False,
    softcap: Softcap = 0.0,
    gather: Gather = "",
    round_mode: RoundMode = "rtne",
    num_splits: NumSplits = 0,
    lengths: Annotated[
        str,
        typer.Option(
            metavar="Q:K,Q:K,...",
            help="Rows of q and of k for every sequence, instead of -b, -sq and -skv.",
        ),
    ] = "",
    kernel: Annotated[
        str | None, typer.Option(help="The kernel to run, if a code object has several.")
    ] = None,
    grid: Annotated[
        str | None, typer.Option(help="Workgroups of the grid of a code object: X, X,Y or X,Y,Z.")
    ] = None,
    workgroup: Annotated[
        str | None,
        typer.Option(
            help="Lanes of a workgroup of a code object: X, X,Y or X,Y,Z; default: those that it "
            "was compiled for."
        ),
    ] = None,
    args: Annotated[
        str,
        typer.Option(
            help="Arguments of a code object, or @FILE with them; see docs/checked-mode.md."
        ),
    ] = "",
    dynamic_lds: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, max=_MAX_EXTENT, help="Bytes of dynamic LDS of a code object."
        ),
    ] = 0,
    schedules: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="Run under N schedules and compare every bit of the results."
        ),
    ] = 1,
    residency: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Run N workgroups at a time; 0: all that fit."),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, help="Seed of the inputs and schedules.")
    ] = 0,
    suppressions: Annotated[
        Path | None, typer.Option(help="A .toml or .json file with accepted findings.")
    ] = None,
    max_errors: Annotated[
        int, typer.Option(metavar="N", min=0, help="End a launch after N errors; 0: never.")
    ] = 0,
    advice: Annotated[
        bool, typer.Option("--advice", help="Also show advice and counted findings.")
    ] = False,
    annotate: Annotated[
        bool, typer.Option("--annotate", help="Print the disassembly annotated with the findings.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run on the virtual device in checked mode. Exit code 1 if there is an error."""
    from amdattn.checking import listing, report, schedules as running
    from amdattn.checking.findings import ERROR, FindingLog
    from amdattn.checking.index_subject import OfIndices
    from amdattn.checking.session import document
    from amdattn.checking.subjects import OfOperation, every_case
    from amdattn.checking.suppressions import Suppressions
    from amdattn.ops.attention import cases

    if subject in (_ALL, *registry.names()):
        refuse_given(context, _CODE_OBJECT, f"cannot be combined with {subject}")
    if subject != "attention":
        refuse_given(context, _ATTENTION, f"cannot be combined with {subject}")
    if lengths:
        refuse_given(context, (*_LENGTHS, "layout"), "cannot be combined with --lengths")
    accepted = Suppressions.of(suppressions)
    plan = running.schedules(schedules, seed, residency)
    subjects: list[Subject]
    if subject in (_ALL, *registry.names()):
        if subject == "attention":
            operation = registry.operation(subject)
            made = cases.case(
                *(seqlen_q, seqlen_kv or seqlen_q, batch, heads_q, heads_kv or heads_q, head_dim),
                layout=layout,
                lengths=_lengths(lengths),
                softmax_scale=softmax_scale,
                return_lse=lse,
                head_dim_v=head_dim_v,
                dtype=dtype,
                causal=causal,
                window_size=window_size,
                top_left=top_left,
                sinks=sinks,
                softcap=softcap,
                gather=gather,
                round_mode=round_mode,
                num_splits=num_splits,
            )
            asked = OfOperation(operation, made, seed)
            asked.plan()  # raises for an unsupported problem before anything is launched
            subjects = [asked]
        else:
            subjects = [*every_case(seed, "" if subject == _ALL else subject)]
            if subject == _ALL:
                subjects.append(OfIndices(seed))
    else:
        subjects = [object_of_file(subject, kernel, grid, workgroup, args, dynamic_lds, seed)]
    log = FindingLog()
    disassembled: dict[tuple[str, str], Disassembly] = {}
    start = time.perf_counter()
    with progress_bar(quiet=as_json) as progress:
        task = progress.add_task("", total=len(subjects) * len(plan))
        for item in subjects:
            for schedule, checked in running.run(item, plan, log, max_errors):
                progress.update(task, advance=1, description=f"{item.title}: {schedule}")
                if annotate:
                    _disassemble(checked, disassembled)
    seconds = time.perf_counter() - start
    findings, suppressed = accepted.split(log)
    shown = [finding for finding in findings if advice or finding.severity == ERROR]
    listings = {
        kernel: list(listing.annotate(instructions, _of(shown, code_object, kernel), sources))
        for (code_object, kernel), (instructions, sources) in disassembled.items()
    }
    num_runs = len(subjects) * len(plan)
    if as_json:
        print_json(
            {
                "subjects": [item.title for item in subjects],
                "schedules": [str(schedule) for schedule in plan],
                "seconds": round(seconds, 3),
                **document(log, findings, suppressed),
                "listings": {
                    name: [line.text for line in lines] for name, lines in listings.items()
                },
            }
        )
    else:
        for name, lines in listings.items():
            report.print_listing(stdout, name, lines)
        report.print_report(stdout, log, findings, suppressed, num_runs, advice)
        stdout.print(f"{seconds:.1f} s, measured on this CPU", style="dim", highlight=False)
    if any(finding.severity == ERROR for finding in findings):
        raise typer.Exit(1)


def _lengths(text: str) -> tuple[tuple[int, int], ...]:
    """Read Q:K,Q:K,... of --lengths; "" gives ()."""
    pairs = [pair.split(":") for pair in text.split(",")] if text else []
    if not all(len(pair) == 2 and all(n.strip().isdecimal() for n in pair) for pair in pairs):
        raise ValueError(f"--lengths={text!r} must be Q:K,Q:K,..., with a pair for every sequence")
    return tuple((int(rows), int(keys)) for rows, keys in pairs)


def object_of_file(
    name: str,
    kernel: str | None,
    grid: str | None,
    workgroup: str | None,
    args: str,
    dynamic_lds: int,
    seed: int,
) -> CodeObject:
    """Read a code object file that was given instead of an operation, and its launch.

    Raises
    ------
    ValueError
        `name` is neither an operation nor a file, there is no grid, or an option is malformed.
    """
    from amdattn.checking.arguments import read_arguments
    from amdattn.checking.subjects import CodeObject

    path = Path(name)
    if not path.is_file():
        raise ValueError(
            f"subject {name!r} is neither one of {', '.join((*registry.names(), _ALL))} nor a code "
            "object file"
        )
    if grid is None:
        raise ValueError(f"subject {name!r} is a code object file, which needs --grid")
    return CodeObject(
        path,
        kernel,
        extent("grid", grid),
        None if workgroup is None else extent("workgroup", workgroup),
        read_arguments(args),
        dynamic_lds,
        seed,
    )


def extent(option: str, text: str) -> tuple[int, int, int]:
    """Read X, X,Y or X,Y,Z of an option; raises ValueError for anything else."""
    parts = text.split(",")
    if len(parts) > 3 or not all(
        part.strip().isdecimal() and 0 < int(part) <= _MAX_EXTENT for part in parts
    ):
        raise ValueError(f"--{option}={text!r} must be X, X,Y or X,Y,Z, each in 1..{_MAX_EXTENT}")
    x, y, z = ([int(part) for part in parts] + [1, 1])[:3]
    return x, y, z


def _disassemble(check: Check, into: dict[tuple[str, str], Disassembly]) -> None:
    for code_object, kernel in check.log.kernels():
        if (code_object, kernel) not in into:
            into[code_object, kernel] = (
                check.listing(code_object, kernel),
                check.sources(code_object),
            )


def _of(findings: list[Finding], code_object: str, kernel: str) -> list[Finding]:
    return [f for f in findings if (f.code_object, f.kernel) == (code_object, kernel)]
