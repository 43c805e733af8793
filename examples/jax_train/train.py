"""Trains a small Llama or BERT on the text of this repository: by kernels, and by XLA beside them.

The same seed in bfloat16 by amdattn's kernels, forward and backward, in bfloat16 by XLA and in
float32 by XLA, which two more seeds show the spread of. Losses go to CSV files and, with
matplotlib, to a picture. Exit code 1 if one of the bars in the README is not met.
"""

from __future__ import annotations

import csv
import functools
import time
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NamedTuple

import bert
import jax
import jax.numpy as jnp
import llama
import numpy as np
import typer
from compare import Run, compare, gradient_errors, picture
from computing import AMDATTN, EXACT, XLA, Computing
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

ROOT = Path(__file__).resolve().parents[2]
MODELS = {"llama": llama, "bert": bert}
CHUNK = 10  # steps in a call of the program
PEAK_RATE, WARM_UP, DECAY, LARGEST_NORM = 2e-3, 50, 0.1, 1.0
HELD_OUT, BATCHES = 10, 16  # one part in so many of the text; batches of it that are looked at
MORE_SEEDS = 2  # in float32, for the spread

_out = Console()
_err = Console(stderr=True)


class Task(NamedTuple):
    """What is trained, on what."""

    model: ModuleType
    sizes: Any
    text: jax.Array
    held_out: jax.Array
    steps: int
    every: int  # steps between two looks at what is held out


def main(
    model: Annotated[str, typer.Argument(help=f"One of {', '.join(MODELS)}.")],
    steps: Annotated[int, typer.Option(help=f"A multiple of {CHUNK}.", min=CHUNK)] = 1000,
    seed: Annotated[int, typer.Option(help="Of the parameters and of the batches.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the losses and the picture.")] = Path(
        "jax_train"
    ),
) -> None:
    """Train a model by kernels, by XLA in bfloat16 and in float32; compare them."""
    if model not in MODELS:
        raise typer.BadParameter(f"{model!r} must be one of {', '.join(MODELS)}")
    if steps % CHUNK:
        raise typer.BadParameter(f"--steps={steps} must be a multiple of {CHUNK}")
    task = task_of(MODELS[model], MODELS[model].Sizes(), steps)
    _out.print(f"{len(task.text)} bytes of text, {model} {task.sizes}", highlight=False)
    runs, errors = experiment(task, seed)
    out.mkdir(parents=True, exist_ok=True)
    write(out / f"{model}.csv", runs)
    picture(model, runs, out / f"{model}.png")
    if not compare(runs, errors, _out):
        raise typer.Exit(1)


