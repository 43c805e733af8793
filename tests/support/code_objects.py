"""The shipped code objects, as tests of all of them read them."""

from __future__ import annotations

import functools

from build_scripts.packed_objects import read_folder
from tests.support.paths import ROOT


@functools.cache
def code_objects(arch: str) -> dict[str, bytes]:
    """Every object for an architecture, or of hsaco/micro, by the name of its file."""
    found = read_folder(ROOT / "hsaco" / arch)
    assert found
    return found


def code_object(file: str) -> bytes:
    """The object of a path in the manifest."""
    arch, name = file.split("/")
    return code_objects(arch)[name]
