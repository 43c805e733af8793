"""Ctrl-C while the command imports what it needs: a word and exit code 130, no traceback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

# In the place of a module: Ctrl-C arrives while it is imported.
SLOW = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"


def run(folder: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = folder / Path(*module.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SLOW)
    return subprocess.run(
        [sys.executable, "-c", "from amdattn.cli import main; main()", *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_imports_of_the_command(tmp_path: Path, module: str) -> None:
    done = run(tmp_path, module, "info")
    assert (done.stdout, done.stderr, done.returncode) == ("", "Error: interrupted\n", 130)


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("numpy", ("selftest",)),
        ("numpy", ("demo",)),
        ("numpy", ("bench", "attention")),
        ("ml_dtypes", ("demo",)),
    ],
)
def test_imports_of_one_command(tmp_path: Path, module: str, arguments: tuple[str, ...]) -> None:
    done = run(tmp_path, module, *arguments)
    assert (done.stdout, done.stderr, done.returncode) == ("", "Error: interrupted\n", 130)


def test_importing_the_command_is_light() -> None:
    """What is not inside of main's try cannot be stopped without a traceback."""
    code = "import sys; of_python = set(sys.modules); import amdattn.cli; "
    code += "print(*set(sys.modules) - of_python)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not {
        name for name in loaded if name.split(".")[0] in ("typer", "rich", "numpy", "click")
    }
    assert {name for name in loaded if name.startswith("amdattn")} == {
        "amdattn",
        "amdattn.cli",
        "amdattn.cli.exit_codes",
    }


def test_one_module_imports_ml_dtypes() -> None:
    """Behind numpy, which it would import from C: Ctrl-C is an ImportError then."""
    found = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "amdattn").rglob("*.py")
        if re.search(r"^ *(import|from) ml_dtypes", path.read_text(encoding="utf-8"), re.M)
    ]
    assert found == ["amdattn/dtypes.py"]


def test_tests_that_a_shell_started_in_its_background() -> None:
    """Such a process ignores SIGINT, and so would every child that tests interrupt."""
    test = f"{__file__}::test_imports_of_the_command[rich]"
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-m", "pytest", "-n0", test],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout
