"""Commands that describe the device and test that the kernels work on it."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Table

import amdattn
from amdattn.cli.options import Batch, HeadsKv, HeadsQ, Seed, SeqlenKv, SeqlenQ
from amdattn.cli.output import (
    AsJson,
    print_facts,
    print_json,
    progress_bar,
    spinner,
    stderr,
    stdout,
)
from amdattn.cli.report import write_report
from amdattn.device import manifest
from amdattn.errors import AmdattnError


def info(
    kernels: Annotated[
        bool,
        typer.Option(
            "--kernels", help="List every shipped kernel; --json always does, with hashes."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the bound device, why it was chosen and from which library; and the shipped kernels."""
    failure = ""
    try:
        device = _device_facts()
    except AmdattnError as error:
        device, failure = {}, str(error)
    rows = [
        {
            "name": kernel.name,
            "arch": kernel.arch,
            "op": kernel.op,
            "dtype": kernel.dtype,
            "params": dict(kernel.params),
            "tile": dict(kernel.tile),
            "vgpr (agpr)": f"{kernel.vgpr} ({kernel.agpr})",
            "lds_bytes": kernel.lds_bytes,
            "code_object_version": kernel.code_object_version,
            "sha256": kernel.sha256,
        }
        for kernel in amdattn.kernels()
    ]
    versions = {"amdattn": amdattn.__version__, "python": platform.python_version()}
    if as_json:
        print_json({"versions": versions, "device": device, "error": failure, "kernels": rows})
    else:
        print_facts("amdattn", {**versions, **device})
        stdout.print(_every_kernel(rows) if kernels else _kernel_groups())
        if not kernels:
            stdout.print("--kernels lists them one by one", style="dim")
    if failure:
        stderr.print(failure, style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1)


def _every_kernel(rows: Sequence[Mapping[str, Any]]) -> Group:
    """One table per architecture; with a column for it, or for hashes, names would not fit."""
    archs = dict.fromkeys(row["arch"] for row in rows)
    columns = ("kernel", "tile", "VGPR\n(AGPR)")
    tables = {arch: Table(*columns, title=arch) for arch in archs}
    for row in rows:
        sizes = "x".join(map(str, row["tile"].values()))
        table = tables[row["arch"]]
        table.add_row(row["name"], sizes, row["vgpr (agpr)"])
    return Group(*tables.values())


def _kernel_groups() -> Table:
    """A row per operation: its element types, and how many kernels each architecture has."""
    groups: dict[str, list[manifest.KernelSpec]] = {}
    for kernel in amdattn.kernels():
        groups.setdefault(kernel.op, []).append(kernel)
    archs = sorted({kernel.arch for kernels in groups.values() for kernel in kernels})
    table = Table("operation", "element types", *(f"kernels, {arch}" for arch in archs))
    for op, kernels in groups.items():
        dtypes = dict.fromkeys(kernel.dtype for kernel in kernels)
        counts = (str(sum(kernel.arch == arch for kernel in kernels)) for arch in archs)
        table.add_row(op, ", ".join(dtypes), *counts)
    return table


