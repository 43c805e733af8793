"""What waves of a launch read of themselves with s_getreg: where they run and what they hold."""

from __future__ import annotations

from ctypes import c_uint32, c_uint64
from typing import Any

import numpy as np
import pytest

from amdattn.device import runtime
from benchmarks.performance_model.micro_kernel import assemble

XCDS, CUS_OF_XCD, ENGINES, SIMDS = 8, 38, 4, 4
# Lane 0 of every wave stores what it read at s[22:23] + 32 (workgroup * waves + wave).
STORE = """
  v_readfirstlane_b32 s10, v0
  s_lshr_b32 s10, s10, 6
  s_mul_i32 s11, s2, {waves}
  s_add_u32 s10, s10, s11
  s_lshl_b32 s10, s10, 5
  v_mov_b32 v16, s10
{moves}
  v_cmp_eq_u32 vcc, 0, v1
  s_and_saveexec_b64 s[12:13], vcc
  global_store_dwordx4 v16, v[20:23], s[22:23]
  global_store_dwordx4 v16, v[24:27], s[22:23] offset:16
  s_waitcnt vmcnt(0)
"""


def read(gpu: Any, workgroups: int, waves: int, *registers: str) -> np.ndarray[Any, Any]:
    """(workgroups, waves, register)."""
    moves = "\n".join(
        f"s_getreg_b32 s5, hwreg({name})\nv_mov_b32 v{20 + i}, s5"
        for i, name in enumerate(registers)
    )
    image = assemble(STORE.format(waves=waves, moves=moves), runtime.device_props().arch)
    function, module = runtime.get().load(image, "micro")
    gpu.modules.append((module, image))
    words = np.zeros(max(workgroups * waves * 8, 512), np.uint32)
    address = gpu.upload(words)
    gpu.launch(function, workgroups, 64 * waves, c_uint64(0), c_uint64(address))
    assert gpu.finish() == 0, gpu.report
    out = gpu.download(address, words)[: workgroups * waves * 8]
    return out.reshape(workgroups, waves, 8)[..., : len(registers)]


@pytest.mark.parametrize(("workgroups", "waves"), [(1, 1), (8, 3), (100, 8), (320, 2)])
def test_where_a_wave_runs(gpu: Any, workgroups: int, waves: int) -> None:
    """Workgroups go round the XCDs, the shader engines, their CUs; waves round the SIMDs."""
    found = read(gpu, workgroups, waves, "HW_REG_HW_ID", "HW_REG_XCC_ID")
    hw_id, xcc_id = found[..., 0], found[..., 1]
    workgroup, wave = np.indices((workgroups, waves))
    assert (xcc_id == workgroup % XCDS).all()
    assert (hw_id & 15 == wave // SIMDS).all()  # WAVE_ID
    assert (hw_id >> 4 & 3 == wave % SIMDS).all()  # SIMD_ID
    cu = workgroup // XCDS % CUS_OF_XCD
    assert (hw_id >> 8 & 15 == cu // ENGINES).all()  # CU_ID
    assert (hw_id >> 13 & 3 == cu % ENGINES).all()  # SE_ID
    assert (hw_id & 0xFFFF90C0 == 0).all()  # pipe, shader array


@pytest.mark.parametrize(
    ("field", "shift", "width"), [("CU", 8, 4), ("SE", 13, 2), ("SIMD", 4, 2), ("WAVE", 0, 4)]
)
def test_fields_are_read_alone(gpu: Any, field: str, shift: int, width: int) -> None:
    del field
    whole = read(gpu, 100, 8, "HW_REG_HW_ID")[..., 0]
    alone = read(gpu, 100, 8, f"HW_REG_HW_ID, {shift}, {width}")[..., 0]
    assert (alone == whole >> shift & (1 << width) - 1).all()
    assert len(np.unique(alone)) > 1


def test_what_a_wave_holds(gpu: Any) -> None:
    """64 KiB of LDS in 512 bytes; 128 VGPRs in eights, before the AGPRs; no trap, no exception."""
    names = ("HW_REG_LDS_ALLOC", "HW_REG_GPR_ALLOC", "HW_REG_TRAPSTS", "HW_REG_IB_STS")
    found = read(gpu, 3, 4, *names)
    expected = [128 << 12, 16 << 8, 0, 0]
    assert (found == np.array(expected, np.uint32)).all()


@pytest.mark.parametrize("shape", [(4, 2, 8), (1, 1, 1024), (5, 7, 3), (1, 300, 2)])
def test_work_items_know_where_they_are(gpu: Any, shape: tuple[int, int, int]) -> None:
    function = gpu.function("work_items")
    width, height, depth = shape
    words = np.full(width * height * depth, 0xFFFFFFFF, np.uint32)
    address = gpu.upload(words)
    arguments = (c_uint64(address), c_uint32(width), c_uint32(height))
    gpu.call("hipModuleLaunchKernel", function, 1, 1, 1, *shape, 0, None, None, arguments)
    assert gpu.finish() == 0, gpu.report
    z, y, x = np.indices((depth, height, width))
    np.testing.assert_array_equal(gpu.download(address, words), (x | y << 10 | z << 20).reshape(-1))
