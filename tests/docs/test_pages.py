"""Pages of the documentation: links lead somewhere, and the index has every page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import amdattn
from amdattn.arch.architectures import ARCHITECTURES
from amdattn.ops import registry
from tests.support import tiers
from tests.support.paths import ROOT

DOCS = ROOT / "docs"
CHANGELOG = ROOT / "CHANGELOG.md"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("examples/*/*.md"))]
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.M | re.S)


def anchors(page: Path) -> set[str]:
    """Of headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    plain = [re.sub(r"[^\w\- ]", "", text.lower()) for text in headings]
    return {text.replace(" ", "-") for text in plain}


def dangling(page: Path, text: str) -> Iterator[str]:
    """Links to files that are not there, or to headings that their page has not."""
    for link in _LINK.findall(_CODE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", [*PAGES, CHANGELOG], ids=lambda page: page.name)
def test_links(page: Path) -> None:
    assert list(dangling(page, page.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[a](gemm.md)", []),
        ("[a](gone.md)", ["gone.md"]),
        ("[a](checked-mode.md#what-it-does-not-know)", []),
        ("[a](checked-mode.md#what-it-knows)", ["checked-mode.md#what-it-knows"]),
        ("[a](https://example.org/x.md) and `[b](c.md)`", []),
        ("[a](studies/found.md), [b](found.md)", ["found.md"]),
    ],
)
def test_what_leads_nowhere_is_found(text: str, wrong: list[str]) -> None:
    assert list(dangling(DOCS / "index.md", text)) == wrong


def test_the_architecture_names_every_operation() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^    ops +operations: (.*)$", text, re.M)
    assert tuple(line.split(", ")) == registry.names()


def test_the_fast_tier_is_said_to_be_as_long_everywhere() -> None:
    """The limit of the tier itself is what pages and the marker repeat."""
    (limit,) = re.findall(r"less than (\d+) seconds on two cores", tiers.__doc__ or "")
    for file in ("README.md", "docs/contributing.md", "pyproject.toml"):
        text = (ROOT / file).read_text(encoding="utf-8")
        said = re.findall(r"(?:under|less than) (\d+) s(?:econds)?\b", text)
        assert said and set(said) == {limit}, file


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_no_page_says_that_an_architecture_has_no_constants(arch: str) -> None:
    """Its model has them: pages that were written before it say so no more."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert not re.search(rf"{arch}: no constants|no {arch} kernels? yet", text), page


def test_the_changelog_begins_with_this_version() -> None:
    versions = re.findall(
        r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$", CHANGELOG.read_text(), re.M
    )
    assert versions[0] == amdattn.__version__


def test_the_index_has_every_page() -> None:
    """Once, and what it says of it is one line."""
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[[^\]]+\]\(([^)]+)\) \| \S.*\|$", index, re.M)
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    assert sorted(listed) == sorted(set(pages) - {"README.md"})


def test_generated_pages_name_their_script() -> None:
    for page in (*DOCS.glob("generated/*.md"), DOCS / "api.md"):
        head = page.read_text(encoding="utf-8")[:800]
        assert re.search(r"`python -m (build_scripts|tests\.support)\.[\w.]+`", head), page.name
