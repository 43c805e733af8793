"""Fixtures for tests of the decoder and the printer."""

from __future__ import annotations

import ctypes

import pytest

from tests.support.isa.disassembler import Disassembler


@pytest.fixture(scope="session")
def disassembler(vdev_lib: ctypes.CDLL) -> Disassembler:
    """Decoder and printer."""
    return Disassembler(vdev_lib)


@pytest.fixture(scope="session")
def disassembler950(vdev_lib: ctypes.CDLL) -> Disassembler:
    """The same for gfx950."""
    return Disassembler(vdev_lib, "gfx950")
