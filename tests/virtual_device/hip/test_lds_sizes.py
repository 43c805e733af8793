"""LDS of 160 KiB: launches up to it, refusals beyond it, and what a CU takes at a time."""

from __future__ import annotations

import pytest

from amdattn.arch.architectures import ARCHITECTURES
from tests.support.lds_sizes import launches

INVALID_VALUE = 1
# The ISA manual has 160 KiB; LLVM allocates it in blocks of 320 dwords, MI300's in 128.
BYTES = {"gfx950": 160 * 1024, "gfx942": 64 * 1024}
GRANULE = {"gfx950": 1280, "gfx942": 512}


@pytest.mark.parametrize("arch", BYTES)
def test_launches_and_residency(arch: str) -> None:
    all_of_it, granule = BYTES[arch], GRANULE[arch]
    assert ARCHITECTURES[arch].lds_bytes == all_of_it
    third = all_of_it // 3 // granule * granule  # three fit, of a byte more only two
    sizes = {all_of_it: 1, all_of_it // 2: 2, third: 3, third + 4: 2, all_of_it // 2 + 4: 1}
    beyond = (all_of_it + 4, 2 * all_of_it)
    found = launches(arch, [*sizes, *beyond])
    for size, workgroups in sizes.items():
        assert found[str(size)] == [0, True, workgroups, ""]
    for size in beyond:
        error, held, resident, report = found[str(size)]
        assert (error, held, resident) == (INVALID_VALUE, None, 0)
        assert f"{size} bytes of dynamic LDS exceed {all_of_it}" in report
