"""examples/jax_sharded: runs, counts what its README says, and finds what is wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.support.paths import ROOT

pytest.importorskip("jax")
pytestmark = pytest.mark.oracles
EXAMPLE = ROOT / "examples" / "jax_sharded"


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    environment |= {"PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    return subprocess.run(
        [sys.executable, *command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_figures_of_the_readme() -> None:
    done = run(str(EXAMPLE / "run.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in done.stdout.splitlines()
        if line.startswith("│")
    ]
    assert len(rows) == 12 and {row[-1] for row in rows} == {"ok"}
    found: dict[str, list[str]] = {}
    for mask, _, _, _, _, by_xla, _ in rows:
        found.setdefault(mask, []).append(by_xla)
    readme = (EXAMPLE / "README.md").read_text("utf-8")
    stated = re.findall(r"^\| ([^|]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$", readme, re.M)
    assert {mask: list(figures) for mask, *figures in stated} == found


@pytest.mark.slow
@pytest.mark.parametrize(
    "bend",
    [
        "lambda *args, **options: -real(*args, **options)",
        # An exchange that nobody counted.
        "lambda q, *args, **options: real(moved(moved(q, THERE), BACK), *args, **options)",
    ],
    ids=["result", "bytes"],
)
def test_what_is_wrong_is_found(bend: str, tmp_path: Any) -> None:
    bent = tmp_path / "bent.py"
    bent.write_text(
        "import os, runpy\n"
        "os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=8'\n"
        "import jax, amdattn.jax as aj\n"
        "THERE = [(i, (i + 1) % 8) for i in range(8)]\n"
        "BACK = [(to, i) for i, to in THERE]\n"
        "moved = lambda x, pairs: jax.lax.ppermute(x, 'cp', pairs)\n"
        "real = aj.context_parallel_attention\n"
        f"aj.context_parallel_attention = {bend}\n"
        f"runpy.run_path({str(EXAMPLE / 'run.py')!r}, run_name='__main__')\n"
    )
    done = run(str(bent))
    assert done.returncode == 1 and "WRONG" in done.stdout, done.stdout + done.stderr
