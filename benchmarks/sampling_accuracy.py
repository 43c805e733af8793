"""Prints the table of sampled against full simulations (docs/bench.md), as Markdown.

    python benchmarks/sampling_accuracy.py [--aiter DIR] [--moonmath DIR] [--triton]

takes some minutes on one core.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from amdattn.bench import accuracy


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aiter", type=Path, help="a checkout of ROCm/aiter")
    parser.add_argument("--moonmath", type=Path, help="MoonMath's code objects")
    parser.add_argument("--triton", action="store_true", help="also compile and run Triton's")
    options = parser.parse_args()
    kernels = accuracy.kernels(options.aiter, options.moonmath, options.triton)
    found = list(accuracy.rows(kernels, accuracy.PLAIN + accuracy.CAUSAL))
    print(accuracy.markdown(found), end="")


if __name__ == "__main__":
    main()
