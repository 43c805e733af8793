"""Generate with a small decoder, all of it amdattn's kernels, and hold every step against float64.

python examples/generation/run.py [--tokens 24] [--prompt 40]
"""

from __future__ import annotations

import time
from typing import Annotated

import numpy as np
import typer
from model import Sizes, as_bfloat16, float64, logits, random_weights
from rich.console import Console
from rich.table import Table

from amdattn.device import runtime

ALLOWED = 2.0  # largest error, of that of a pass that rounds as memory of bfloat16 does


def main(
    tokens: Annotated[int, typer.Option(help="Tokens to generate.", min=1)] = 24,
    prompt: Annotated[int, typer.Option(help="Tokens of the prompt.", min=1)] = 40,
) -> None:
    """Generate, compare, print; exit code 1 if a logit is too far from float64's."""
    device = runtime.get()  # bound before hip-python is asked for anything
    from decoder import Decoder

    sizes = Sizes()
    weights = random_weights(sizes)
    decoder = Decoder(weights, sizes, prompt + tokens)
    ids = np.random.default_rng(1).integers(0, sizes.vocabulary, prompt).tolist()
    begin = time.perf_counter()
    found = [*decoder.prompt(ids)]
    for _ in range(tokens):
        ids.append(int(found[-1].argmax()))
        found.append(decoder.step(ids[-1]))
    seconds = time.perf_counter() - begin

    wide = float64(weights)
    exact = logits(wide, sizes, ids)
    allowed = ALLOWED * np.abs(logits(wide, sizes, ids, as_bfloat16) - exact).max()
    errors = np.abs(np.array(found) - exact).max(axis=1)
    table = Table("rows", "largest error of a logit", "allowed")
    for name, some in (("prompt", errors[:prompt]), ("graph replays", errors[prompt:])):
        table.add_row(f"{len(some)}: {name}", f"{some.max():.4f}", f"{allowed:.4f}")
    console = Console()
    console.print(table)
    console.print(
        f"{device.title}: {tokens} tokens after {prompt} in {seconds:.2f} s, {device.measured_on}:"
    )
    console.print(" ".join(map(str, ids[prompt:])))
    is_ok = bool((errors <= allowed).all())
    console.print("ok" if is_ok else "WRONG: errors that rounding to bfloat16 does not explain")
    raise typer.Exit(0 if is_ok else 1)


if __name__ == "__main__":
    typer.run(main)
