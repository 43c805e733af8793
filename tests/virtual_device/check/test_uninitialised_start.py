"""Which scalar registers a wave starts with: those that its kernel's descriptor asks for."""

from __future__ import annotations

import json
from ctypes import c_char_p, c_uint64
from typing import Any

import numpy as np
import pytest

from amdattn.device import runtime
from benchmarks.performance_model.micro_kernel import assemble
from tests.support.vdev_library import open_library

# s[0:1] point to the arguments and s2 is the workgroup's id. Nobody sets what comes behind.
DEFINED = 3
STORE = """
  v_mov_b32 v16, 0
  v_mov_b32 v17, s{register}
  global_store_dword v16, v17, s[22:23]
  s_waitcnt vmcnt(0)
"""


@pytest.mark.parametrize("register", range(8))
def test_registers_of_the_abi(gpu: Any, register: int) -> None:
    library = open_library(amdattn_vdev_take_findings=(c_char_p, []))
    image = assemble(STORE.format(register=register), runtime.device_props().arch)
    function, module = runtime.get().load(image, "micro")
    gpu.modules.append((module, image))
    address = gpu.upload(np.zeros(512, np.uint32))
    gpu.option("check", 1)
    try:
        gpu.launch(function, 1, 64, c_uint64(0), c_uint64(address))
        assert gpu.finish() == 0, gpu.report
        (launch,) = json.loads(library.amdattn_vdev_take_findings())["launches"]
    finally:
        gpu.option("check", 0)
    kinds = [f["kind"] for f in launch["findings"] if f["kind"].startswith("uninitialised")]
    assert kinds == ([] if register < DEFINED else ["uninitialised_store"])