def demo(
    batch: Batch = 1,
    seqlen_q: SeqlenQ = 300,
    seqlen_kv: SeqlenKv = 0,
    heads_q: HeadsQ = 2,
    heads_kv: HeadsKv = 0,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Run attention on random bfloat16 inputs and compare it with float64."""
    from amdattn.device import runtime
    from amdattn.ops import registry
    from amdattn.ops.attention import cases
    from amdattn.testing import selftest

    case = cases.case(
        *(seqlen_q, seqlen_kv or seqlen_q, batch, heads_q, heads_kv or heads_q), return_lse=True
    )
    operation = registry.operation("attention")
    plan = operation.planned(case.problem, amdattn.device_props())
    with spinner(f"attention {case.title}", quiet=as_json):
        result = selftest.run_case(operation, case, seed)
    launched = {
        f"launch {i}": f"{launch.kernel.name}, grid {launch.grid} = {launch.num_workgroups} "
        "workgroups"
        for i, launch in enumerate(plan.launches, 1)
    }
    out = result.results["out"]
    facts = {
        "problem": case.title,
        "device": runtime.get().title,
        **launched,
        "max error": f"{out.max_error:.3g} against float64",
        "allowed": f"{out.tolerance:.3g}: rounding of p, of its sum and of the result",
        "verdict": result.reason or "ok",
        "wall time": f"{result.seconds:.3f} s with copies, {runtime.get().measured_on}",
    }
    if as_json:
        print_json(facts)
    else:
        print_facts("demo", facts)
    if not result.ok:
        raise typer.Exit(1)


def selftest(
    seed: Seed = 0,
    as_json: AsJson = False,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write all facts and results: FILE.json and FILE.md."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run only a part of each step of a report.")
    ] = False,
    step_limit: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Time limit of every step of a report."),
    ] = None,
) -> None:
    """Test odd sizes against the float64 reference on the bound device. Exit code 1 on failure.

    --report runs in a separate process and never leaves a GPU hung: docs/real-gpu-report.md.
    """
    if report is not None:
        if as_json or seed:
            raise ValueError(
                "--json and --seed cannot be combined with --report, which has its own"
            )
        return write_report(report, quick, step_limit)
    if quick or step_limit is not None:
        raise ValueError("--quick and --step-limit need --report FILE")
    from amdattn.device import runtime
    from amdattn.testing import selftest as suite

    cases = list(suite.cases())
    table = Table()
    table.add_column("case", overflow="fold")
    for column in ("error", "allowed", "s", "verdict"):
        table.add_column(column, overflow="fold", no_wrap=column == "s")
    rows: list[dict[str, Any]] = []
    with progress_bar(quiet=as_json) as progress:
        task = progress.add_task("selftest", total=len(cases))
        for operation, case in cases:
            title = f"{operation.name} {case.title}"
            progress.update(task, description=title)
            result = suite.run_case(operation, case, seed)
            progress.advance(task)
            found = result.results
            row = {
                "case": title,
                "max_error": " ".join(f"{name} {x.max_error:.3g}" for name, x in found.items()),
                "allowed": " ".join(f"{x.tolerance:.3g}" for x in found.values()),
                "seconds": f"{result.seconds:.2f}",
                "verdict": result.reason or "ok",
            }
            rows.append({**row, "ok": result.ok})
            table.add_row(*row.values(), style=None if result.ok else "red")
    failed = sum(not row["ok"] for row in rows)
    if as_json:
        print_json({"device": runtime.get().title, "failed": failed, "cases": rows})
    else:
        stdout.print(table)
        stdout.print(
            f"{len(rows) - failed} of {len(rows)} cases hold on {runtime.get().title}; "
            f"wall time with copies, {runtime.get().measured_on}"
        )
    if failed:
        raise typer.Exit(1)


def _hip_version(number: int) -> str:
    """Unpack a HIP_VERSION: 71526333 is 7.15.26333."""
    return f"{number // 10**7}.{number // 10**5 % 100}.{number % 10**5}"


def _device_facts() -> dict[str, str]:
    from amdattn.device import binding, runtime

    device = runtime.get()
    props = device.props
    facts = {
        "device": f"{device.title}, {props.target}",
        "bound": f"{device.choice.kind}, because {device.choice.why}",
        "library": device.choice.library,
        "HIP runtime": _hip_version(device.version()),
        "hip-python": device.hip_python_version(),
        "CUs": f"{props.num_cus} on {props.num_xcds} XCDs",
        **dict(device.sources),
        "partition": f"{props.partition or 'unknown'}; planned with "
        f"{props.hbm_bytes_per_ns / 1000:.2f} TB/s of HBM",
        "memory": f"{props.memory_bytes / 2**30:.0f} GiB",
    }
    if others := binding.other_runtimes(device.choice.library):
        facts["two runtimes"] = others
    if device.choice.rejected:
        facts["passed over"] = "\n".join(device.choice.rejected)
    return facts