def task_of(model: ModuleType, sizes: Any, steps: int) -> Task:
    """On the bytes of README.md and of docs, the last of them held out."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    text = np.frombuffer(b"\n".join(page.read_bytes() for page in pages), np.uint8)
    last = len(text) // HELD_OUT
    every = max(CHUNK, steps // 10 // CHUNK * CHUNK)
    return Task(model, sizes, jnp.asarray(text[:-last]), jnp.asarray(text[-last:]), steps, every)


def experiment(task: Task, seed: int) -> tuple[list[Run], dict[int, dict[str, float]]]:
    """Every run; and of steps the errors of gradients by kernels and by XLA in bfloat16."""
    kept: dict[int, Any] = {}
    runs = [train("amdattn", AMDATTN, task, seed, kept)]
    runs.append(train("XLA bfloat16", XLA, task, seed))
    runs.append(train("XLA float32", EXACT, task, seed))
    for more in range(seed + 1, seed + 1 + MORE_SEEDS):
        runs.append(train(f"XLA float32, seed {more}", EXACT, task, more))
    errors = {}
    for step, parameters in kept.items():
        key = jax.random.fold_in(jax.random.key(seed + 1), step)
        exact, *found = (
            gradients(parameters, task.held_out, key, task.model, task.sizes, by)[1]
            for by in (EXACT, AMDATTN, XLA)
        )
        errors[step] = {
            name: gradient_errors(each, exact)
            for name, each in zip(("amdattn", "XLA bfloat16"), found, strict=True)
        }
    return runs, errors


def train(
    name: str, by: Computing, task: Task, seed: int, kept: dict[int, Any] | None = None
) -> Run:
    """Train; `kept` gets the parameters of steps 0, a tenth of all, and all."""
    start = time.perf_counter()
    parameters = task.model.initial(task.sizes, seed)
    state = (parameters, *(jax.tree.map(jnp.zeros_like, parameters) for _ in range(2)))
    batches = jax.random.key(seed + 1)
    losses: list[float] = []
    looks: dict[int, float] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=_err) as progress:
        shown = progress.add_task(f"{name:>20}", total=task.steps)
        for step in range(0, task.steps + 1, CHUNK):
            if step % task.every == 0:
                looks[step] = float(validation(state[0], task.held_out, task.model, task.sizes, by))
            if kept is not None and step in (0, task.every, task.steps):
                kept[step] = jax.tree.map(np.asarray, state[0])
            if step == task.steps:
                break
            numbers = step + jnp.arange(CHUNK)
            state, found = run(
                state, numbers, task.text, batches, task.steps, task.model, task.sizes, by
            )
            losses += np.asarray(found).tolist()
            progress.update(shown, completed=len(losses))
    return Run(name, losses, looks, time.perf_counter() - start)


def batch(text: jax.Array, key: jax.Array, sizes: Any) -> jax.Array:
    """Rows of text from anywhere."""
    starts = jax.random.randint(key, (sizes.rows, 1), 0, len(text) - sizes.text)
    return text[starts + jnp.arange(sizes.text)].astype(jnp.int32)


@functools.partial(jax.jit, static_argnames=("model", "sizes", "by"))
def gradients(
    parameters: Any, text: jax.Array, key: jax.Array, model: ModuleType, sizes: Any, by: Computing
) -> Any:
    """The loss of a batch, and its gradients."""
    rows = batch(text, key, sizes)
    return jax.value_and_grad(model.loss)(parameters, rows, jax.random.fold_in(key, 1), sizes, by)


@functools.partial(jax.jit, static_argnames=("model", "sizes", "by"))
def validation(
    parameters: Any, text: jax.Array, model: ModuleType, sizes: Any, by: Computing
) -> jax.Array:
    """Mean loss of batches that are the same every time."""

    def one(key: jax.Array) -> jax.Array:
        found: jax.Array = model.loss(
            *(parameters, batch(text, key, sizes), jax.random.fold_in(key, 1), sizes, by)
        )
        return found

    return jax.lax.map(one, jax.random.split(jax.random.key(0), BATCHES)).mean()


@functools.partial(
    jax.jit, static_argnames=("steps", "model", "sizes", "by"), donate_argnames="state"
)
def run(
    state: Any,
    numbers: jax.Array,
    text: jax.Array,
    batches: jax.Array,
    steps: int,
    model: ModuleType,
    sizes: Any,
    by: Computing,
) -> Any:
    """Some steps of training: the state after them, and their losses."""

    def step(state: Any, number: jax.Array) -> Any:
        key = jax.random.fold_in(batches, number)
        value, found = gradients(state[0], text, key, model, sizes, by)
        return adamw(state, found, number, steps), value

    return jax.lax.scan(step, state, numbers)


def adamw(state: Any, gradients: Any, number: jax.Array, steps: int) -> Any:
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


def write(path: Path, runs: list[Run]) -> None:
    """Losses of every step, and beside them those of what is held out."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["step", *(f"{run.name}{of}" for run in runs for of in ("", " held out"))])
        for step in range(len(runs[0].losses) + 1):
            cells = ((run.losses[step : step + 1], run.looks.get(step)) for run in runs)
            rows.writerow([step, *(x for loss, look in cells for x in (*(loss or [""]), look))])


if __name__ == "__main__":
    typer.run(main)
