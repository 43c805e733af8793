"""What a process may do to the HSA runtime's ABI: several GPUs, and its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from amdattn.native_libraries import HSA_NAME
from tests.support.paths import ROOT

PROGRAM = """
import ctypes, struct, sys
import numpy as np
from tests.support.hip_runtime import code_object
from tests.support import hsa_runtime as abi
from tests.support.hsa_runtime import Hsa, Queue, dispatch
hsa = Hsa()
assert hsa.lib.hsa_init() == 0
cpu, *gpus = hsa.visited("hsa_iterate_agents")

def allocate(agent, flags):
    return hsa.made("hsa_amd_memory_pool_allocate", hsa.pool(agent, flags), 4096, 0)

args = allocate(cpu, 3)

def launch(gpu, out, code="fill", value=7):
    "The queue, and what its signal is in the end."
    _, kernel = hsa.kernel(code_object(code), gpu=gpu)
    ctypes.memmove(args, struct.pack("<QI", out, value), 12)
    queue, done = Queue(hsa, gpu), hsa.signal()
    queue.submit(dispatch(kernel, args, done))
    return queue, hsa.wait(done, 5 if code == "fill" else 0.05)

def allow(pointer, *agents):
    agents = (abi.U64 * len(agents))(*agents)
    return hsa.lib.hsa_amd_agents_allow_access(len(agents), agents, None, abi.POINTER(pointer))
"""

EACH = """
assert [hsa.number(gpu, 0xA006) >> 8 for gpu in gpus] == [5, 6, 7]
assert len({hsa.text(gpu, 0xA011) for gpu in gpus}) == 3
pools = [hsa.pool(gpu, 4) for gpu in gpus]
assert len(set(pools)) == 3
for at, gpu in enumerate(gpus):
    access = [hsa.made("hsa_amd_agent_memory_pool_get_info", gpu, pool, 0) for pool in pools]
    assert access == [1 if at == i else 2 for i in range(3)]
    queue, left = launch(gpu, allocate(gpu, 4))
    assert left == 0 and queue.errors == []
free = lambda gpu: hsa.made("hsa_agent_get_info", gpu, 0xA015)
before = [free(gpu) for gpu in gpus]
out = allocate(gpus[1], 4)
assert [a - b for a, b in zip(before, map(free, gpus))] == [0, 4096, 0]
"""

PEERS = """
out = allocate(gpus[0], 4)
assert allow(out, gpus[1]) == 0
queue, left = launch(gpus[1], out)
assert left == 0 and queue.errors == []
assert allow(out, gpus[2]) == 0  # instead of the one before
assert launch(gpus[0], out)[1] == 0
assert launch(gpus[2], out)[1] == 0
there, host = allocate(gpus[2], 4), np.zeros(64, np.uint32)
for to, source in ((there, out), (host.ctypes.data, there)):
    done = hsa.signal()
    hsa.lib.hsa_amd_memory_async_copy(to, gpus[2], source, gpus[0], 256, 0, None, done)
    assert hsa.wait(done) == 0
assert (host == 7).all()
queue, left = launch(gpus[1], out)
assert left == 1 and queue.errors == [43]
"""

MAPPED = """
from tests.virtual_device.hsa.test_vmem import SIZE, Vmem
vmem = Vmem(hsa)
vmem.pool = hsa.pool(gpus[1], 4)
used = lambda gpu: -hsa.made("hsa_agent_get_info", gpu, 0xA015)
before = [used(gpu) for gpu in gpus]
assert vmem.map(vmem.base, vmem.create()) == 0
assert [used(gpu) - b for gpu, b in zip(gpus, before)] == [0, SIZE]
assert vmem.give(vmem.base, SIZE, agent=gpus[1]) == 0
assert launch(gpus[1], vmem.base)[1] == 0
assert vmem.give(vmem.base, SIZE, agent=gpus[0]) == 0
assert launch(gpus[0], vmem.base)[1] == 0
assert vmem.give(vmem.base, SIZE, 0, agent=gpus[1]) == 0
assert launch(gpus[0], vmem.base)[1] == 0
assert launch(gpus[1], vmem.base)[1] == 1
"""

ENDS = """
queue, left = launch(gpus[0], allocate(gpus[0], 4), "spin", 0xFFFFFFFF)
assert left == 1 and queue.errors == []
print("ends")
"""


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + program],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("device", ["MI300X", "MI300X:CPX"])
def test_gpus_that_are_alike(device: str) -> None:
    done = run(EACH, AMDATTN_OPTIONS="gpus=3", AMDATTN_DEVICE=f"virtual:{device}")
    assert done.returncode == 0, done.stderr


def test_memory_of_peers() -> None:
    """A GPU sees another's memory where it was given access, and nothing without."""
    done = run(PEERS, AMDATTN_OPTIONS="gpus=3,seed=1")
    assert done.returncode == 0, done.stderr
    assert "write by GPU 1 of memory to which it has no access, as GPU 0 has" in done.stderr


def test_mapped_memory_of_two_gpus() -> None:
    done = run(MAPPED, AMDATTN_OPTIONS="gpus=2")
    assert done.returncode == 0, done.stderr
    assert "write by GPU 1 of memory to which it has no access, as GPU 0 has" in done.stderr


@pytest.mark.parametrize("count", ["0", "65", "two"])
def test_numbers_of_gpus_that_are_refused(count: str) -> None:
    done = run("", AMDATTN_OPTIONS=f"gpus={count}")
    assert done.returncode != 0
    assert f"AMDATTN_OPTIONS: no such option or value: gpus={count}" in done.stderr


def test_a_process_ends_while_a_launch_runs(tmp_path: Path) -> None:
    """It is aborted; what was found before is written all the same."""
    findings = tmp_path / "findings.json"
    done = run(ENDS, AMDATTN_FINDINGS=str(findings))
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr
    assert "the process ends while launches or copies are under way" in done.stderr
    assert "aborted: the process ends" in done.stderr
    assert json.loads(findings.read_text())["launches"]


SECOND = """
import ctypes, sys
from amdattn.device import virtual_library
from amdattn.errors import BindingError
ctypes.CDLL(sys.argv[1])
try:
    virtual_library.load_hsa(str(virtual_library.library_path()))
except BindingError as error:
    print(error)
"""


def test_another_hsa_runtime_that_was_loaded_before(tmp_path: Path) -> None:
    """AMD's HIP runtime would be given that one: it is said, and nothing is loaded on it."""
    other = tmp_path / HSA_NAME
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.28"]
    soname = f"-Wl,-soname,{HSA_NAME}"
    subprocess.run(
        [*compiler, "-shared", "-nostdlib", soname, "-x", "c", "/dev/null", "-o", str(other)],
        check=True,
    )
    done = subprocess.run(
        [sys.executable, "-c", SECOND, str(other)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert f"has loaded another {HSA_NAME} before ({other})" in done.stdout
