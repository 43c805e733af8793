"""hipExtModuleLaunchKernel: grids in lanes, whose last workgroups may be partial ones."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.hip_runtime import ARGS, code_object

INVALID_VALUE = 1


@pytest.fixture
def words(hip: Any) -> Iterator[np.ndarray]:
    pointer = hip.hipHostMalloc(4096, 0)
    found = np.ctypeslib.as_array((ctypes.c_uint32 * 1024).from_address(int(pointer)))
    found[:] = 7
    yield found
    hip.hipHostFree(pointer)


def launch(
    hip: Any, function: Any, words: np.ndarray, lanes: tuple[int, ...], group: tuple[int, ...]
) -> int:
    out, value = ctypes.c_uint64(words.ctypes.data), ctypes.c_uint32(0)
    params = (ctypes.c_void_p * 2)(*(ctypes.addressof(each) for each in (out, value)))
    call = hip.lib.hipExtModuleLaunchKernel
    shape = map(ctypes.c_uint, ((*lanes, 1, 1)[:3] + (*group, 1, 1)[:3]))
    handle = ctypes.c_void_p(int(function))
    return int(call(handle, *shape, ctypes.c_size_t(0), None, params, None, None, None, 0))


@pytest.mark.parametrize(
    ("lanes", "group"), [((65,), (64,)), ((11, 4), (8, 4)), ((9, 4, 3), (4, 4, 4))], ids=str
)
def test_lanes(hip: Any, words: np.ndarray, lanes: tuple[int, ...], group: tuple[int, ...]) -> None:
    """The last workgroup has the lanes that are left, packed into its waves."""
    _, function = hip.kernel("ids")
    assert launch(hip, function, words, lanes, group) == 0
    hip.hipDeviceSynchronize()
    expected = np.full((16, 64), 7, np.uint32)
    for workgroup, first in enumerate(range(0, lanes[0], group[0])):
        x, y, z = (min(group[0], lanes[0] - first), *lanes[1:], 1, 1)[:3]
        ids = [i | j << 10 | k << 20 for k in range(z) for j in range(y) for i in range(x)]
        expected[workgroup, : len(ids)] = ids
    np.testing.assert_array_equal(words.reshape(expected.shape), expected)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        *(("hidden_block_count_x", 2), ("hidden_block_count_y", 1), ("hidden_remainder_x", 3)),
        *(("hidden_remainder_y", 0), ("hidden_group_size_x", 8)),
    ],
)
def test_hidden_arguments(hip: Any, words: np.ndarray, kind: str, expected: int) -> None:
    """Whole workgroups are counted; the partial one's size is the remainder."""
    size = 2 if "count" not in kind else 4
    hidden = {**ARGS[1], ".value_kind": kind, ".size": size}
    image = code_object("fill", args=[ARGS[0], hidden])
    function = hip.hipModuleGetFunction(hip.hipModuleLoadData(image), b"k")
    assert launch(hip, function, words, (19,), (8,)) == 0
    hip.hipDeviceSynchronize()
    mask = (1 << 8 * size) - 1
    assert (words[:8] & mask == expected).all() and (words[8:] == 7).all()


def test_kernels_that_were_compiled_for_whole_workgroups(hip: Any, words: np.ndarray) -> None:
    image = code_object("fill", uniform_work_group_size=1)
    function = hip.hipModuleGetFunction(hip.hipModuleLoadData(image), b"k")
    assert launch(hip, function, words, (65,), (64,)) == INVALID_VALUE
    assert launch(hip, function, words, (10,), (64,)) == 0  # the workgroup becomes smaller
    hip.hipDeviceSynchronize()
    assert (words[:10] == 0).all() and (words[10:] == 7).all()
