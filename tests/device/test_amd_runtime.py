"""The package on AMD's own HIP runtime, which runs on the virtual device.

`python -m build_scripts.amd_runtime` brings that runtime; without it nothing of it is tested.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from build_scripts import amd_runtime
from build_scripts.toolchain import LLVM22, compile_hip
from tests.support import lds_sizes
from tests.support.paths import ROOT

HIP_TESTS = "tests/virtual_device/hip"
TWO_DEVICES = "tests.support.two_devices"
PYTHON = amd_runtime.python_of(amd_runtime.TARGET)
AMD = f"amd:{amd_runtime.TARGET / 'lib'}"

pytestmark = [
    pytest.mark.oracles,
    pytest.mark.skipif(
        not amd_runtime.is_whole(amd_runtime.TARGET), reason="AMD's HIP runtime was not brought"
    ),
    pytest.mark.timeout(900),
]


def run(python: str, *arguments: str, **environment: str) -> str:
    done = ended(python, *arguments, **environment)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


def ended(python: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    cache = {"AMD_COMGR_CACHE_DIR": str(amd_runtime.TARGET / "cache")}
    # Not what a run of tests around this one has.
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [python, *arguments],
        env=own | {"PYTHONPATH": str(ROOT)} | cache | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
        cwd=ROOT,
    )


def digests(python: str, **environment: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        run(python, "-m", "tests.support.selftest_digests", **environment)
    )
    return found


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_the_same_results(arch: str) -> None:
    """Every case of the selftest holds, bit for bit as on the virtual device's own runtime."""
    device = f"virtual:{arch}"
    theirs = digests(str(PYTHON), AMDATTN_DEVICE=device, AMDATTN_RUNTIME=AMD)
    assert theirs["library"] == str(amd_runtime.TARGET / "lib" / amd_runtime.LIBRARY)
    ours = digests(sys.executable, AMDATTN_DEVICE=device, AMDATTN_RUNTIME="amdattn")
    assert {name: reason for name, (_, reason) in theirs["cases"].items() if reason} == {}
    assert theirs["cases"] and theirs["cases"] == ours["cases"]


def test_our_tests_of_hip() -> None:
    """Each holds on both runtimes, or tests/support/amd_tests.py says why not."""
    options = ("-m", "pytest", "-q", "-n2", "--dist=loadfile", "-m", "not slow")
    device = {"AMDATTN_DEVICE": "virtual:gfx942", "AMDATTN_RUNTIME": AMD}
    told = run(str(PYTHON), *options, HIP_TESTS, **device)
    assert " passed" in told and "failed" not in told


FAULT = """
import os
from amdattn.device import binding
from tests.support.hip_runtime import Runtime
choice = binding.choose("virtual:gfx942", "", os.environ["AMDATTN_RUNTIME"])
hip = Runtime(choice.library, choice.device)
hip.set_option("max_instructions", 50_000)
_, function = hip.kernel("{code}")
hip.launch(function, 0x123456000)
hip.hipDeviceSynchronize()
"""


@pytest.mark.parametrize(
    ("code", "words", "error"),
    [
        ("fill", "write of 4 bytes at 0x123456000", "hipErrorIllegalAddress"),
        ("illegal", "illegal instruction 0xffffffff", "hipErrorLaunchFailure"),
        ("forever", "runaway kernel", "hipErrorLaunchFailure"),
    ],
)
def test_a_fault_is_told(code: str, words: str, error: str) -> None:
    """Our report, with the kernel and where; then AMD's error for whoever waits."""
    done = ended(str(PYTHON), "-c", FAULT.format(code=code), AMDATTN_RUNTIME=AMD)
    assert done.returncode != 0
    assert (
        words in done.stderr and "kernel k" in done.stderr and "workgroup (0, 0, 0)" in done.stderr
    )
    assert error in done.stderr


@pytest.mark.parametrize(("arch", "size"), [("gfx942", 64 * 1024), ("gfx950", 160 * 1024)])
def test_all_of_the_lds(arch: str, size: int, tmp_path: Path) -> None:
    image = tmp_path / "lds_sizes.co"
    image.write_bytes(compile_hip(lds_sizes.SOURCE, LLVM22, arch).code_object)
    sizes = (str(size), str(size // 2), str(size + 4))
    module = ("-m", "tests.support.lds_sizes", arch)
    told = run(str(PYTHON), *module, *sizes, f"{lds_sizes.IMAGE}{image}", AMDATTN_RUNTIME=AMD)
    found = json.loads(told)
    assert found[sizes[0]][:3] == [0, True, 1] and found[sizes[1]][:3] == [0, True, 2]
    invalid_value = 1
    assert found[sizes[2]][0] == invalid_value


def of_amd(arch: str = "gfx942", **more: str) -> dict[str, str]:
    """Environment of AMD's runtime on the virtual device."""
    return {"AMDATTN_DEVICE": f"virtual:{arch}", "AMDATTN_RUNTIME": AMD} | more


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_a_tour(arch: str, tmp_path: Path) -> None:
    """Kinds of host memory, streams, graphs, DLPack, forms of arguments, all of a CU's LDS."""
    image = tmp_path / "lds.hsaco"
    image.write_bytes(compile_hip(lds_sizes.SOURCE, LLVM22, arch).code_object)
    tour = ("-m", "tests.support.runtime_tour", str(image))
    theirs = json.loads(run(str(PYTHON), *tour, **of_amd(arch)))
    ours = json.loads(run(sys.executable, *tour, AMDATTN_DEVICE=f"virtual:{arch}"))
    assert theirs == ours
    assert theirs["extra"] == theirs["kernelParams"] == "works"


def test_two_devices() -> None:
    done = run(str(PYTHON), "-m", TWO_DEVICES, **of_amd(AMDATTN_OPTIONS="gpus=2"))
    assert done == "done\n"


def test_a_device_without_access_to_another() -> None:
    """A kernel that reads the other's memory faults: the device's report, and HIP's error."""
    environment = of_amd(AMDATTN_OPTIONS="gpus=2")
    done = ended(str(PYTHON), "-m", TWO_DEVICES, "--no-access", **environment)
    assert done.returncode != 0 and done.stdout.startswith("reads\n")
    assert "read by GPU 1 of memory to which it has no access, as GPU 0 has" in done.stderr
    assert "hipErrorIllegalAddress (700)" in done.stderr


@pytest.mark.parametrize("example", ["plan_and_graph", "varlen_batch", "gemm_in_a_layer"])
def test_an_example(example: str) -> None:
    run(str(PYTHON), f"examples/{example}.py", **of_amd("gfx950"))


def test_llama(tmp_path: Path) -> None:
    """The exit code says whether every logit is as near to float64 as rounding allows."""
    model = str(tmp_path / "model")
    run(sys.executable, "-m", "examples.llama.small_models", model, "--name", "qwen3")
    arguments = ("--ids", "5 6 7", "--tokens", "4", "--check")
    run(str(PYTHON), "-m", "examples.llama", model, *arguments, **of_amd())


@pytest.mark.parametrize("runtime", [AMD, "amdattn"])
def test_memory_stays_flat(runtime: str) -> None:
    """Of 10,000 launches on four threads the last 9,000 need no memory that is not given back."""
    python = str(PYTHON) if runtime == AMD else sys.executable
    environment = of_amd() | {"AMDATTN_RUNTIME": runtime}
    grown = json.loads(run(python, "-m", "tests.support.many_launches", **environment))
    assert grown["device"] == 0
    assert grown["resident"] < 8 << 20
