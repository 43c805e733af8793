"""Makes machine.py importable from the tests of this folder, and builds the library once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def _library() -> None:
    """Fail every test with the compiler's message, compiling once, when the sources are broken."""
    from machine import open_library

    open_library()
