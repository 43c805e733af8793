"""Fixtures shared by the tests of the device's arithmetic."""

from __future__ import annotations

import pytest
from scalar_library import ScalarLibrary, host_level


@pytest.fixture(scope="session")
def vdev_lib(tmp_path_factory: pytest.TempPathFactory) -> ScalarLibrary:
    """The scalar arithmetic, built for this host."""
    return ScalarLibrary.build(tmp_path_factory.mktemp("numerics"), host_level())
