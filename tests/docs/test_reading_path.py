"""What a user reads: few pages, of few words, all of them in the index's first table."""

from __future__ import annotations

import re

from tests.support.paths import ROOT

README = ROOT / "README.md"
INDEX = ROOT / "docs" / "README.md"
MOST_LINES = 120  # of the README
MOST_PAGES, MOST_WORDS = 12, 25_000  # of the path, the README among them


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


def test_the_path_is_short() -> None:
    """Words as `wc -w` counts them."""
    index = INDEX.read_text(encoding="utf-8")
    section = index.partition("## Reading path")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| \[[^\]]+\]\(([^)]+)\) \| \S", section, re.M)
    pages = [README, *(INDEX.parent / name for name in listed)]
    words = {page.name: len(page.read_text(encoding="utf-8").split()) for page in pages}
    assert len(listed) > 5 and len(pages) <= MOST_PAGES, words
    assert sum(words.values()) <= MOST_WORDS, words
    assert f"fewer than {MOST_WORDS:,} words" in section
