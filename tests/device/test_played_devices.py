"""Products and partitions as the bound device. Each case is a process of its own."""

import json

import pytest

import amdattn
from amdattn.arch.props import KNOWN_DEVICES, KNOWN_PARTITIONS
from amdattn.device.virtual_library import library_path, play
from amdattn.errors import BindingError
from tests.support.fake_rocm import run

DEVICES = KNOWN_DEVICES | KNOWN_PARTITIONS
FACTS = """
import json
import amdattn
props = amdattn.device_props()
print(json.dumps([props.label, props.chip, props.num_cus, props.num_xcds]))
"""
# Attention with heads that split over CUs, and a product, as a user calls them.
CALLS = """
import ml_dtypes, numpy as np
from amdattn.testing import attention, attention_rounded, compare
rng = np.random.default_rng(0)
def normal(*shape):
    return rng.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16)
q, k, v = normal(1, 130, 2, 64), normal(1, 300, 1, 64), normal(1, 300, 1, 64)
out = amdattn.flash_attn_func(q, k, v)
held = compare(np.asarray(out), attention(q, k, v)[0], attention_rounded(q, k, v))
assert held, held.reason
a, b = normal(16, 256), normal(512, 256)
c = np.asarray(amdattn.gemm_nt(a, b), np.float32)
expected = a.astype(np.float32) @ b.astype(np.float32).T
np.testing.assert_allclose(c, expected, rtol=2**-7, atol=0.05)
with amdattn.virtual.profile() as profile:
    amdattn.gemm_nt(a, b)
print(json.dumps([launch.simulated_cus for launch in profile.launches]))
def plans(device):
    return [
        plan.explain()
        for plan in (
            amdattn.plan_gemm(8, 8192, 8192, device=device),
            amdattn.plan_attention(1, 1000, 8192, 8, 8, 128, device=device),
        )
    ]
assert plans(props) == plans(props.label) != plans("MI300X")
"""


def facts(name):
    props = DEVICES[name]
    return [name, props.chip, props.num_cus, props.num_xcds]


@pytest.mark.parametrize("name", ["MI308X", "MI300X:CPX"])
def test_a_named_device_plans_and_runs(name):
    status, lines, errors = run(FACTS + CALLS, AMDATTN_DEVICE=f"virtual:{name}")
    assert status == 0, errors
    assert json.loads(lines[0]) == facts(name)
    # What the model simulates is one of its XCDs.
    of_xcd = DEVICES[name].num_cus // DEVICES[name].num_xcds
    assert all(0 < cus <= of_xcd for cus in json.loads(lines[1]))


def test_an_mi300x_is_the_default():
    status, lines, errors = run(FACTS)
    assert status == 0, errors
    assert json.loads(lines[0]) == facts("MI300X")


@pytest.mark.parametrize("name", ["MI300", "mi308x", "MI308X:TPX", "MI308X:SPX", ""])
def test_errors_name_what_there_is(name):
    with pytest.raises(ValueError, match=f"device 'virtual:{name}' must be one of auto") as raised:
        amdattn.use_device(f"virtual:{name}")
    assert all(f"virtual:{known}" in str(raised.value) for known in ("gfx942", *DEVICES))


def test_the_environment_is_held_to_the_same():
    status, _, errors = run(FACTS, AMDATTN_DEVICE="virtual:MI308X:TPX")
    assert status != 0
    assert "AMDATTN_DEVICE='virtual:MI308X:TPX' must be one of auto, gpu, virtual:gfx942" in errors
    assert "virtual:MI308X:CPX" in errors


def test_a_process_has_one_device():
    code = """
import amdattn
amdattn.use_device("virtual:MI325X:QPX")
print(amdattn.device_props().label)
for request in ("auto", "virtual:gfx942", "virtual:MI325X:QPX"):
    amdattn.use_device(request)
amdattn.use_device("virtual:MI325X")
"""
    status, lines, errors = run(code, AMDATTN_DEVICE="gpu")
    assert (status, lines) == (1, ["MI325X:QPX"])
    assert "use_device('virtual:MI325X'): AMD Instinct MI325X in QPX is bound already" in errors


def test_a_device_that_exists_is_not_taken_for_another():
    before = f"""
import ctypes
library = ctypes.CDLL({str(library_path())!r})
library.hipGetDeviceCount(ctypes.byref(ctypes.c_int()))
"""
    status, _, errors = run(before + FACTS, AMDATTN_DEVICE="virtual:MI308X")
    assert status != 0
    assert "presents MI300X, not MI308X: a process has one device" in errors


def test_a_library_that_cannot_play():
    with pytest.raises(BindingError, match="cannot play MI308X"):
        play("libc.so.6", "MI308X")
