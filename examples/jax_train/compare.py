"""Runs beside each other: whether they agree, and their picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

SMOOTHED = 20  # steps whose mean is drawn
OF_BFLOAT16 = 2.0  # how far kernels may be from float32, in what XLA's bfloat16 is
LEAST_FALL = 0.15  # nats, of what is held out


class Run(NamedTuple):
    """One training."""

    name: str
    losses: list[float]  # of every step
    looks: dict[int, float]  # of what is held out, by step
    seconds: float


def gradient_errors(found: Any, exact: Any) -> float:
    """The norm of the difference to float32, of all parameters, over the norm of these."""
    pairs = list(zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True))
    wrong = sum(float(np.square(np.float64(x) - np.float64(y)).sum()) for x, y in pairs)
    return float(np.sqrt(wrong / sum(float(np.square(np.float64(y)).sum()) for _, y in pairs)))


def distance(run: Run, exact: Run) -> float:
    """Root mean square of the differences of held-out losses, of every look after the first."""
    each = [run.looks[step] - exact.looks[step] for step in run.looks if step > 0]
    return float(np.sqrt(np.mean(np.square(each))))


def compare(runs: list[Run], errors: dict[int, dict[str, float]], console: Console) -> bool:
    """Print the runs (kernels, bfloat16, float32, its other seeds); whether all bars are met."""
    table = Table(title="loss of what is held out, nats a byte")
    for column in ("run", "before", "after", "from float32", "seconds here"):
        table.add_column(column, justify="right")
    ours, half, exact, *others = runs
    for run in runs:
        looks = list(run.looks.values())
        far = "" if run is exact or run in others else f"{distance(run, exact):.5f}"
        table.add_row(run.name, f"{looks[0]:.4f}", f"{looks[-1]:.4f}", far, f"{run.seconds:.0f}")
    console.print(table)
    last = [list(run.looks.values())[-1] for run in (exact, *others)]
    spread = max(last) - min(last)
    bars = {
        f"every run falls by {LEAST_FALL} nats": all(
            list(run.looks.values())[-1] < run.looks[0] - LEAST_FALL for run in runs
        ),
        f"kernels are at most {OF_BFLOAT16:g} times as far from float32 as XLA's bfloat16: "
        f"{distance(ours, exact):.5f} and {distance(half, exact):.5f}": distance(ours, exact)
        <= OF_BFLOAT16 * distance(half, exact),
        f"and less than the spread of seeds, {spread:.4f}": distance(ours, exact) < spread,
    }
    for step, by in errors.items():
        ours_wrong, half_wrong = by["amdattn"], by["XLA bfloat16"]
        bars[f"gradients of step {step}: {ours_wrong:.4%} and {half_wrong:.4%} wrong"] = (
            ours_wrong <= OF_BFLOAT16 * half_wrong
        )
    for text, holds in bars.items():
        console.print(f"{text}: {'ok' if holds else 'NOT SO'}", soft_wrap=True, highlight=False)
    return all(bars.values())


def smoothed(losses: list[float]) -> np.ndarray:
    """Means of `SMOOTHED` steps, or of all if there are fewer."""
    width = min(SMOOTHED, len(losses))
    return np.convolve(losses, np.full(width, 1 / width), mode="valid")


def picture(model: str, runs: list[Run], path: Path) -> None:
    """Draw the losses, if there is matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        Console(stderr=True).print(f"no {path.name}: pip install matplotlib", markup=False)
        return
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    of_steps, of_looks = figure.subplots(1, 2)
    styles = (("C3", "-"), ("C0", "--"), ("black", ":"), ("0.6", ":"), ("0.8", ":"))
    for run, (colour, style) in zip(runs, styles, strict=False):
        means = smoothed(run.losses)
        steps = np.arange(len(run.losses) - len(means), len(run.losses))
        of_steps.plot(steps, means, style, color=colour, label=run.name)
        of_looks.plot(*zip(*run.looks.items(), strict=True), style, color=colour, marker=".")
    of_steps.set(xlabel="step", ylabel="loss, nats a byte", title=f"{model}: means of {SMOOTHED}")
    of_looks.set(xlabel="step", title="what is held out")
    of_steps.legend(frameon=False)
    for axes in (of_steps, of_looks):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=100)
