"""Operands and results of the attention backward behind 4 GiB and 2**31 elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.device import runtime
from tests.support.attention.family import placed
from tests.support.backward.calls import RESULTS, normal

MOST = 2**22 - 8  # elements from a row of K or V to the next
NEAR = 2**13  # between the operands that share a memory: more than a row's heads


def upload(to: amdattn.DeviceArray, host: Any) -> None:
    part = np.ascontiguousarray(host)
    runtime.get().upload(to.address, part.ctypes.data, part.nbytes)
    amdattn.synchronize()


@pytest.mark.parametrize("axis", ["batch", "head", "seq"])
@pytest.mark.parametrize("options", [{}, {"deterministic": True}, {"softcap": 3.0}], ids=str)
def test_strides(axis: str, options: dict[str, Any]) -> None:
    """Neighbours up to 2**29 bytes apart: the last lie more than 4 GiB behind the first."""
    far = MOST if axis == "seq" else 2**28 + 8 * 256
    count = -(-(2**31 + 2**26) // far) + 1
    batch, rows, heads = {"batch": (count, 3, 1), "head": (1, 3, count), "seq": (1, count, 1)}[axis]
    cap = {name: x for name, x in options.items() if name == "softcap"}
    more = {name: x for name, x in options.items() if name not in cap}
    call = normal(rows, rows, (heads, heads), batch=batch, causal=True, more=more, **cap)
    usual, given = call.run(), call.inputs
    memory = amdattn.empty(((count - 1) * far + 2**17,), "bfloat16")
    strides = tuple(far if name == axis else 64 for name in ("batch", "seq", "head"))
    arrays = [
        placed(memory, given.q.shape, (*strides, 1), NEAR * i)
        for i in range(1, 6 + len(RESULTS[:3]))
    ]
    tensors = given.dout, given.q, given.k, given.v, given.o
    for array, x in zip(arrays, tensors, strict=False):
        for index in np.ndindex(batch, rows, heads):
            upload(array[index], x[index])
    assert arrays[1].view().extent()[1] - arrays[1].address > 2**32
    results = dict(zip(RESULTS, arrays[5:], strict=False))
    amdattn.flash_attn_backward(
        *arrays[:5], amdattn.asarray(given.lse), causal=True, **cap, **more, **results
    )
    amdattn.synchronize()
    for name, array in results.items():
        for index in np.ndindex(batch, rows, heads):
            found = array[index].numpy().astype(np.float32)
            wanted = usual[name][index].astype(np.float32)
            # As they come, dq of several blocks of keys may differ by a rounding.
            np.testing.assert_allclose(found, wanted, rtol=2.0**-7, atol=2.0**-9, err_msg=name)
