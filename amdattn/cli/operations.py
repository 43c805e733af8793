"""Commands that run and explain the package's operations."""

from __future__ import annotations

import platform
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import amdattn
from amdattn.cli.output import (
    AsJson,
    Batch,
    Gather,
    HeadDim,
    HeadDimV,
    HeadsKv,
    HeadsQ,
    Layout,
    NumSplits,
    RoundMode,
    Scale,
    SeqlenKv,
    SeqlenQ,
    Softcap,
    TopLeft,
    Window,
    print_facts,
    print_json,
    spinner,
    stderr,
    stdout,
)
from amdattn.errors import AmdattnError


def info(as_json: AsJson = False) -> None:
    """Which device is bound, why, from which file; and the shipped kernels."""
    failure = ""
    try:
        device = _device_facts()
    except AmdattnError as error:
        device, failure = {}, str(error)
    kernels = [
        {
            "name": kernel.name,
            "arch": kernel.arch,
            "dtype": kernel.dtype,
            "head_dim": kernel.head_dim,
            "tiles": f"{kernel.q_tile} x {kernel.kv_tile}",
            "vgpr (agpr)": f"{kernel.vgpr} ({kernel.agpr})",
            "lds_bytes": kernel.lds_bytes,
            "code_object_version": kernel.code_object_version,
            "sha256": kernel.sha256,
        }
        for kernel in amdattn.kernels()
    ]
    versions = {"amdattn": amdattn.__version__, "python": platform.python_version()}
    if as_json:
        print_json({"versions": versions, "device": device, "error": failure, "kernels": kernels})
    else:
        print_facts("amdattn", {**versions, **device})
        table = Table("kernel", "tiles q x kv", "VGPR (AGPR)", "sha256")
        for row in kernels:
            shown = ("name", "tiles", "vgpr (agpr)")
            table.add_row(*(str(row[key]) for key in shown), str(row["sha256"])[:8])
        stdout.print(table)
    if failure:
        stderr.print(failure, style="red", markup=False)
        raise typer.Exit(1)


def demo(
    batch: Batch = 1,
    seqlen_q: SeqlenQ = 300,
    seqlen_kv: SeqlenKv = 0,
    heads_q: HeadsQ = 2,
    heads_kv: HeadsKv = 0,
    seed: int = 0,
    as_json: AsJson = False,
) -> None:
    """Attention on random bfloat16 inputs, compared with float64."""
    from amdattn import runtime
    from amdattn.testing import selftest

    case = selftest.Case(seqlen_q, seqlen_kv or seqlen_q, batch, heads_q, heads_kv or heads_q)
    plan = amdattn.plan_attention(
        case.batch,
        case.seqlen_q,
        case.seqlen_kv,
        case.num_heads_q,
        case.num_heads_kv,
        case.head_dim,
        device=amdattn.device_props(),
    )
    with spinner(f"attention {case}", quiet=as_json):
        result = selftest.run_case(case, seed)
    launched = {
        f"launch {i}": f"{launch.kernel.name}, grid {launch.grid} = {launch.num_workgroups} "
        "workgroups"
        for i, launch in enumerate(plan.launches, 1)
    }
    facts = {
        "problem": str(case),
        "device": runtime.get().title,
        **launched,
        "max error": f"{result.out.max_error:.3g} against float64",
        "allowed": f"{result.out.tolerance:.3g} (2x a plain bfloat16 pipeline's error + rounding)",
        "verdict": "ok" if result.ok else result.out.reason or result.lse.reason,
        "wall time": f"{result.seconds:.3f} s with copies, {runtime.get().measured_on}",
    }
    if as_json:
        print_json(facts)
    else:
        print_facts("demo", facts)
    if not result.ok:
        raise typer.Exit(1)


