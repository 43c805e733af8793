"""The command that times passes of whole decoders."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import amdattn
from amdattn.cli.bench_output import ClockMhz, Csv, Readings, chosen_readings
from amdattn.cli.output import AsJson, print_json, progress_bar, stdout
from amdattn.output_files import check_outputs, replacing

if TYPE_CHECKING:
    from amdattn.bench.decoder import Pass

_COLUMNS = ("part", "times", "launches", "us", "of the pass", "kernel")


def llama(
    shape: Annotated[str, typer.Option(help="llama3-8b, llama3-70b or qwen3-32b.")] = "llama3-8b",
    batch: Annotated[
        str, typer.Option(help="Sequences of a step, or several numbers: 1,8,32.")
    ] = "1,8,32",
    context: Annotated[
        int, typer.Option(min=1, help="Keys per sequence, including the one that a step appends.")
    ] = 4096,
    prompt: Annotated[
        int,
        typer.Option(min=0, help="Also time a prompt of N tokens, which takes minutes; 0: none."),
    ] = 0,
    clock_mhz: ClockMhz = 0,
    reading: Readings = None,
    as_json: AsJson = False,
    csv: Csv = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the times of the parts to this .png or .svg file.")
    ] = None,
) -> None:
    """Time a decoding step, and a prompt, of a whole model by kernel, with a lower bound.

    One layer runs on its own operands, and its time counts for all layers. The lower bound, called
    floor, is the time to read weights, keys and values at the rate of HBM, plus six launches per
    layer.
    """
    from amdattn.bench import decoder, plots, run
    from amdattn.device import runtime

    batches = _counts(batch)
    check_outputs([("--csv", csv), ("--plot", plot)])
    if plot is not None:
        plots.check_file(plot)
    kinds = [(count, 1, context) for count in batches] + [(1, prompt, prompt)] * bool(prompt)
    found: list[tuple[str, Pass]] = []
    start = time.perf_counter()
    with progress_bar() as progress:
        ways = chosen_readings(reading)
        task = progress.add_task("", total=len(kinds) * len(ways))
        for way in ways:
            for sequences, tokens, keys in kinds:

                def advance(part: str, of: str = f"{shape} b{sequences}") -> None:
                    progress.update(task, description=f"{of}: {part}")

                with run.reading(way):
                    found.append(
                        (
                            way,
                            decoder.timed(
                                *(shape, sequences, tokens, keys),
                                clock_mhz=clock_mhz,
                                advance=advance,
                            ),
                        )
                    )
                progress.advance(task)
    seconds = time.perf_counter() - start
    passes = [one for _, one in found]
    if csv is not None:
        _write_csv(csv, found)
    if plot is not None:
        plots.passes(plot, passes)
    if as_json:
        print_json(
            {
                "device": runtime.get().title,
                "version": amdattn.__version__,
                "seconds": round(seconds, 3),
                "passes": [_document(way, one) for way, one in found],
            }
        )
        return
    for way, one in found:
        _print(one, way)
    stdout.print(f"{seconds:.1f} s, measured on this CPU", style="dim", highlight=False)


def _counts(given: str) -> list[int]:
    try:
        counts = [int(one) for one in given.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise ValueError(f"--batch={given!r} must be numbers of at least 1, such as 1,8,32")
    return counts


def _print(one: Pass, way: str) -> None:
    from rich.table import Table

    from amdattn.arch.readings import DEFAULT
    from amdattn.device import runtime

    what = f"prompt of {one.tokens} tokens" if one.tokens > 1 else f"step, {one.context} keys"
    clock = f" at {one.clock_ghz:g} GHz" if one.origin == "modelled" else ""
    of_reading = f", {way}" * (way != DEFAULT)
    table = Table(
        title=f"{one.model} b{one.batch}, {what}, {runtime.get().title}, {one.origin}{clock}"
        + of_reading,
        title_justify="left",
        box=None,
    )
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name in ("part", "kernel") else "right")
    for part in one.parts:
        share = part.times * (part.us + part.launches * one.launch_us) / one.us
        table.add_row(
            *(part.name, str(part.times), str(part.launches), f"{part.us:,.2f}", f"{share:.1%}"),
            " + ".join(part.kernels),
        )
    stdout.print(table)
    floor = f"{one.of_floor:.3f} of the floor of {one.floor_us:,.0f} us, " * (one.tokens == 1)
    rate = f"{one.of_the_limit:.1%} of the matrix units in cycles, " * (one.of_the_limit > 0)
    joules = f", about {one.energy['joules']:.2f} J" if "joules" in one.energy else ""
    stdout.print(
        f"{one.us:,.0f} us with {one.launches} launches of {one.launch_us:g} us, "
        f"{one.launches_of_layer} per layer: {floor}{rate}"
        f"{one.batch * one.tokens / one.us * 1e6:,.0f} tokens/s{joules}\n",
        highlight=False,
    )


def _document(way: str, one: Pass) -> dict[str, Any]:
    facts = dataclasses.asdict(one)
    for part in facts["parts"]:
        del part["activity"]
    return {
        "reading": way,
        **facts,
        "us": one.us,
        "launches": one.launches,
        "launches_of_layer": one.launches_of_layer,
        "of_floor": one.of_floor,
        "of_the_limit": one.of_the_limit,
        "energy": dict(one.energy),
    }


def _write_csv(path: Path, found: Sequence[tuple[str, Pass]]) -> None:
    head = ("model", "batch", "tokens", "context", "origin", "clock_ghz", "reading", "part")
    from csv import writer

    with replacing(path) as new, open(new, "w", newline="", encoding="utf-8") as file:
        rows = writer(file)
        rows.writerow((*head, "times", "launches", "us", "cycles", "kernels"))
        for way, one in found:
            for part in one.parts:
                rows.writerow(
                    (
                        *(one.model, one.batch, one.tokens, one.context),
                        *(one.origin, one.clock_ghz, way, part.name),
                        *(part.times, part.launches, part.us, part.cycles),
                        " + ".join(part.kernels),
                    )
                )
