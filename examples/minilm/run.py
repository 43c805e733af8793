"""Sentence embeddings whose attention runs on an AMD Instinct, or on the virtual one.

With --linear the linear layers do as well, with --all everything does.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated, Any

import numpy as np
import typer
from minilm import (
    Array,
    Attention,
    DeviceAttention,
    DeviceLinear,
    Linear,
    MiniLM,
    attention_numpy,
    linear_numpy,
    normalized,
)
from on_device import OnDevice
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from similarities import SENTENCES, table_of

from amdattn.device import runtime
from amdattn.errors import AmdattnError

REQUIRED_COSINE = 0.9999
REQUIRED_WITH_LINEAR = 0.999  # weights and their inputs are bfloat16 then

_out = Console()
_err = Console(stderr=True)


def main(
    sentences: Annotated[
        list[str] | None, typer.Argument(help="Sentences to compare; default: eight of our own.")
    ] = None,
    with_linear: Annotated[
        bool, typer.Option("--linear", help="Compute linear layers by amdattn as well.")
    ] = False,
    with_all: Annotated[
        bool, typer.Option("--all", help="Compute all of the model by amdattn.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, embeddings included.")
    ] = False,
) -> None:
    """Embed sentences with all-MiniLM-L6-v2, at least every attention computed by amdattn.

    Exit code 1 if an embedding strays from an all-float64 NumPy run.
    """
    try:
        results = embed_and_compare(
            sentences or list(SENTENCES), with_linear, quiet=as_json, with_all=with_all
        )
    except (AmdattnError, ModuleNotFoundError, OSError) as error:
        message = f"{type(error).__name__}: {error}"
        _err.print(message, style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(2) from None
    if as_json:
        sys.stdout.write(json.dumps(results, indent=2) + "\n")
    else:
        show(results)
    if not results["ok"]:
        raise typer.Exit(1)


def embed_and_compare(
    sentences: list[str], with_linear: bool, quiet: bool, with_all: bool = False
) -> dict[str, Any]:
    """Embed on the device and in float64; what there is to say about both."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("attention calls"),
        TimeElapsedColumn(),
        console=_err,
        disable=quiet,
        transient=True,
    ) as progress:

        def embed(
            model: MiniLM, attention: Attention, description: str, linear: Linear = linear_numpy
        ) -> Array:
            task = progress.add_task(description, total=None)
            return model.embed(
                sentences,
                attention,
                lambda done, total: progress.update(task, completed=done, total=total),
                linear,
            )

        attention, layers = DeviceAttention(), DeviceLinear()
        device = runtime.get()
        model = MiniLM(np.float32)
        start = time.perf_counter()
        launches = 0
        if with_all:
            everything = OnDevice(model)
            embeddings, launches = everything.embed(sentences), everything.launches
        else:
            linear = layers if with_linear else linear_numpy
            embeddings = embed(model, attention, f"on {device.title}", linear)
            launches = attention.launches + layers.launches
        seconds = time.perf_counter() - start
        reference = embed(MiniLM(np.float64), attention_numpy, "in float64 with NumPy")
    unit = normalized(embeddings.astype(np.float64))
    similarity = unit @ unit.T
    cosines = np.einsum("nd,nd->n", unit, reference)
    required = REQUIRED_WITH_LINEAR if with_linear or with_all else REQUIRED_COSINE
    return {
        "ok": bool(cosines.min() >= required),
        "sentences": sentences,
        "similarity": similarity.tolist(),
        "smallest_cosine": float(cosines.min()),
        "required_cosine": required,
        "largest_element_deviation": float(np.abs(embeddings - reference).max()),
        "largest_similarity_deviation": float(np.abs(similarity - reference @ reference.T).max()),
        "device": device.title,
        "launches": launches,
        "with_linear": with_linear,
        "with_all": with_all,
        "wall_seconds": seconds,
        "wall_seconds_are": device.measured_on,
        "embeddings": embeddings.tolist(),
    }


def show(results: dict[str, Any]) -> None:
    """Print the results as a table and a summary."""
    _out.print(table_of(results["sentences"], np.array(results["similarity"])))
    verdict = "ok" if results["ok"] else "TOO LOW"
    others = "" if results["with_all"] else " with what NumPy computes"
    lines = (
        f"{results['launches']} kernel launches on {results['device']}",
        f"wall time {results['wall_seconds']:.1f} s{others}, {results['wall_seconds_are']}",
        f"largest deviation from float64: {results['largest_element_deviation']:.1e} in an "
        f"embedding, {results['largest_similarity_deviation']:.1e} in a similarity",
        f"smallest cosine with the float64 embedding: {results['smallest_cosine']:.7f} "
        f"(at least {results['required_cosine']}: {verdict})",
    )
    for line in lines:
        _out.print(line, style=None if results["ok"] else "red", markup=False, highlight=False)


if __name__ == "__main__":
    typer.run(main)
