"""Small kernels for classes of mutants that few shipped kernels have: ranges, semaphores, LDS."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from amdattn.compiler import DEFAULT_ARCH
from benchmarks.checker_mutation.subject import Buffer, Case, Subject, read_only, unwritten
from build_scripts.toolchain import LLVM22, compile_hip

KERNELS = Path(__file__).resolve().parent / "kernels"


def hip_subjects(arch: str = DEFAULT_ARCH) -> list[Subject]:
    """Every kernel of tests/support/mutation/kernels, for an architecture."""
    return [range_copy(arch), split_sum(arch), lds_sum(arch)]


def range_copy(arch: str = DEFAULT_ARCH) -> Subject:
    """Copies whose last workgroup is cut by the range of its buffers."""
    return _subject("range_copy", arch, *(_range_copy_case(n) for n in (1000, 256, 1)))


def _range_copy_case(n: int) -> Case:
    rng = np.random.default_rng(n)
    buffers = (read_only("in", rng.integers(1, 1 << 20, n, np.uint32).tobytes()),)
    buffers += (unwritten("out", 4 * n),)
    kernarg = struct.pack("<QQii", 0, 0, n, n)
    pointers = ((0, 0), (8, 1))
    return Case(str(n), (-(-n // 256), 1, 1), (256, 1, 1), kernarg, pointers, buffers)


def split_sum(arch: str) -> Subject:
    """A sum that the last workgroup to arrive finishes."""
    parts = 5
    rng = np.random.default_rng(5)
    buffers = (
        read_only("in", rng.integers(0, 1 << 20, parts * 64, np.int32).tobytes()),
        Buffer("workspace", parts * 64 * 4),
        Buffer("semaphore", 4, bytes(4), contract="zero_at_end"),
        unwritten("out", 64 * 4),
    )
    kernarg = struct.pack("<QQQQi4x", 0, 0, 0, 0, parts)
    pointers = tuple((8 * i, i) for i in range(4))
    case = Case(f"{parts} parts", (parts, 1, 1), (64, 1, 1), kernarg, pointers, buffers)
    return _subject("split_sum", arch, case)


def lds_sum(arch: str) -> Subject:
    """Sums over the waves of a workgroup, twice through the same LDS."""
    workgroups = 2
    values = np.random.default_rng(6).integers(0, 1 << 10, workgroups * 256, np.int32)
    buffers = (read_only("in", values.tobytes()), unwritten("out", workgroups * 128 * 4))
    pointers = ((0, 0), (8, 1))
    case = Case("", (workgroups, 1, 1), (256, 1, 1), struct.pack("<QQ", 0, 0), pointers, buffers)
    return _subject("lds_sum", arch, case)


def _subject(name: str, arch: str, *cases: Case) -> Subject:
    image = compile_hip(KERNELS / f"{name}.hip", LLVM22, arch).code_object
    return Subject(name, image, name, cases)
