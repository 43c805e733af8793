"""Every row of docs/refused.md: the call is made, and refused as the page says."""

from __future__ import annotations

import ast
import inspect
import re
import traceback
from pathlib import Path

import pytest

import amdattn
from tests.support.paths import ROOT
from tests.support.refused_names import names

PAGE = (ROOT / "docs" / "refused.md").read_text()
ROWS = re.findall(r"^\| `(.*?)` \| `(\w+)` \| (.*?) \| (.*?) \|$", PAGE, re.M)


def refusal(call: str) -> Exception:
    with pytest.raises(Exception) as caught:
        eval(call, names())
    return caught.value


@pytest.mark.parametrize(("call", "error", "text", "why"), ROWS, ids=[row[0] for row in ROWS])
def test_row(call: str, error: str, text: str, why: str) -> None:
    refused = refusal(call)
    assert type(refused).__name__ == error and str(refused).startswith(text), refused
    assert why.strip()


def test_every_argument_has_a_row() -> None:
    """Of the public functions, but for the operands that rows of others name."""
    given = " ".join(call for call, *_ in ROWS)
    for function in (amdattn.flash_attn_func, amdattn.gemm_nt):
        for name in inspect.signature(function).parameters:
            said = any(re.search(rf"\b{name}\b", text) for _, _, text, _ in ROWS)
            assert said or f"{name}=" in given, f"{function.__name__}: no row refuses {name}"


def test_every_place_that_refuses_a_problem_has_a_row() -> None:
    """All functions of the package that raise UnsupportedProblem do so in some row.

    But for those of amdattn.jax, which docs/jax.md has, and tests/jax.
    """
    places = set()
    for file in {*(ROOT / "amdattn").rglob("*.py")} - {*(ROOT / "amdattn" / "jax").rglob("*.py")}:
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, ast.FunctionDef):
                raised = (n.exc for n in ast.walk(function) if isinstance(n, ast.Raise))
                if any("UnsupportedProblem(" in ast.unparse(exc) for exc in raised if exc):
                    places.add((file.name, file.parent.name, function.name))
    reached = set()
    for call, error, *_ in ROWS:
        if error == "UnsupportedProblem":
            frame = traceback.extract_tb(refusal(call).__traceback__)[-1]
            reached.add((Path(frame.filename).name, Path(frame.filename).parent.name, frame.name))
    assert len(places) > 3 and places == reached
