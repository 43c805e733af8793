"""examples/generation: tokens through one graph, held to float64; what is wrong is found."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

FOLDER = ROOT / "examples" / "generation"
# Pairs of channels that are none; a length that does not grow.
BENT = {
    "angles": ("decoder.py", "rotary_interleaved=False", "rotary_interleaved=True"),
    "lengths": ("decoder.py", "np.full(1, self._keys, np.int32)", "np.zeros(1, np.int32)"),
}


def run(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    command = [sys.executable, script, *options]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


# A prompt of one chunk and of several; of a single row.
@pytest.mark.parametrize(("prompt", "tokens"), [(40, 9), (1, 3)])
@pytest.mark.parametrize("device", ["virtual:gfx942", "virtual:gfx950"])
def test_as_its_user_types_it(
    monkeypatch: pytest.MonkeyPatch, device: str, prompt: int, tokens: int
) -> None:
    monkeypatch.setenv("AMDATTN_DEVICE", device)
    done = run(str(FOLDER / "run.py"), "--prompt", str(prompt), "--tokens", str(tokens))
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr and "measured on this CPU" in done.stdout
    *_, ids, verdict = done.stdout.splitlines()
    assert verdict == "ok" and len(ids.split()) == tokens


@pytest.mark.parametrize("name", BENT)
def test_what_is_wrong_is_found(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    folder = tmp_path_factory.mktemp("generation")
    file, right, wrong = BENT[name]
    for source in FOLDER.glob("*.py"):
        text = source.read_text()
        if source.name == file:
            assert right in text
            text = text.replace(right, wrong)
        (folder / source.name).write_text(text)
    done = run(str(folder / "run.py"), "--tokens", "6")
    assert done.returncode == 1 and "WRONG" in done.stdout, done.stdout + done.stderr
