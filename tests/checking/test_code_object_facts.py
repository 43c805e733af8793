"""What `amdattn check` reads of a kernel's metadata, field by field."""

from __future__ import annotations

import pytest

from amdattn.device.code_object import Argument, read_kernels
from tests.support.hip_runtime import code_object

ARGS = [
    {".name": "out", ".offset": 0, ".size": 8, ".value_kind": "global_buffer"},
    {".offset": 8, ".size": 4, ".value_kind": "by_value"},
    {".name": "grid", ".offset": 16, ".size": 4, ".value_kind": "hidden_block_count_x"},
]


def test_every_field() -> None:
    image = code_object(
        args=ARGS,
        kernarg_segment_size=24,
        max_flat_workgroup_size=192,
        reqd_workgroup_size=[4, 8, 2],
    )
    (kernel,) = read_kernels(image, "image").values()
    assert (kernel.name, kernel.kernarg_bytes, kernel.max_lanes) == ("k", 24, 192)
    assert kernel.workgroup == (4, 8, 2)
    assert kernel.arguments == (
        Argument("out", 0, 8, "global_buffer"),
        Argument("argument 1", 8, 4, "by_value"),
    )
    assert [argument.is_buffer for argument in kernel.arguments] == [True, False]
    assert kernel.explicit_bytes == 12


def test_a_kernel_that_asks_for_nothing() -> None:
    (kernel,) = read_kernels(code_object(args=[]), "image").values()
    assert kernel.workgroup is None and kernel.arguments == () and kernel.explicit_bytes == 0


@pytest.mark.parametrize(
    ("image", "text"),
    [
        (b"MZ\0\0", r"it\.hsaco is not an ELF code object \(it begins with b'MZ"),
        (code_object()[:400], r"it\.hsaco has no readable kernel metadata"),
    ],
)
def test_what_is_no_code_object(image: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        read_kernels(image, "it.hsaco")
