"""Readings of transcendentals exist where it is open what they do, and are refused elsewhere."""

from __future__ import annotations

import pytest

from amdattn.arch.architectures import ARCHITECTURES
from amdattn.device.profiling import TRANS, check_trans


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_what_is_known_has_one_reading(arch: str) -> None:
    check_trans(TRANS[0], arch, TRANS)
    with pytest.raises(
        ValueError, match=r"^trans='half' must be one of \('beside', 'exclusive'\)$"
    ):
        check_trans("half", arch, TRANS)
    if ARCHITECTURES[arch].open_trans:
        check_trans("exclusive", arch, TRANS)
    else:
        text = rf"^trans='exclusive' must be 'beside' on {arch}, where it is known"
        with pytest.raises(ValueError, match=text):
            check_trans("exclusive", arch, TRANS)
    assert [a for a in ARCHITECTURES if ARCHITECTURES[a].open_trans] == ["gfx942"]
