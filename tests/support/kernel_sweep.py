"""Kernels shipped for the bound device: at sizes around their tiles, against float64, and checked.

    AMDATTN_DEVICE=virtual:gfx950 python -m tests.support.kernel_sweep --every 20 --cases 1

Prints a line of JSON: the device, what ran, every kernel that was launched, and what is wrong.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
from typing import Any

from amdattn.checking import schedules
from amdattn.checking.findings import ERROR, FindingLog
from amdattn.checking.subjects import OfOperation
from amdattn.device import binding, manifest, runtime
from amdattn.ops.registry import operations
from amdattn.testing import selftest
from tests.support.paths import ROOT

_SCHEDULES = 2


def sweep(every: int, count: int, checked: bool, names: str = "*") -> dict[str, Any]:
    """Cases of every so manieth kernel of each operation whose name matches, `count` of each.

    0: all cases of each, and the general ones, which reach what forward kernels need besides.
    """
    props = runtime.device_props()
    rows = [
        row
        for row in manifest.kernels()
        if row.arch == props.arch and fnmatch.fnmatchcase(row.name, names)
    ]
    ran, wrong, launched = 0, [], set()
    for operation in operations():
        own = [row for row in rows if row.op == operation.kernel_ops[0]]
        for row in (*own[::every], *([] if count or names != "*" else [None])):
            for case in list(operation.cases(row))[: count or None]:
                subject = OfOperation(operation, case)
                launched |= {launch.kernel.name for launch in subject.plan().launches}
                ran += 1
                found = selftest.run_case(operation, case)
                if not found.ok:
                    wrong.append(f"{subject.title}: {found.reason}")
                if checked:
                    log = FindingLog()
                    for _ in schedules.run(subject, schedules.schedules(_SCHEDULES), log):
                        pass
                    wrong += [
                        f"{subject.title}: {finding.message}"
                        for finding in log
                        if finding.severity == ERROR
                    ]
    return {"device": props.label, "ran": ran, "launched": sorted(launched), "wrong": wrong}


def run_on(device: str, *options: str, timeout: float) -> dict[str, Any]:
    """The same in a process whose virtual device is another one."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.kernel_sweep", *options],
        cwd=ROOT,
        env={**os.environ, binding.ENVIRONMENT_VARIABLE: f"virtual:{device}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--cases", type=int, default=0)
    parser.add_argument("--names", default="*", help="a pattern")
    parser.add_argument("--checked", action="store_true")
    options = parser.parse_args()
    print(json.dumps(sweep(options.every, options.cases, options.checked, options.names)))


if __name__ == "__main__":
    main()
