"""Examples of the README, and of the pages that a user reads first, run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

# Pages whose blocks run one after the other; tests/jax has those of JAX.
PAGES = (
    "getting-started",
    "attention-forward",
    "decode",
    "chunked-prefill",
    "gemm",
    "gemm-many-rows",
    "virtual-device",
    "rms-norm",
)


def run(page: Path) -> dict[str, object]:
    """What its examples define."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    scope: dict[str, object] = {}
    exec("\n".join(block for block in blocks if "jax" not in block), scope)
    return scope


def shape(scope: dict[str, object], name: str) -> object:
    return getattr(scope[name], "shape", None)


def test_example(capsys: pytest.CaptureFixture[str]) -> None:
    scope = run(ROOT / "README.md")
    assert "attn_fwd_bf16_d128" in capsys.readouterr().out
    assert shape(scope, "out") == (1, 1024, 8, 128)
    assert shape(scope, "y") == (4, 1024)
    assert shape(scope, "step") == (4, 1, 8, 128)


@pytest.mark.parametrize("name", PAGES)
def test_examples_of_a_page(name: str) -> None:
    scope = run(ROOT / "docs" / f"{name}.md")
    assert any(hasattr(value, "__dlpack__") for value in scope.values())
