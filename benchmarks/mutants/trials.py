"""A copy of the repository for mutants, and test runs in it that end at the first failure."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

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
        "caught", "survived", "not covered" or "not built".
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


def copy_of_repository(folder: Path) -> Path:
    """The repository as it is on disk, with the built virtual device, in `folder`."""
    tree = folder / "amdattn"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(ROOT, tree, ignore=_LEFT_OUT)
    return tree


def environment(tree: Path, **more: str) -> dict[str, str]:
    """Of a process that imports the copy instead of what is installed."""
    paths = [str(tree), str(tree / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
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
    options: Iterable[str] = (),
) -> str:
    """The test that fails first, or "" if all pass; the tests run in the order given."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:
        listed.write("\n".join(tests))
        listed.flush()
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=line"]
        command += ["-p", "no:cacheprovider", "-p", "no:randomly", *options]
        command += [f"--timeout={_EVERY_TEST_SECONDS}", f"@{listed.name}"]
        try:
            done = subprocess.run(
                command,
                cwd=tree,
                env=environment(tree, **(extra or {})),
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "no end"
    if done.returncode == 0:
        return ""
    for line in done.stdout.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split(" ", 1)[1].split(" - ")[0]
    return f"pytest ended with {done.returncode}"


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._begin = time.monotonic()

    def seconds(self) -> float:
        """Rounded to a tenth."""
        return round(time.monotonic() - self._begin, 1)
