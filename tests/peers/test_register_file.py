"""VGPRs and AGPRs are one file: aiter's kernels use v160 to v235 with an accum_offset of 160."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from amdattn.errors import HipError
from build_scripts.toolchain import LLVM22
from tests.support.peers.peer_device import WAVE_LANES, Buffers, Kernel, read

SOURCE = Path(__file__).with_name("register_file.s")


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    folder = tmp_path_factory.mktemp("register_file")
    zig = str(LLVM22.executable())
    target = ["-target", "amdgcn-amd-amdhsa", "-mcpu=gfx942", "-x", "assembler"]
    subprocess.run([zig, "clang", *target, "-c", SOURCE, "-o", "it.o"], cwd=folder, check=True)
    subprocess.run([zig, "ld.lld", "-shared", "it.o", "-o", "it.hsaco"], cwd=folder, check=True)
    return (folder / "it.hsaco").read_bytes()


def test_a_vgpr_from_accum_offset_on_is_an_agpr(image):
    with Buffers() as buffers:
        out = buffers.unwritten((WAVE_LANES, 3), np.uint32)
        Kernel(image, "alias").launch((1, 1, 1), WAVE_LANES, struct.pack("<Q", out))
        found = read(out, (WAVE_LANES, 3), np.uint32)
    np.testing.assert_array_equal(found - np.arange(WAVE_LANES)[:, None], [[1000, 2000, 2000]] * 64)


def test_a_vgpr_beyond_the_allocation_is_refused(image):
    with Buffers() as buffers, pytest.raises(HipError, match="register beyond"):
        out = buffers.unwritten((1,), np.uint32)
        Kernel(image, "beyond").launch((1, 1, 1), WAVE_LANES, struct.pack("<Q", out))
