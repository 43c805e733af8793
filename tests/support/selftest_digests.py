"""Prints the digest of every case of the selftest, and whether it holds, as JSON."""

from __future__ import annotations

import json

from amdattn.device import runtime
from amdattn.testing import selftest


def main() -> None:
    """Script: the device and its runtime are the environment's."""
    found = [(selftest.run_case(*each), each[1].title) for each in selftest.cases()]
    digests = {f"{r.operation.name} {title}": [r.digest, r.reason] for r, title in found}
    print(json.dumps({"library": runtime.get().choice.library, "cases": digests}))


if __name__ == "__main__":
    main()
