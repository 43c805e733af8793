"""Runs tests, and prints their outcomes and the digests of what each copied from the device.

`python -m tests.support.peers.digests TESTS...`, JSON on the last line. Of two runtimes under the
same device both have to be the same. $AMDATTN_MORE_PACKAGES names a folder of packages that this
Python lacks.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import sys
from typing import Any

import pytest

from amdattn.device import runtime
from amdattn.device.runtime.memory_calls import MemoryCalls

PACKAGES = "AMDATTN_MORE_PACKAGES"


class Recorder:
    """A plugin of pytest."""

    def __init__(self) -> None:
        self.found: dict[str, list[str]] = {}
        self._hash = hashlib.sha256()
        self._download = MemoryCalls.download
        recorder = self

        def download(self: Any, host: int, address: int, nbytes: int, stream: int = 0) -> None:
            recorder._download(self, host, address, nbytes, stream)
            runtime.synchronize()
            recorder._hash.update(ctypes.string_at(host, nbytes))

        MemoryCalls.download = download  # type: ignore[method-assign]

    def pytest_runtest_logstart(self) -> None:
        self._hash = hashlib.sha256()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.found[report.nodeid] = [report.outcome, self._hash.hexdigest()]


def main() -> int:
    """Script: the device and its runtime are the environment's."""
    sys.path.extend(filter(None, [os.environ.get(PACKAGES)]))
    recorder = Recorder()
    options = ("-q", "-n0", "-p", "no:randomly", "-p", "no:cacheprovider", "-m", "")
    code = pytest.main([*options, *sys.argv[1:]], [recorder])
    library = runtime.get().choice.library
    print("\n" + json.dumps({"library": library, "tests": recorder.found}))
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
