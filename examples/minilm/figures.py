"""Writes the figures of README.md, from runs with the built-in sentences.

    python examples/minilm/figures.py [--check]

With --check nothing is written; the exit code is 1 if the page has other figures.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from minilm import MiniLM
from run import embed_and_compare
from similarities import SENTENCES

README = Path(__file__).resolve().parent / "README.md"
_BEGIN, _END = "<!-- figures.py writes this -->\n", "<!-- to here -->\n"


def text() -> str:
    """The passage between the two marks."""
    sentences = list(SENTENCES)
    plain, linear = (embed_and_compare(sentences, each, quiet=True) for each in (False, True))
    everything = embed_and_compare(sentences, False, quiet=True, with_all=True)
    model = MiniLM()
    layers, lengths = model.num_layers, len(model.tokenize(SENTENCES).groups)
    return (
        f"For the {len(SENTENCES)} built-in sentences: {plain['launches']} launches ({layers} "
        f"layers, {lengths} different sentence\nlengths), {_deviations(plain)}.\n"
        "What deviates is the rounding of q, k, v, of the probabilities and of the output to "
        "bfloat16.\n\n"
        f"With `--linear` the {linear['launches'] - plain['launches']} linear layers are computed "
        "by `amdattn.gemm_nt` (bfloat16 inputs and weights,\nfloat32 results; bias and GELU in the "
        f"kernel), all tokens in one call: {linear['launches']} launches,\n"
        f"{_deviations(linear)}.\n\n"
        f"With `--all` NumPy computes nothing between tokens and embeddings: "
        f"{everything['launches']} launches for all sentences, of\nwhich all layers have bfloat16 "
        f"between them, {_deviations(everything)}.\n"
    )


def _deviations(results: dict[str, Any]) -> str:
    return (
        f"smallest cosine {results['smallest_cosine']:.7f},\n"
        f"largest deviation {results['largest_element_deviation']:.2g} in an element of an "
        f"embedding and {results['largest_similarity_deviation']:.2g} in a similarity"
    )


def page(passage: str) -> str:
    """The README with this passage."""
    marked = re.compile(re.escape(_BEGIN) + ".*?" + re.escape(_END), re.S)
    found, count = marked.subn(lambda _: _BEGIN + passage + _END, README.read_text("utf-8"))
    if count != 1:
        raise ValueError(f"{README} must have one passage between {_BEGIN!r} and {_END!r}")
    return found


def main() -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    options = parser.parse_args()
    current = page(text())
    if options.check:
        is_current = current == README.read_text("utf-8")
        print(f"{README.name} is {'current' if is_current else 'stale: run this without --check'}")
        return 0 if is_current else 1
    README.write_text(current, encoding="utf-8")
    print(README)
    return 0


if __name__ == "__main__":
    sys.exit(main())
