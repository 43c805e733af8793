"""The report as JSON and as Markdown, and the files."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from amdattn.arch.products import REFERENCE
from amdattn.output_files import check_outputs
from amdattn.report.rows import ABSENT, FAILED
from amdattn.report.supervise import NOT_MEASURED, PASSED, SKIPPED, Outcome

KIND, SCHEMA = "amdattn report", 1
_SUFFIXES = (".json", ".md")
_FINE = {PASSED, NOT_MEASURED}
LABELS = {
    True: "Virtual device: no GPU was involved. Results are functional, times are **modelled**; "
    "nothing here was measured.",
    False: "A GPU: times under `measured` are of its own clocks and events; those under "
    f"`modelled` are the performance model's, computed on the CPU for an {REFERENCE.name}.",
}


def files_of(given: Path) -> tuple[Path, Path]:
    """The JSON and the Markdown file of `--report`, whose name may have either suffix.

    Raises
    ------
    ValueError
        One of them cannot be written; nothing was changed.
    """
    stem = given.with_suffix("") if given.suffix in _SUFFIXES else given
    if not stem.name:
        raise ValueError(f"--report={str(given)!r} must be the name of a file, not a folder")
    files = stem.with_name(stem.name + _SUFFIXES[0]), stem.with_name(stem.name + _SUFFIXES[1])
    check_outputs([("--report", given), *(("--report", path) for path in set(files) - {given})])
    return files


def document(
    host: Mapping[str, str],
    device: Sequence[Outcome],
    model: Sequence[Outcome],
    seconds: float,
    quick: bool,
) -> dict[str, Any]:
    """The whole report as a JSON document."""
    first = device[0].rows if device else []
    facts = {row["what"]: row["text"] for row in first}
    steps = [*device, *model]
    counts = {
        status: [o.planned.name for o in steps if o.status == status]
        for status in sorted({o.status for o in steps} - _FINE)
    }
    rows = [row for outcome in steps for row in outcome.rows]
    is_virtual = facts.get("kind") == "virtual" if facts else None
    return {
        "kind": KIND,
        "schema": SCHEMA,
        "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "virtual": is_virtual,
        "label": "" if is_virtual is None else LABELS[is_virtual].replace("**", ""),
        "quick": quick,
        "ok": all(outcome.status in _FINE for outcome in steps),
        "seconds": round(seconds, 1),
        "steps_not_ok": counts,
        "host": dict(host),
        "device": facts,
        "shapes": _merged(rows, "shape"),
        "micro": _merged(rows, "micro"),
        "device_steps": [outcome.as_dict() for outcome in device],
        "model_steps": [outcome.as_dict() for outcome in model],
    }


def _merged(rows: Sequence[Mapping[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Measured and modelled figures of each shape or micro kernel, beside each other."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        if kind in row["data"]:
            facts = dict(row["data"][kind])
            origin = facts.pop("origin")
            figures = {
                name: facts.pop(name) for name in list(facts) if name in _FIGURES or "_us" in name
            }
            fits = facts.pop("fits", "")
            into = found.setdefault(facts["name"], facts | {"measured": None, "modelled": None})
            into[origin] = figures
            if fits:
                into["fits"] = fits
    return list(found.values())


_FIGURES = ("value", "low", "high")

# -- Markdown --------------------------------------------------------------------------------------


def markdown(report: Mapping[str, Any]) -> str:
    """The report as Markdown, to be read and pasted into an issue."""
    return "\n".join(_parts(report)).rstrip() + "\n"


def _parts(report: Mapping[str, Any]) -> Iterator[str]:
    name = report["device"].get("name", "no device was bound")
    yield f"# amdattn on {_cell(name)}\n"
    yield f"{KIND}, schema {SCHEMA}, {report['created']}, {report['seconds']:g} s" + (
        ", quick" if report["quick"] else ""
    )
    yield ""
    if report["virtual"] is not None:
        yield f"{LABELS[report['virtual']]}\n"
    if report["ok"]:
        yield "**Every step holds.**\n"
    else:
        for status, names in report["steps_not_ok"].items():
            yield f"- **{status}**: {', '.join(names)}"
        yield ""
    yield "## Device and versions\n"
    yield _table(("", ""), [*report["device"].items(), *report["host"].items()])
    yield "## Steps\n"
    steps = [*report["device_steps"], *report["model_steps"]]
    yield _table(
        ("step", "outcome", "s", "limit s"),
        ((s["title"], s["status"], f"{s['seconds']:.1f}", f"{s['limit_s']:g}") for s in steps),
    )
    for step in steps:
        yield from _of_step(step)
    if report["shapes"]:
        yield "## Shapes, in us\n"
        yield "Measured: median (10 to 90 %), caches flushed before every run. Modelled: at the "
        yield "peak clock, which is a lower bound, and at an estimated clock.\n"
        yield _table(
            ("shape", "measured", "modelled, peak clock", "modelled, estimated clock"),
            (_shape_cells(row) for row in report["shapes"]),
        )
    if report["micro"]:
        yield "## Micro kernels\n"
        yield "The first reading is the model's. docs/real-gpu-report.md says what each decides.\n"
        yield _table(
            ("kernel", "unit", "measured", "modelled", "readings", "fits"),
            (_micro_cells(row) for row in report["micro"]),
        )


def _of_step(step: Mapping[str, Any]) -> Iterator[str]:
    """The rows of a step, unless a later table has them, and the reason if it failed."""
    rows = [
        row
        for row in step["rows"]
        if row["outcome"] == FAILED
        or not (row["outcome"] == ABSENT or {"shape", "micro"} & row["data"].keys())
    ]
    told = step["name"] != "device" and rows
    if not told and not step["error"]:
        return
    yield f"### {step['title']}\n"
    if step["error"]:
        yield f"```text\n{step['status']}: {step['error'].replace('```', '~~~')}\n```\n"
    elif step["status"] == SKIPPED:
        yield "skipped\n"
    if told:
        yield _table(("", "", ""), ((row["what"], row["outcome"], row["text"]) for row in rows))


def _shape_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    measured, modelled = row["measured"] or {}, row["modelled"] or {}
    shown = "-"
    if measured:
        shown = "{median_us:.1f} ({low_us:.1f} to {high_us:.1f})".format(**measured)
    times = (modelled.get(name) for name in ("at_peak_us", "estimated_us"))
    return row["name"], shown, *("-" if us is None else f"{us:.1f}" for us in times)


def _micro_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    def shown(figures: Mapping[str, Any] | None) -> str:
        if not figures:
            return "-"
        text = f"{figures['value']:.4g}"
        if figures["low"] is not None:
            text += f" ({figures['low']:.4g} to {figures['high']:.4g})"
        return text

    return (
        row["what"],
        row["unit"],
        shown(row["measured"]),
        shown(row["modelled"]),
        "; ".join(row["readings"]),
        row.get("fits", "-"),
    )


def _cell(text: object) -> str:
    """A cell of one line, without characters that end it."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;") or " "


def _table(
    head: Sequence[str], rows: Iterator[Sequence[object]] | Sequence[Sequence[object]]
) -> str:
    lines = ["| " + " | ".join(_cell(h) for h in head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def to_json(report: Mapping[str, Any]) -> str:
    """The text of the file. JSON lacks NaN and infinities: they are texts."""
    return json.dumps(_finite(report), indent=1, allow_nan=False) + "\n"


def _finite(x: Any) -> Any:
    if isinstance(x, Mapping):
        return {key: _finite(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [_finite(value) for value in x]
    return str(x) if isinstance(x, float) and not math.isfinite(x) else x
