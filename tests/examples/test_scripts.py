"""examples/*.py: each runs as its user types it, shows something and finds its results right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.paths import ROOT

SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
MAX_LINES = 80
# What a reader is to see, beside the exit code.
SHOWN = {
    "bench_against_a_peer": ("gemm_nt: largest error", "modelled, not measured", "vs first"),
    "check_your_kernel": ("lds_race", "sum.hip:6", "with barriers: 0 errors"),
    "gemm_in_a_layer": ("gate and up", "gemm_nt_bf16", "of what rounding may cost"),
    "plan_and_graph": ("why this kernel", "partial_o", "replay"),
    "varlen_batch": ("388 rows", "sequence", "ok"),
}
# What the same script says of a result that is wrong: a function that it calls, and how it is bent.
BENT = {
    "bench_against_a_peer": ("gemm_nt", "lambda y: amdattn.asarray(y.numpy() + 1)"),
    "gemm_in_a_layer": ("gemm_nt", "lambda y: amdattn.asarray((y.numpy() * 2))"),
    "varlen_batch": ("flash_attn_varlen_func", "lambda o: o * 2"),
}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    return subprocess.run(
        [sys.executable, *command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_every_script_is_listed() -> None:
    assert [script.stem for script in SCRIPTS] == sorted(SHOWN)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_script(script: Path) -> None:
    done = run(str(script))
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    assert [text for text in SHOWN[script.stem] if text not in done.stdout] == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_script_is_short(script: Path) -> None:
    assert len(script.read_text().splitlines()) < MAX_LINES


@pytest.mark.parametrize("name", BENT)
def test_a_wrong_result_is_found(name: str, tmp_path: Path) -> None:
    """A script that cannot fail checks nothing."""
    function, bend = BENT[name]
    bent = tmp_path / "bent.py"
    bent.write_text(
        "import runpy, sys, amdattn\n"
        f"real, bend = amdattn.{function}, {bend}\n"
        f"amdattn.{function} = lambda *args, **options: bend(real(*args, **options))\n"
        f"sys.argv = ['example']\n"
        f"runpy.run_path({str(ROOT / 'examples' / name)!r} + '.py', run_name='__main__')\n"
    )
    assert run(str(bent)).returncode == 1


@pytest.mark.slow
def test_a_code_object_of_the_user_is_taken(tmp_path: Path) -> None:
    """The peer by its path; one that is wrong is found."""
    from amdattn.compiler import build

    source = (ROOT / "examples" / "bench_against_a_peer.py").read_text()
    kernel = source.split('SOURCE = """')[1].split('"""')[0]
    for name, text, code in (("right", kernel, 0), ("wrong", kernel.replace("= sum;", "= 1;"), 1)):
        (tmp_path / f"{name}.hip").write_text(text)
        file = tmp_path / f"{name}.hsaco"
        file.write_bytes(build(tmp_path / f"{name}.hip").code_object)
        done = run(str(ROOT / "examples" / "bench_against_a_peer.py"), str(file))
        assert (done.returncode, f"{name}.hsaco: largest error" in done.stdout) == (code, True)


@pytest.mark.slow
def test_bound_of_the_layer_is_tight() -> None:
    """What gemm_in_a_layer allows is little beside its results."""
    done = run(str(ROOT / "examples" / "gemm_in_a_layer.py"))
    share = float(done.stdout.split("largest error")[1].split()[0])
    assert 0.02 < share < 1 and np.isfinite(share)
