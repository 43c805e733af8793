"""Element types by the codes of DLPack's specification, in both directions."""

from __future__ import annotations

import numpy as np
import pytest

from amdattn.arrays.dlpack import HostTensor
from amdattn.arrays.dlpack_import import import_tensor
from amdattn.dtypes import as_dtype, from_dlpack_code

SIGNED, UNSIGNED, FLOAT, BFLOAT = 0, 1, 2, 4  # DLDataTypeCode
CODES = {
    **{f"int{bits}": (SIGNED, bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (UNSIGNED, bits) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": (FLOAT, bits) for bits in (16, 32, 64)},
    "bfloat16": (BFLOAT, 16),
}


@pytest.mark.parametrize(("name", "code"), CODES.items())
def test_codes(name: str, code: tuple[int, int]) -> None:
    assert as_dtype(name).dlpack == code
    assert from_dlpack_code(*code, 1).name == name
    assert as_dtype(name).itemsize * 8 == code[1] == as_dtype(name).numpy().itemsize * 8


@pytest.mark.parametrize("name", sorted(set(CODES) - {"bfloat16"}))
def test_numpy_agrees(name: str) -> None:
    values = np.arange(5).astype(name)
    assert np.from_dlpack(HostTensor(values)).dtype == values.dtype
    assert import_tensor(values, None).dtype is as_dtype(name)
