"""Sentence embeddings by one jitted JAX program, beside those of the NumPy example.

Exit code 1 if an embedding strays from it.
"""

from __future__ import annotations

import time
from typing import Annotated

import jax
import numpy as np
import typer
from encoder import JaxMiniLM, packed
from minilm import DeviceAttention, DeviceLinear, MiniLM, attention_numpy
from rich.console import Console
from similarities import SENTENCES, table_of

from amdattn.errors import AmdattnError

REQUIRED_COSINE = 0.9999
ALLOWED_DEVIATION = 0.003  # of an element: the sums differ, so some roundings to bfloat16 do

_out = Console()
_err = Console(stderr=True)


def main(
    sentences: Annotated[
        list[str] | None, typer.Argument(help="Sentences to compare; default: eight of our own.")
    ] = None,
) -> None:
    """Embed sentences with all-MiniLM-L6-v2 in JAX, and compare with the NumPy example."""
    try:
        is_ok = embed_and_compare(sentences or list(SENTENCES))
    except (AmdattnError, ModuleNotFoundError, OSError) as error:
        _err.print(f"{type(error).__name__}: {error}", style="red", markup=False, soft_wrap=True)
        raise typer.Exit(2) from None
    if not is_ok:
        raise typer.Exit(1)


def embed_and_compare(sentences: list[str]) -> bool:
    """Print similarities, times and deviations; whether these are small enough."""
    model = MiniLM(np.float32)
    jax_model = JaxMiniLM(model)
    seconds = []
    for _ in ("compiles", "does not"):
        start = time.perf_counter()
        embeddings = np.asarray(jax_model.embed(sentences))
        seconds.append(time.perf_counter() - start)
    similarity = embeddings @ embeddings.T
    _out.print(table_of(sentences, similarity))
    batch, longest = packed(model, sentences)
    _line(
        f"{len(sentences)} sentences packed in {len(batch.ids)} tokens, at most {longest} each, on "
        f"{jax.devices()[0].platform}: first call {seconds[0]:.1f} s, second {seconds[1]:.1f} s, "
        "measured here"
    )
    on_device = model.embed(sentences, DeviceAttention(), linear=DeviceLinear())
    exact = MiniLM(np.float64).embed(sentences, attention_numpy)
    is_ok = _compare("examples/minilm --linear", embeddings, on_device)
    return _compare("float64", embeddings, exact) and is_ok


def _compare(what: str, found: np.ndarray, expected: np.ndarray) -> bool:
    cosine = float(np.einsum("nd,nd->n", found, expected).min())
    deviation = float(np.abs(found - expected).max())
    is_ok = cosine >= REQUIRED_COSINE and deviation <= ALLOWED_DEVIATION
    _line(
        f"beside {what}: smallest cosine {cosine:.7f} (at least {REQUIRED_COSINE}), largest "
        f"deviation {deviation:.1e} (at most {ALLOWED_DEVIATION}): {'ok' if is_ok else 'TOO FAR'}",
        style=None if is_ok else "red",
    )
    return is_ok


def _line(text: str, style: str | None = None) -> None:
    _out.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)
