"""Many short programs, each in a process of its own, without starting Python anew for each.

`python -m tests.support.forked_programs LIBRARY DEVICE` reads them, as JSON, from its input, and
prints [returncode, what it wrote to stdout, to stderr] of each. It forks before the first HIP call.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Any

from tests.support.paths import ROOT

Outcome = tuple[int, str, str]


def run_each(hip: Any, programs: Sequence[str], timeout: float = 560) -> list[Outcome]:
    """Outcomes of programs that find `hip`, a Runtime, and some modules."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.forked_programs", hip.path, hip.device_path],
        input=json.dumps(programs),
        capture_output=True,
        check=True,
        text=True,
        timeout=timeout,
        cwd=ROOT,
    )
    return [tuple(outcome) for outcome in json.loads(done.stdout)]


def main() -> None:
    import ctypes
    import time

    from tests.support import hip_runtime

    programs = json.load(sys.stdin)
    hip = hip_runtime.Runtime(*sys.argv[1:])
    names = {"hip": hip, "ctypes": ctypes, "os": os, "sys": sys, "time": time}
    print(json.dumps([_run(program, dict(names)) for program in programs]))


def _run(program: str, names: dict[str, Any]) -> Outcome:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            status = 0
            try:
                exec(compile(program, "program", "exec"), names)
            except BaseException:
                traceback.print_exc()
                status = 1
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        _, status = os.waitpid(child, 0)
        told = []
        for file in (out, err):
            file.seek(0)
            told.append(file.read().decode(errors="replace"))
        return os.waitstatus_to_exitcode(status), told[0], told[1]


if __name__ == "__main__":
    main()