def run(
    q: Annotated[Path, typer.Option("--q", help=".npy, (batch, seqlen, heads, head_dim)")],
    k: Annotated[Path, typer.Option("--k")],
    v: Annotated[Path, typer.Option("--v")],
    out: Annotated[Path, typer.Option("-o", "--out", help=".npy to write")],
    lse: Annotated[Path | None, typer.Option("--lse", help=".npy to write")] = None,
    layout: Layout = "bshd",
    scale: Scale = None,
    cast: Annotated[
        bool, typer.Option("--cast", help="Round float32 inputs to bfloat16; write float32.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Attention on .npy files."""
    import numpy as np

    from amdattn import runtime

    q_array, k_array, v_array = (_load_bfloat16(path, cast) for path in (q, k, v))
    start = time.perf_counter()
    with spinner(f"attention on {q.name}, {k.name}, {v.name}", quiet=as_json):
        result, result_lse = amdattn.flash_attn_func(
            q_array, k_array, v_array, softmax_scale=scale, layout=layout, return_lse=True
        )
    seconds = time.perf_counter() - start
    np.save(out, result.astype(np.float32) if cast else result)
    if lse is not None:
        np.save(lse, result_lse)
    facts = {
        "out": f"{out} {tuple(result.shape)} {'float32' if cast else 'bfloat16'}",
        "device": runtime.get().title,
        "wall time": f"{seconds:.3f} s with copies, {runtime.get().measured_on}",
    }
    if as_json:
        print_json(facts)
    else:
        print_facts("run", facts)


def selftest(seed: int = 0, as_json: AsJson = False) -> None:
    """Odd sizes against the float64 reference, on the bound device. Exit code 1 on a failure."""
    from amdattn import runtime
    from amdattn.testing import selftest as suite

    table = Table()
    table.add_column("case", no_wrap=True)
    for column in ("error", "allowed", "lse error", "s", "verdict"):
        table.add_column(column)
    rows: list[dict[str, Any]] = []
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=stderr,
        disable=as_json,
        transient=True,
    )
    with progress:
        task = progress.add_task("selftest", total=len(suite.CASES))
        for case in suite.CASES:
            progress.update(task, description=str(case))
            result = suite.run_case(case, seed)
            progress.advance(task)
            row = {
                "case": str(case),
                "max_error": f"{result.out.max_error:.3g}",
                "allowed": f"{result.out.tolerance:.3g}",
                "lse_error": f"{result.lse.max_error:.3g}",
                "seconds": f"{result.seconds:.2f}",
                "verdict": "ok" if result.ok else result.out.reason or result.lse.reason,
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


def explain(
    batch: Batch = 1,
    seqlen_q: SeqlenQ = 4096,
    seqlen_kv: SeqlenKv = 0,
    heads_q: HeadsQ = 32,
    heads_kv: HeadsKv = 0,
    head_dim: HeadDim = 128,
    head_dim_v: HeadDimV = 0,
    dtype: str = "bfloat16",
    causal: bool = False,
    window: Window = (-1, -1),
    top_left: TopLeft = False,
    sinks: bool = False,
    round_mode: RoundMode = "rtne",
    num_splits: NumSplits = 0,
    gather: Gather = "",
    softcap: Softcap = 0.0,
    device: Annotated[str, typer.Option(help="A known device, or 'bound'.")] = "MI300X",
    as_json: AsJson = False,
) -> None:
    """Which kernel a problem gets, and why. Needs no device."""
    plan = amdattn.plan_attention(
        batch,
        seqlen_q,
        seqlen_kv or seqlen_q,
        heads_q,
        heads_kv or heads_q,
        head_dim,
        head_dim_v=head_dim_v,
        dtype=dtype,
        causal=causal,
        window_size=window,
        top_left=top_left,
        sinks=sinks,
        round_mode=round_mode,
        num_splits=num_splits,
        gather=gather,
        softcap=softcap,
        device=amdattn.device_props() if device == "bound" else device,
    )
    if as_json:
        print_json(dict(plan.as_dict()))
    else:
        print_facts("plan", plan.as_dict())


def _device_facts() -> dict[str, str]:
    from amdattn import runtime

    device = runtime.get()
    props = device.props
    facts = {
        "device": f"{device.title}, {props.target}",
        "bound": f"{device.choice.kind}, because {device.choice.why}",
        "library": device.choice.library,
        "HIP runtime": str(device.version()),
        "hip-python": device.hip_python_version(),
        "CUs": f"{props.num_cus} on {props.num_xcds} XCDs",
        "memory": f"{props.memory_bytes / 2**30:.0f} GiB",
    }
    if device.choice.rejected:
        facts["passed over"] = "\n".join(device.choice.rejected)
    return facts


def _load_bfloat16(path: Path, cast: bool) -> Any:
    """Read a .npy file. numpy stores bfloat16 as 2-byte void elements; float32 needs `cast`."""
    import ml_dtypes
    import numpy as np

    from amdattn.user_files import read_array

    array = read_array(path)
    if array.dtype.kind == "V" and array.dtype.itemsize == 2:
        return array.view(ml_dtypes.bfloat16)
    if array.dtype == np.float32 and cast:
        return array.astype(ml_dtypes.bfloat16)
    hint = "; --cast rounds it to bfloat16" if array.dtype == np.float32 else ""
    raise ValueError(f"{path} holds {array.dtype}, not bfloat16{hint}")
