"""The command line of scripts that generate a page of the documentation."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def page_parser(description: str | None) -> argparse.ArgumentParser:
    """The options that all of them have; a script may add its own."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    return parser


def write_page(page: Path, text: str, check: bool) -> int:
    """Write `page`, or with `check` only say whether it is current; returns the exit code."""
    if check:
        current = page.exists() and page.read_text() == text
        print(f"{page.name} is {'current' if current else 'stale: run its script without --check'}")
        return 0 if current else 1
    page.write_text(text)
    print(page)
    return 0


def write_or_check(description: str | None, page: Path, render: Callable[[], str]) -> int:
    """The whole command line of a script without options of its own; returns the exit code."""
    args = page_parser(description).parse_args()
    return write_page(page, render(), args.check)
