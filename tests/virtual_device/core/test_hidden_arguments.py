"""Arguments that the compiler appends by itself, against LLVM's description of them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from amdattn.device import runtime
from amdattn.device.kernarg import KernargBuffer
from build_scripts import toolchain

WORDS = 18
SOURCE = f"""
#include "isa/device.h"
extern "C" __global__ void takes_hidden(int* out) {{
  const auto* hidden = (const int*)__builtin_amdgcn_implicitarg_ptr();
  if (__builtin_amdgcn_workitem_id_x() == 0)
    for (int i = 0; i < {WORDS}; ++i) out[i] = hidden[i];
}}
"""


PLACES = """
extern "C" __global__ void places(unsigned* out, unsigned x, unsigned y) {
  const unsigned at[] = {__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(),
                         __builtin_amdgcn_workgroup_id_z()};
  if (__builtin_amdgcn_workitem_id_x() == 0)
    out[(at[2] * y + at[1]) * x + at[0]] = at[0] | at[1] << 8 | at[2] << 16;
}
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    source: Path = tmp_path_factory.mktemp("hidden") / "takes_hidden.hip"
    source.write_text(SOURCE + PLACES)
    return toolchain.compile_hip(source, toolchain.LLVM22).code_object


@pytest.mark.parametrize(
    ("grid", "workgroup", "dims"),
    [
        ((1, 1, 1), (1, 1, 1), 1),
        ((7, 1, 1), (64, 1, 1), 1),
        ((3, 2, 1), (64, 1, 1), 2),
        ((3, 1, 1), (16, 2, 1), 2),
        ((3, 1, 5), (32, 1, 1), 3),
        ((1, 1, 1), (4, 1, 3), 3),
    ],
)
def test_what_a_kernel_is_told_of_its_grid(
    image: bytes, grid: tuple[int, int, int], workgroup: tuple[int, int, int], dims: int
) -> None:
    """https://llvm.org/docs/AMDGPUUsage.html, "Code Object V5 Metadata"."""
    device = runtime.get()
    function, _module = device.load(image, "takes_hidden")
    out = device.malloc(4 * WORDS)
    arguments = KernargBuffer(8 + 256, device.launch_types)
    np.frombuffer(arguments.block, np.uint64)[0] = out
    device.launch(function, grid, workgroup, arguments, 0)
    words = np.zeros(WORDS, np.uint32)
    device.download(words.ctypes.data, out, words.nbytes)
    device.synchronize(0)
    device.free(out)
    halves = words.view(np.uint16)
    assert tuple(words[:3]) == grid
    assert tuple(halves[6:9]) == workgroup
    assert tuple(halves[9:12]) == (0, 0, 0)  # no part of a workgroup at the end
    assert not words[10:16].any()  # offsets of the grid
    assert halves[32] == dims


@pytest.mark.parametrize("grid", [(5, 1, 1), (5, 3, 1), (2, 3, 4), (1, 1, 7), (1, 6, 2)])
def test_workgroups_know_where_they_are(image: bytes, grid: tuple[int, int, int]) -> None:
    device = runtime.get()
    function, _module = device.load(image, "places")
    words = np.zeros(math.prod(grid), np.uint32)
    out = device.malloc(words.nbytes)
    arguments = KernargBuffer(8 + 8, device.launch_types)
    np.frombuffer(arguments.block, np.uint64)[0] = out
    np.frombuffer(arguments.block, np.uint32)[2:] = grid[:2]
    device.launch(function, grid, (64, 1, 1), arguments, 0)
    device.download(words.ctypes.data, out, words.nbytes)
    device.synchronize(0)
    device.free(out)
    z, y, x = np.indices(grid[::-1])
    assert (words.reshape(grid[::-1]) == (x | y << 8 | z << 16)).all()
