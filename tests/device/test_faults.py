"""What a failing HIP call tells: its name, its meaning and, on the virtual device, the fault."""

import subprocess
import sys

import pytest

import amdattn
from amdattn.device import runtime
from amdattn.testing import do_bench


def test_a_failing_call_names_itself():
    device = runtime.get()
    with pytest.raises(amdattn.HipError) as caught:
        device.malloc(1 << 62)
    assert caught.value.call == "hipMalloc"
    assert caught.value.name == "hipErrorOutOfMemory" and caught.value.code == 2
    assert "hipMalloc failed: hipErrorOutOfMemory (2)" in str(caught.value)
    assert device.hip.hipGetLastError()[0] == 0  # nothing is left for the next call to trip over


def test_a_code_object_that_is_none():
    device = runtime.get()
    with pytest.raises(amdattn.HipError, match="hipErrorInvalidImage"):
        device.check("hipModuleLoadData", device.hip.hipModuleLoadData(b"no code object" * 20))


FAULT = """
import amdattn
from amdattn.op import launch; from amdattn.device import runtime
from amdattn.op.plan import Operand

plan = amdattn.plan_attention(1, 128, 64, 1, 1, 128, device=amdattn.device_props())
x = amdattn.empty((1, 128, 1, 128))
strides = {"batch": 16384, "seq": 128, "head": 128}
operands = {name: Operand(x.address, strides) for name in ("q", "k", "v")}
operands["o"] = Operand(0x10, strides)  # nobody's memory
operands["lse"] = launch.ABSENT
device = runtime.get()
try:
    launch.run(launch.PreparedLaunches(plan.launches).on(device), operands, device, 0)
    amdattn.synchronize()
except amdattn.HipError as error:
    print(error)
    assert error.report == amdattn.virtual.last_report() != ""
else:
    raise SystemExit("the fault went unnoticed")
"""


def test_a_store_to_nobodys_memory():
    """In a process of its own: after a fault a device is of no further use."""
    child = subprocess.run(
        [sys.executable, "-c", FAULT], capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr
    for word in ("attn_fwd", "workgroup", "wave", "lane", "address", "store"):
        assert word in child.stdout


def test_options_and_counters_of_the_virtual_device(normal):
    before = amdattn.virtual.counter("launches")
    x = normal(1, 4, 1, 128)
    amdattn.flash_attn_func(x, x, x)
    assert amdattn.virtual.counter("launches") == before + 1
    amdattn.virtual.set_option("seed", 7)
    amdattn.virtual.set_option("seed", 0)  # as it was: the schedules of other tests depend on it
    with pytest.raises(ValueError, match="'speed' must be one of"):
        amdattn.virtual.set_option("speed", 1)


def test_do_bench():
    calls = []
    times = do_bench(lambda: calls.append(1), warmup=1, rep=2, return_mode="all")
    assert len(times) >= 1 and len(calls) > len(times) and min(times) >= 0
    median, low = do_bench(lambda: None, warmup=1, rep=1, quantiles=[0.5, 0.0])
    assert median >= low
    for mode in ("mean", "median", "min", "max"):
        assert do_bench(lambda: None, warmup=0, rep=0, return_mode=mode) >= 0
    with pytest.raises(ValueError, match="return_mode='sum'"):
        do_bench(lambda: None, return_mode="sum")
    with pytest.raises(NotImplementedError, match="grad_to_none"):
        do_bench(lambda: None, grad_to_none=[])
