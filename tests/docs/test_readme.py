"""The README's examples run as they stand there, one after the other."""

from __future__ import annotations

import re

import pytest

from tests.support.paths import ROOT

README = ROOT / "README.md"


def test_example(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    code = "\n".join(block for block in blocks if "jax" not in block)  # tests/jax has that one
    scope: dict[str, object] = {}
    exec(code, scope)
    assert "attn_fwd_bf16_d128" in capsys.readouterr().out
    assert getattr(scope["out"], "shape", None) == (1, 1024, 8, 128)
    assert getattr(scope["y"], "shape", None) == (4, 1024)
