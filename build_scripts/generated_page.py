"""The command line of scripts that generate a page of the documentation."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def write_or_check(description: str | None, page: Path, render: Callable[[], str]) -> int:
    """Write `page`, or with --check only say whether it is current; returns the exit code."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    args = parser.parse_args()
    text = render()
    if args.check:
        current = page.exists() and page.read_text() == text
        print(f"{page.name} is {'current' if current else 'stale: run its script without --check'}")
        return 0 if current else 1
    page.write_text(text)
    print(page)
    return 0
