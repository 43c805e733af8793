"""docs/own-kernels.md: its commands, run one after the other as they stand there."""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from amdattn import compiler
from tests.support.cli_command import Command
from tests.support.gpu import Gpu
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "own-kernels.md").read_text()
COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S)
    for line in block.splitlines()
    if line.startswith("amdattn")
]


class Shell:
    """Runs commands as the page has them, in a folder."""

    def __init__(self, command: Command) -> None:
        self._command = command

    def __call__(self, folder: Path, line: str) -> tuple[int, str]:
        """Exit code and what was printed."""
        program, *args = shlex.split(line)
        assert program == "amdattn"
        status, out, errors = self._command(*args, folder=folder)
        return status, out + errors


@pytest.fixture
def run(amdattn_command: Command) -> Shell:
    return Shell(amdattn_command)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the files of the page."""
    folder = tmp_path_factory.mktemp("own-kernels")
    (source,) = re.findall(r"```cpp\n(.*?)```", PAGE, re.S)
    (arguments,) = re.findall(r"```text\n(.*?)```", PAGE, re.S)
    (folder / "row_sum.hip").write_text(source)
    (folder / "arguments.txt").write_text(arguments)
    return folder


def test_commands_of_the_page(run: Shell, folder: Path) -> None:
    results = [run(folder, command) for command in COMMANDS]
    built, clean, built_racy, racy, modelled = results
    assert [status for status, _ in results] == [0, 0, 0, 1, 0], results
    assert "row_sum(x: buffer, sums: buffer, columns: 4 B)" in built[1] + built_racy[1]
    assert "no findings in 16 launches of 16 runs" in clean[1]
    assert "lds_race" in racy[1] and "row_sum.hip:" in racy[1]
    assert "modelled, not measured" in modelled[1] and "object=row_sum.hsaco" in modelled[1]


def test_a_wrong_size_names_the_line(run: Shell, folder: Path) -> None:
    assert run(folder, "amdattn build row_sum.hip")[0] == 0
    wrong = "x in float32[8, 1000]; sums out float32[8]; columns int32 1001"
    command = f"amdattn check row_sum.hsaco --grid 8 --workgroup 256 --args '{wrong}'"
    status, text = run(folder, command)
    assert status == 1 and "illegal_address" in text and "row_sum.hip:6" in text


EVERY_NAME = r"""
#include <hip/hip_runtime.h>

