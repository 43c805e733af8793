"""Trains the transformer of transformer.py on the text of this repository, twice from one seed.

Once amdattn computes the forward pass, once XLA; losses go to a CSV file and, with matplotlib, to a
picture. Exit code 1 if a loss does not fall, or if the two differ.
"""

from __future__ import annotations

import csv
import functools
import time
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from transformer import AMDATTN, XLA, Kernels, Parameters, Sizes, initial, loss

ROOT = Path(__file__).resolve().parents[2]
RUNS = {"amdattn": AMDATTN, "XLA": XLA}
CHUNK = 10  # steps in a call of the program
PEAK_RATE, WARM_UP, DECAY, LARGEST_NORM = 1e-3, 20, 0.1, 1.0
SMOOTHED = 20  # steps whose mean is compared
ALLOWED_DIFFERENCE = 0.05  # nats a byte, of these means

_out = Console()
_err = Console(stderr=True)


def main(
    steps: Annotated[int, typer.Option(help=f"A multiple of {CHUNK}.", min=CHUNK)] = 300,
    seed: Annotated[int, typer.Option(help="Of the parameters and of the batches.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for loss.csv and loss.png.")] = Path(
        "jax_train"
    ),
) -> None:
    """Train with amdattn's forward pass and with XLA's; compare the losses."""
    if steps % CHUNK:
        raise typer.BadParameter(f"--steps={steps} must be a multiple of {CHUNK}")
    sizes, text = Sizes(), corpus()
    _out.print(f"{len(text)} bytes of text, {sizes}", highlight=False)
    losses, seconds = {}, {}
    for name, kernels in RUNS.items():
        start = time.perf_counter()
        losses[name] = train(name, kernels, sizes, text, steps, seed)
        seconds[name] = time.perf_counter() - start
    out.mkdir(parents=True, exist_ok=True)
    with (out / "loss.csv").open("w", newline="") as file:
        rows = zip(range(steps), *losses.values(), strict=True)
        csv.writer(file).writerows([("step", *losses), *rows])
    picture(losses, out / "loss.png")
    if not compare(losses, seconds):
        raise typer.Exit(1)


def corpus() -> jax.Array:
    """The bytes of README.md and of docs, one after the other."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    text = b"\n".join(page.read_bytes() for page in pages)
    return jnp.asarray(np.frombuffer(text, np.uint8))


def train(
    name: str, kernels: Kernels, sizes: Sizes, text: jax.Array, steps: int, seed: int
) -> list[float]:
    """The loss of every step."""
    parameters = initial(sizes, seed)
    state = (parameters, *(jax.tree.map(jnp.zeros_like, parameters) for _ in range(2)))
    batches = jax.random.key(seed + 1)
    found: list[float] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=_err) as progress:
        task = progress.add_task(f"{name:>8}", total=steps)
        for first in range(0, steps, CHUNK):
            numbers = first + jnp.arange(CHUNK)
            state, losses = run(state, numbers, text, batches, steps, sizes, kernels)
            found += np.asarray(losses).tolist()
            progress.update(task, completed=len(found), description=f"{name:>8} {found[-1]:.3f}")
    return found


@functools.partial(jax.jit, static_argnames=("steps", "sizes", "kernels"), donate_argnames="state")
def run(
    state: Any,
    numbers: jax.Array,
    text: jax.Array,
    batches: jax.Array,
    steps: int,
    sizes: Sizes,
    kernels: Kernels,
) -> Any:
    """Some steps of training: the state after them, and their losses."""

    def step(state: Any, number: jax.Array) -> Any:
        key = jax.random.fold_in(batches, number)
        starts = jax.random.randint(key, (sizes.rows, 1), 0, len(text) - sizes.length)
        batch = text[starts + jnp.arange(sizes.length + 1)].astype(jnp.int32)
        value, gradients = jax.value_and_grad(loss)(state[0], batch, sizes, kernels)
        return adamw(state, gradients, number, steps), value

    return jax.lax.scan(step, state, numbers)


def adamw(state: Any, gradients: Parameters, number: jax.Array, steps: int) -> Any:
    """AdamW: gradients clipped, a linear warm-up, a cosine to zero, no decay of vectors."""
    norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in jax.tree.leaves(gradients)))
    gradients = jax.tree.map(lambda g: g * jnp.minimum(1, LARGEST_NORM / norm), gradients)
    warm, cooled = (number + 1) / WARM_UP, 0.5 + 0.5 * jnp.cos(jnp.pi * number / steps)
    rate = PEAK_RATE * jnp.minimum(warm, 1) * cooled
    parameters, first, second = state
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, gradients)

    def updated(p: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        m, v = m / (1 - 0.9 ** (number + 1.0)), v / (1 - 0.99 ** (number + 1.0))
        return p - rate * (m / (jnp.sqrt(v) + 1e-8) + (DECAY * p if p.ndim > 1 else 0))

    return jax.tree.map(updated, parameters, first, second), first, second


def smoothed(losses: list[float]) -> np.ndarray:
    """Means of `SMOOTHED` steps, or of all if there are fewer."""
    width = min(SMOOTHED, len(losses))
    return np.convolve(losses, np.full(width, 1 / width), mode="valid")


def compare(losses: dict[str, list[float]], seconds: dict[str, float]) -> bool:
    """Print both runs; whether they agree and have fallen."""
    table = Table(title="loss, nats a byte")
    for column in ("forward pass", "first step", "first mean", "last mean", "seconds here"):
        table.add_column(column, justify="right")
    for name, run_losses in losses.items():
        means = smoothed(run_losses)
        cells = (f"{run_losses[0]:.4f}", f"{means[0]:.4f}", f"{means[-1]:.4f}")
        table.add_row(name, *cells, f"{seconds[name]:.1f}")
    _out.print(table)
    ours, theirs = losses.values()
    single = float(np.abs(np.subtract(ours, theirs)).max())
    mean = float(np.abs(smoothed(ours) - smoothed(theirs)).max())
    fallen = all(smoothed(each)[-1] < each[0] - 0.1 for each in losses.values())
    is_ok = fallen and mean <= ALLOWED_DIFFERENCE
    _out.print(
        f"greatest difference: {single:.4f} of a step, {mean:.4f} of means over {SMOOTHED} steps "
        f"(at most {ALLOWED_DIFFERENCE}): {'ok' if is_ok else 'TOO FAR, OR NOT FALLEN'}",
        soft_wrap=True,
    )
    return is_ok


def picture(losses: dict[str, list[float]], path: Path) -> None:
    """Draw the losses, if there is matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        _err.print(f"no {path.name}: pip install matplotlib", markup=False)
        return
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel="step", ylabel="loss, nats a byte")
    for (name, each), colour in zip(losses.items(), ("C3", "C0"), strict=True):
        axes.plot(each, color=colour, alpha=0.25, linewidth=0.8)
        means = smoothed(each)
        steps = np.arange(len(each) - len(means), len(each))
        style = "-" if name == "amdattn" else "--"
        axes.plot(steps, means, style, color=colour, label=f"forward pass by {name}")
    axes.set(title=f"The same run twice; lines: means of {SMOOTHED} steps")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    typer.run(main)
