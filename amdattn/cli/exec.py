"""The exec command, which runs any program that uses AMD's HIP runtime on the virtual device."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from amdattn.arch.products import REFERENCE
from amdattn.cli.output import stderr
from amdattn.output_files import check_outputs, replacing

if TYPE_CHECKING:
    from amdattn.checking.suppressions import Suppressions
    from amdattn.device.profiling import LaunchProfile

DEFAULT_DEVICE = f"virtual:{REFERENCE.arch}"
_FIGURES = ("workgroups", "simulated_workgroups", "instructions", "cycles", "clock_ghz")
_USES = ("mfma_use", "valu_use", "lds_use")
_SIGNAL_CODE = 128  # plus the signal, as in shells


def execute(
    command: Annotated[
        list[str], typer.Argument(help="A program and its arguments, for example -- ./program 3.")
    ],
    device: Annotated[
        str,
        typer.Option(
            help="virtual:NAME of an architecture, a product, or a partition such as "
            f"{REFERENCE.name}:CPX; default: AMDATTN_DEVICE, or {DEFAULT_DEVICE}."
        ),
    ] = "",
    runtime: Annotated[
        str,
        typer.Option(
            help="AMD's HIP runtime: amd:FOLDER, or amd for the one that the dynamic linker finds; "
            "default: AMDATTN_RUNTIME, or the one that a checkout downloaded, or amd."
        ),
    ] = "",
    check: Annotated[
        bool, typer.Option("--check", help="Run kernels in checked mode and report findings.")
    ] = False,
    findings: Annotated[
        Path | None, typer.Option(help="Write findings to this .json file; implies --check.")
    ] = None,
    suppressions: Annotated[
        Path | None, typer.Option(help="A .toml or .json file with accepted findings.")
    ] = None,
    advice: Annotated[
        bool, typer.Option("--advice", help="Also show advice and counted findings.")
    ] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Report the times of launches, modelled.")
    ] = False,
    profiles: Annotated[
        Path | None, typer.Option(help="Write times to this .csv or .json; implies --profile.")
    ] = None,
    options: Annotated[
        str,
        typer.Option(
            metavar="KEY=N,...", help="Options of the virtual device, e.g. seed=3,clock_mhz=2100."
        ),
    ] = "",
) -> None:
    """Run a program that uses AMD's HIP runtime on the virtual device.

    The exit code is the program's, or 1 if that is 0 and checked mode found an error. Reports
    go to stderr.
    """
    from amdattn.checking.suppressions import Suppressions
    from amdattn.device import program

    check_outputs([("--findings", findings), ("--profiles", profiles)])
    if profiles is not None and profiles.suffix not in (".csv", ".json"):
        raise ValueError(f"--profiles={str(profiles)!r} must end in .csv or .json")
    accepted = Suppressions.of(suppressions)
    variables = {"AMDATTN_DEVICE": _device(device)}
    if options:
        variables["AMDATTN_OPTIONS"] = _options(options)
    with tempfile.TemporaryDirectory(prefix="amdattn-exec-") as name:
        work = Path(name)
        folder = program.runtime_folder(runtime)
        program.link_libraries(work, folder)
        started, needed = program.command(command, work, folder)
        variables |= needed
        found, timed = work / "findings.json", work / "profiles.json"
        if check or findings is not None:
            variables |= {"AMDATTN_FINDINGS": str(found), "AMDATTN_CODE_OBJECTS": str(work)}
        if profile or profiles is not None:
            variables["AMDATTN_PROFILES"] = str(timed)
        code = subprocess.run(started, env={**os.environ, **variables}, check=False).returncode
        if code < 0:
            stderr.print(f"{command[0]} was ended by signal {-code}", markup=False, soft_wrap=True)
            code = _SIGNAL_CODE - code
        for variable, path in (("AMDATTN_FINDINGS", found), ("AMDATTN_PROFILES", timed)):
            if variable in variables and not path.exists():
                text = f"{command[0]} made no HIP call, or was killed"
                stderr.print(text, markup=False, soft_wrap=True)
                raise typer.Exit(code or 2)
        if "AMDATTN_PROFILES" in variables:
            _report_profiles(timed, profiles)
        if "AMDATTN_FINDINGS" in variables:
            is_clean = _report_findings(found, work, accepted, findings, advice)
            code = code or int(not is_clean)
    raise typer.Exit(code)


def _device(asked: str) -> str:
    from amdattn.device import binding

    device = asked or os.environ.get(binding.ENVIRONMENT_VARIABLE) or DEFAULT_DEVICE
    if device not in binding.REQUESTS or not device.startswith("virtual:"):
        known = ", ".join(name for name in binding.REQUESTS if name.startswith("virtual:"))
        raise ValueError(f"--device={device!r} must be one of {known}")
    return device


def _options(text: str) -> str:
    from amdattn.device.virtual_library import OPTIONS

    for item in text.split(","):
        key, _, value = item.partition("=")
        if key not in OPTIONS or not value.isdecimal():
            raise ValueError(
                f"--options: {item!r} must be KEY=N with a KEY of {', '.join(OPTIONS)}"
            )
    return text


def _report_findings(
    file: Path, images: Path, accepted: Suppressions, write: Path | None, advice: bool
) -> bool:
    """Print findings and write those to a file; return whether none is an error."""
    from amdattn.checking import report, written
    from amdattn.checking.findings import ERROR
    from amdattn.checking.session import document

    log = written.read_log(file, images)
    findings, suppressed = accepted.split(log)
    if write is not None:
        with replacing(write) as new:
            text = json.dumps(document(log, findings, suppressed), indent=2)
            new.write_text(text + "\n", encoding="utf-8")
    report.print_report(stderr, log, findings, suppressed, 1, advice)
    return all(finding.severity != ERROR for finding in findings)


def _report_profiles(file: Path, write: Path | None) -> None:
    from amdattn.device.profiling import read_profile

    launches = [read_profile(raw) for raw in json.loads(file.read_text(encoding="utf-8"))]
    if write is not None:
        with replacing(write) as new:
            if write.suffix == ".csv":
                _write_csv(new, launches)
            else:
                text = json.dumps([dataclasses.asdict(launch) for launch in launches], indent=1)
                new.write_text(text + "\n", encoding="utf-8")
    by_kernel: dict[tuple[str, int], list[LaunchProfile]] = {}
    for launch in launches:
        by_kernel.setdefault((launch.kernel, launch.workgroups), []).append(launch)
    table = Table(title="modelled times of launches")
    table.add_column("kernel", overflow="fold", min_width=12)
    for name in ("workgroups", "launches", "µs each", "µs in all", "MFMA", "VALU", "HBM"):
        table.add_column(name, justify="right", no_wrap=True)
    for (kernel, workgroups), same in by_kernel.items():
        total = sum(launch.microseconds() for launch in same)
        uses = (_mean([getattr(launch, use) for launch in same]) for use in _USES[:2])
        hbm = _mean([launch.bytes["hbm"] + launch.bytes["hbm_write"] for launch in same])
        table.add_row(
            *(kernel, str(workgroups), str(len(same)), f"{total / len(same):.2f}", f"{total:.2f}"),
            *(*(f"{use:.0%}" for use in uses), f"{hbm / 2**20:.2f} MiB"),
        )
    stderr.print(table)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _write_csv(path: Path, launches: Sequence[LaunchProfile]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        levels = list(launches[0].bytes) if launches else []
        names = [f"{level}_bytes" for level in levels]
        rows.writerow(["kernel", "arch", "microseconds", *_FIGURES, *_USES, *names])
        for launch in launches:
            facts: list[Any] = [getattr(launch, name) for name in (*_FIGURES, *_USES)]
            traffic = (launch.bytes[level] for level in levels)
            row = [launch.kernel, launch.arch, launch.microseconds(), *facts, *traffic]
            rows.writerow(row)
