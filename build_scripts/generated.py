"""Writes everything that is made of the sources and kept beside them: pages, lists, the schedules.

    python -m build_scripts.generated

Run it when an operation, a kernel, a command, an instruction or a reading was added or changed;
tests compare each file with what this writes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from build_scripts.toolchain import ASM_SRC

MODULES = (
    *("build_scripts.api", "build_scripts.fidelity", "build_scripts.hazards"),
    *("build_scripts.readings", "build_scripts.schedules"),
    *(
        "tests.cli.test_listed_options",
        "tests.cli.test_what_runs",
        "tests.ops.test_plans_as_listed",
    ),
    *("tests.bench.test_listed_tables", "tests.device.test_amd_differences"),
)


def main() -> int:
    """Command line; exit status 1 if one of them failed."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    failed = 0
    for module in MODULES:
        print(module, flush=True)
        done = subprocess.run([sys.executable, "-m", module], cwd=ASM_SRC.parent, check=False)
        failed |= done.returncode
    return int(failed != 0)


if __name__ == "__main__":
    sys.exit(main())