// Floats and integers that an oracle in NumPy has as well.
extern "C" __global__ __launch_bounds__(128) void every(const float* x, float* f,
                                                                int* n, int* sum) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % warpSize;
  const float v = fabsf(x[i]);
  const float values[] = {
      floorf(x[i]), ceilf(x[i]), truncf(x[i]), rintf(x[i]), sqrtf(v), rsqrtf(v), expf(x[i]),
      exp2f(x[i]), logf(v), log2f(v), fmaf(x[i], v, 1.0f), fminf(x[i], 0.5f), fmaxf(x[i], 0.5f),
      __shfl(x[i], 5), __shfl_xor(x[i], 3), __shfl_down(x[i], 7), __shfl_up(x[i], 7),
      __shfl(x[i], 3, 16), __shfl_down(x[i], 7, 16), __shfl_up(x[i], 7, 16),
      __shfl_xor(x[i], 24, 16), make_float4(1, 2, 3, 4).z + float2{5, 6}.y};
  for (int k = 0; k < 22; k++) f[22 * i + k] = values[k];
  const unsigned long positive = __ballot(x[i] > 0);
  const int counts[] = {
      (int)__popcll(positive), __any(x[i] > 0), __all(x[i] > -100), (int)gridDim.x,
      (int)blockDim.x, min(lane, 9), max(lane, 9), (int)__lane_id(), __popc(lane),
      (int)(gridDim.y * 100 + gridDim.z * 10 + blockDim.y)};
  for (int k = 0; k < 10; k++) n[10 * i + k] = counts[k];
  atomicAdd(sum, i);
  atomicMax(sum + 1, i);
  atomicMin(sum + 2, -i);
  atomicOr(sum + 3, 1 << (i % 32));
  atomicXor(sum + 4, i);
  atomicCAS((unsigned*)sum + 5, 0, 77);
  atomicAdd((float*)sum + 6, 1);
  __threadfence();
}
"""


def test_every_name_of_the_header(run: Shell, folder: Path, gpu: Gpu) -> None:
    """What hip_runtime.h defines gives what HIP says, lane by lane."""
    (folder / "every.hip").write_text(EVERY_NAME)
    status, text = run(folder, "amdattn build every.hip --json")
    assert status == 0, text
    assert [a["name"] for a in json.loads(text)["kernels"][0]["arguments"]] == [
        "x",
        "f",
        "n",
        "sum",
    ]
    image = (folder / "every.hsaco").read_bytes()
    module = gpu.call("hipModuleLoadData", image)
    gpu.modules.append((module, image))
    function = gpu.call("hipModuleGetFunction", module, b"every")
    x = np.random.default_rng(3).standard_normal(256, np.float32)
    f, n, sums = (
        np.zeros((256, 22), np.float32),
        np.zeros((256, 10), np.int32),
        np.zeros(7, np.int32),
    )
    addresses = [gpu.upload(array) for array in (x, f, n, sums)]
    gpu.launch(function, 2, 128, *(ctypes.c_void_p(address) for address in addresses))
    assert gpu.finish() == 0, gpu.report
    f, n, sums = (gpu.download(a, b) for a, b in zip(addresses[1:], (f, n, sums), strict=True))
    lane = np.arange(256) % 64
    wave = x.reshape(4, 64)

    def of(lanes: np.ndarray) -> np.ndarray:
        return wave[np.arange(256) // 64, lanes]

    v, sub = np.abs(x), lane % 16
    expected = [
        *(np.floor(x), np.ceil(x), np.trunc(x), np.rint(x), np.sqrt(v), 1 / np.sqrt(v), np.exp(x)),
        *(np.exp2(x), np.log(v), np.log2(v), x * v + 1, np.minimum(x, 0.5), np.maximum(x, 0.5)),
        *(of(0 * lane + 5), of(lane ^ 3), of(np.where(lane + 7 < 64, lane + 7, lane))),
        *(of(np.where(lane >= 7, lane - 7, lane)), of(lane - sub + 3)),
        of(np.where(sub + 7 < 16, lane + 7, lane)),
        *(of(np.where(sub >= 7, lane - 7, lane)), of(np.where(lane & 16, lane ^ 24, lane))),
        np.full(256, 9.0),
    ]
    for k, want in enumerate(expected):
        np.testing.assert_allclose(f[:, k], want, rtol=3e-6, atol=1e-6, err_msg=f"value {k}")
    positive = (wave > 0).sum(1)[np.arange(256) // 64]
    counts = [positive, positive > 0, 1, 2, 128, np.minimum(lane, 9), np.maximum(lane, 9), lane]
    counts += [np.array([int(i).bit_count() for i in lane]), 111]
    for k, want in enumerate(counts):
        np.testing.assert_array_equal(n[:, k], want, err_msg=f"count {k}")
    i = np.arange(256)
    assert sums[:6].tolist() == [i.sum(), 255, -255, -1, np.bitwise_xor.reduce(i), 77]
    assert sums[6:].view(np.float32) == 256


KERNEL = "__attribute__((global)) void k() {}"


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("int x", "", "error: expected ';'"),
        ("", "", "source 'k.hip' has no kernel: no function is __global__"),
        (KERNEL, "--arch mi300", "arch='mi300' must be a target"),
        (KERNEL, "--arch gfx1", "unsupported HIP gpu arch"),
        (
            KERNEL,
            "-o k.hip",
            "--output='k.hip' is also the file of the source",
        ),
        (KERNEL, "-I nowhere", "--include='nowhere' is not a folder"),
        (KERNEL, "-o no/k", "cannot be written: there is no folder"),
    ],
)
def test_what_cannot_be_built(
    run: Shell, tmp_path: Path, source: str, options: str, message: str
) -> None:
    (tmp_path / "k.hip").write_text(source)
    status, text = run(tmp_path, f"amdattn build k.hip {options}")
    assert status == 2 and message in text and "Traceback" not in text, text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["k.hip"]


def test_without_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    (tmp_path / "k.hip").write_text("")
    with pytest.raises(compiler.CompileError, match=r"pip install 'amdattn\[build\]'"):
        compiler.build(tmp_path / "k.hip")


def test_warnings_are_shown(run: Shell, tmp_path: Path) -> None:
    (tmp_path / "k.hip").write_text(KERNEL.replace("{}", "{ int unused; }"))
    status, text = run(tmp_path, "amdattn build k.hip --flag=-O1 --assembly k.s")
    assert status == 0 and "warning: unused variable" in text
    assert "s_endpgm" in (tmp_path / "k.s").read_text()


def test_launch_bounds_are_those_of_hipcc(tmp_path: Path) -> None:
    """Lanes of a workgroup at most, and waves of a SIMD at least: registers follow from both."""
    source = tmp_path / "bounds.hip"
    kernel = 'extern "C" __global__ void {} {}(float* x) {{ x[threadIdx.x] = 1; }}\n'
    bounds = {"any": "", "few": "__launch_bounds__(256)", "two": "__launch_bounds__(512, 2)"}
    text = "".join(kernel.format(bound, name) for name, bound in bounds.items())
    source.write_text("#include <hip/hip_runtime.h>\n" + text)
    found = re.findall(r"max_flat_workgroup_size: (\d+)", compiler.build(source).assembly)
    assert found == ["1024", "256", "512"]
