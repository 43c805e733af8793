"""The questions of docs/kernels.md: the code of each stands on the line that the page names.

`python -m tests.docs.test_kernel_questions` corrects lines that have moved.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from build_scripts.toolchain import ASM_SRC
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "kernels.md"
_ROW = re.compile(
    r"^\| (?P<question>[^|]+) \| `(?P<file>[\w./]+):(?P<line>\d+)` \| `(?P<code>[^`]+)` \|$", re.M
)


class Answer(NamedTuple):
    """A row of the table."""

    question: str
    file: str
    line: int
    code: str

    def lines(self) -> list[int]:
        """Where the code stands."""
        text = (ASM_SRC / self.file).read_text(encoding="utf-8")
        return [n for n, line in enumerate(text.splitlines(), 1) if self.code in line]

    def mistake(self) -> str | None:
        """What is wrong with it."""
        if self.line in (lines := self.lines()):
            return None
        if not lines:
            return f"{self.question} No line of {self.file} has {self.code!r}"
        where = ", ".join(map(str, lines))
        return (
            f"{self.question} {self.file}:{self.line} has not {self.code!r}, but {where}: run "
            "python -m tests.docs.test_kernel_questions"
        )


def answers(text: str) -> list[Answer]:
    """Of the page."""
    return [
        Answer(row["question"], row["file"], int(row["line"]), row["code"])
        for row in _ROW.finditer(text)
    ]


def corrected(text: str) -> str:
    """With the nearest line of those that have the code."""

    def line_of(row: re.Match[str]) -> str:
        (answer,) = answers(row[0])
        near = min(answer.lines(), key=lambda n: abs(n - answer.line), default=answer.line)
        return row[0].replace(f":{answer.line}`", f":{near}`", 1)

    return _ROW.sub(line_of, text)


ANSWERS = answers(PAGE.read_text(encoding="utf-8"))


def test_the_page_has_them() -> None:
    assert len(ANSWERS) >= 10
    table = PAGE.read_text(encoding="utf-8").partition("| question |")[2].partition("\n\n")[0]
    assert len(table.splitlines()) == len(ANSWERS) + 2  # every row is one


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: f"{answer.file}:{answer.line}")
def test_the_code_stands_on_its_line(answer: Answer) -> None:
    assert answer.mistake() is None


def test_a_line_that_has_moved_is_named_and_corrected() -> None:
    answer = ANSWERS[0]
    moved = answer._replace(line=answer.line + 1)
    assert f"but {answer.line}: run" in str(moved.mistake())
    row = "| {} | `{}:{}` | `{}` |"
    assert corrected(row.format(*moved)) == row.format(*answer)
    assert "No line of" in str(answer._replace(code="no such code").mistake())


if __name__ == "__main__":
    PAGE.write_text(corrected(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
