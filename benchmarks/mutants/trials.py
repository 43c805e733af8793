"""A copy of the repository for mutants, and test runs in it that end at the first failure."""

from __future__ import annotations

import dataclasses
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn

# What most tests import, once for all forks.
import hypothesis
import ml_dtypes
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
_LEFT_OUT = shutil.ignore_patterns(".git", "build", "__pycache__", ".*_cache", ".hypothesis")
_EVERY_TEST_SECONDS = 60  # pytest-timeout, of each test


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One change of a file.

    Attributes
    ----------
    path : str
        Of the file, from the root of the repository.
    line : int
    change : str
        What became what.
    outcome : str
        "caught", "survived", "not covered", "same code" or "not built".
    by : str
        The test that failed, or how else it was caught.
    seconds : float
    """

    path: str
    line: int
    change: str
    outcome: str = ""
    by: str = ""
    seconds: float = 0.0


IMPORTED = (hypothesis, ml_dtypes, np)


def copy_of_repository(folder: Path) -> Path:
    """The repository as it is on disk, with the built virtual device, in `folder`; compiled."""
    tree = folder / "amdattn"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(ROOT, tree, ignore=_LEFT_OUT)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(tree / "amdattn")], check=True)
    return tree


def write(file: Path, text: str, like: os.stat_result | None = None) -> os.stat_result:
    """Replace a file; `like` what it was, its bytecode counts again. Returns what it was."""
    before = file.stat()
    file.write_text(text)
    if like is not None:
        os.utime(file, ns=(like.st_atime_ns, like.st_mtime_ns))
    return before


def environment(tree: Path, **more: str) -> dict[str, str]:
    """Of a process that imports the copy instead of what is installed."""
    paths = [str(tree), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
        "AMDATTN_DEVICE": "virtual:gfx942",
        **more,
    }


def first_failure(
    tree: Path,
    tests: Iterable[str],
    seconds: float,
    extra: Mapping[str, str] | None = None,
    every: int = _EVERY_TEST_SECONDS,
) -> str:
    """The test that fails first, or "" if all pass; the tests run in the order given.

    In a fork of this process, which has imported what all tests need, but not amdattn.
    """
    arguments = ["-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider"]
    arguments += ["-p", "no:randomly", "-n0", f"--timeout={every}", *tests]
    assert "amdattn" not in sys.modules
    with tempfile.TemporaryFile("w+") as output:
        gc.freeze()  # what the child need not look at, or copy
        child = os.fork()
        if child == 0:
            _run_pytest(tree, arguments, environment(tree, **(extra or {})), output.fileno())
        code = _wait(child, seconds)
        output.seek(0)
        text = output.read()
    if code == 0:
        return ""
    if code is None:
        return "no end"
    for line in text.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            test, _, why = line.split(" ", 1)[1].partition(" - ")
            return f"{test} (time limit)" if "Timeout" in why else test
    return f"pytest ended with {code}"


def _run_pytest(
    tree: Path, arguments: list[str], variables: Mapping[str, str], output: int
) -> NoReturn:
    """Does not come back: the process ends with the tests' code."""
    code = 70  # of a failure of its own
    try:
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(tree)
        os.environ.update(variables)
        sys.path.insert(0, str(tree))
        sys.dont_write_bytecode = True
        code = int(pytest.main(arguments))
    finally:
        sys.stdout.flush()
        os._exit(code)


def _wait(child: int, seconds: float) -> int | None:
    """Its exit code; None if it had to be ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._begin = time.monotonic()

    def seconds(self) -> float:
        """Rounded to a tenth."""
        return round(time.monotonic() - self._begin, 1)
