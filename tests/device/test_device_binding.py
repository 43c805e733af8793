"""Which HIP library gets bound, and what is said about it. Each case is a process of its own."""

import os
import subprocess
import sys

import pytest

from tests.support.fake_rocm import run
from tests.support.paths import ROOT

REPORT = """
from amdattn.device import runtime
device = runtime.get()
print(device.choice.kind, device.choice.library, device.props.name, device.props.arch, sep="|")
print(*device.choice.rejected, sep="|")
"""


def test_auto_takes_the_gpu(fake_rocm):
    rocm = fake_rocm()
    status, (chosen, _), errors = run(REPORT, ROCM_PATH=rocm)
    assert status == 0, errors
    library = rocm / "lib" / "libamdhip64.so"
    assert chosen == f"gpu|{library}|AMD Instinct MI300X|gfx942"


def test_auto_without_a_gpu_is_virtual():
    status, (chosen, rejected), errors = run(REPORT)
    assert status == 0, errors
    assert chosen.startswith("virtual|") and chosen.endswith("|gfx942")
    assert "libamdhip64.so" in rejected


@pytest.mark.parametrize(
    ("macros", "reason"),
    [({"NUM_DEVICES": 0}, "sees no GPU"), ({"ABORTS": 1}, "ended with status -6")],
)
def test_auto_survives_an_installation_that_does_not_work(fake_rocm, macros, reason):
    status, (chosen, rejected), errors = run(REPORT, ROCM_PATH=fake_rocm(**macros))
    assert status == 0, errors
    assert chosen.startswith("virtual|")
    assert reason in rejected


def test_gpu_is_never_replaced():
    status, _, errors = run(REPORT, AMDATTN_DEVICE="gpu")
    assert status != 0
    assert "BindingError: no GPU can be used: libamdhip64.so" in errors


def test_virtual_on_request_beside_a_gpu(fake_rocm):
    status, (chosen, _), errors = run(
        REPORT, ROCM_PATH=fake_rocm(), AMDATTN_DEVICE="virtual:gfx942"
    )
    assert status == 0, errors
    assert chosen.startswith("virtual|")


def test_use_device_overrides_the_environment(fake_rocm):
    code = "import amdattn; amdattn.use_device('virtual:gfx942')" + REPORT
    status, (chosen, _), errors = run(code, ROCM_PATH=fake_rocm(), AMDATTN_DEVICE="gpu")
    assert status == 0, errors
    assert chosen.startswith("virtual|")


def test_use_device_comes_too_late(fake_rocm):
    code = REPORT + "runtime.use_device('gpu'); runtime.use_device('virtual:gfx942')"
    status, _, errors = run(code, ROCM_PATH=fake_rocm())
    assert status != 0
    assert "BindingError: use_device('virtual:gfx942'): AMD Instinct MI300X is bound" in errors


def test_hip_python_was_used_before(fake_rocm):
    """hip-python opens one library for good: asking for another afterwards must be noticed."""
    code = """
try:
    from rocm.bindings import hip
except ImportError:
    from hip import chip, hip
    chip.DLL = __import__("os").environ["ROCM_PATH"].encode() + b"/lib/libamdhip64.so"
assert hip.hipGetDeviceCount() == (hip.hipError_t.hipSuccess, 1)
"""
    rocm = fake_rocm()
    status, (chosen, _), errors = run(code + REPORT, ROCM_PATH=rocm)
    assert status == 0, errors
    assert chosen.startswith("gpu|")
    status, _, errors = run(code + REPORT, ROCM_PATH=rocm, AMDATTN_DEVICE="virtual:gfx942")
    assert status != 0
    assert "BindingError: hip-python is bound to another HIP library" in errors


def test_a_runtime_in_the_process_comes_first(fake_rocm):
    """Another package's HIP runtime is shared, even if a different one is installed."""
    mapped, installed = fake_rocm(NAME='"the mapped one"'), fake_rocm(NAME='"the installed one"')
    code = f"import ctypes; ctypes.CDLL('{mapped}/lib/libamdhip64.so')" + REPORT
    status, (chosen, _), errors = run(code, ROCM_PATH=installed)
    assert status == 0, errors
    assert "the mapped one" in chosen


def test_unsupported_architecture(fake_rocm):
    rocm = fake_rocm(ARCH='"gfx90a:sramecc+:xnack-"', NAME='"AMD Instinct MI250X"')
    code = """
import amdattn, ml_dtypes, numpy
x = numpy.ones((1, 1, 1, 128), ml_dtypes.bfloat16)
amdattn.flash_attn_func(x, x, x)
"""
    status, _, errors = run(code, ROCM_PATH=rocm)
    assert status != 0
    assert (
        "UnsupportedDeviceError: the device is gfx90a:sramecc+:xnack- (AMD Instinct MI250X)"
        in errors
    )
    assert (
        "gfx942 (MI300X, MI325X, MI300A, MI308X)" in errors and "gfx950 (MI355X, MI350X)" in errors
    )
    assert "No fallback is attempted" in errors


@pytest.mark.parametrize("request_", ["cuda", "virtual", "virtual:gfx90a", "gpu:0"])
def test_unknown_requests(request_):
    status, _, errors = run(REPORT, AMDATTN_DEVICE=request_)
    assert status != 0
    assert f"AMDATTN_DEVICE={request_!r} must be one of auto, gpu, virtual:gfx942" in errors


def test_missing_virtual_library():
    status, _, errors = run(REPORT, AMDATTN_VDEV_LIBRARY="/nonexistent/lib.so")
    assert status != 0
    assert "/nonexistent/lib.so does not exist" in errors


def test_virtual_functions_need_the_virtual_device(fake_rocm):
    code = "import amdattn; amdattn.virtual.counter('launches')"
    status, _, errors = run(code, ROCM_PATH=fake_rocm())
    assert status != 0
    assert "BindingError: a GPU is bound (AMD Instinct MI300X)" in errors


def test_import_is_light():
    code = """
import sys, time
start = time.process_time()
import amdattn
elapsed = time.process_time() - start
heavy = {"numpy", "hip", "rocm", "cffi", "rich", "typer", "jax", "torch", "subprocess"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
assert all(getattr(amdattn, name) is not None for name in amdattn.__all__)
print(elapsed)
"""
    status, lines, errors = min(
        (run(code, AMDATTN_DEVICE="no such device") for _ in range(3)), key=lambda r: r[1]
    )
    assert status == 0, errors
    assert float(lines[0]) < 0.060


def test_planning_binds_no_device():
    code = """
import amdattn, sys
print(amdattn.explain(1, 1, 1, 1, 1, 128, device="MI300X"))
assert not {"hip", "rocm"} & set(sys.modules)
"""
    status, lines, errors = run(code, AMDATTN_DEVICE="no such device")
    assert status == 0, errors
    assert any("attn_fwd" in line for line in lines)


# Modules that Python's own library has, in the folder where the user happens to be.
DECOYS = ("typing", "subprocess", "re", "ctypes", "dataclasses", "os", "json", "pathlib", "amdattn")


@pytest.mark.parametrize("flags", [["-I"], ["-I", "-S"], []], ids=["-I", "-I -S", "script"])
def test_the_probe_runs_nothing_of_the_current_folder(tmp_path, fake_rocm, flags):
    here = tmp_path / "here"
    here.mkdir()
    for name in DECOYS:
        (here / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys; sys.path.append(sys.argv[1])\n"
        "from amdattn.device import binding\n"
        "print(binding.choose('auto', sys.argv[2]).kind)\n"
    )
    library = fake_rocm() / "lib" / "libamdhip64.so"
    env = {key: value for key, value in os.environ.items() if not key.startswith("ROCM_")}
    env.pop("PYTHONPATH", None)  # may name the current folder, whose modules this script would take
    env |= {"PYTHONPATH": str(here)} if flags else {}
    env["ROCM_PATH"] = "/nonexistent"
    child = subprocess.run(
        [sys.executable, *flags, str(script), str(ROOT), str(library)],
        cwd=here,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (child.stdout, child.stderr) == ("gpu\n", "")
    assert not (tmp_path / "ran").exists()


def test_the_probe_of_an_interpreter_that_needs_its_environment(fake_rocm):
    """PYTHONHOME is not heeded by an isolated child: the library is asked in this process."""
    status, (chosen, _), errors = run(
        REPORT, ROCM_PATH=fake_rocm(), PYTHONHOME=f"{sys.base_prefix}:{sys.base_exec_prefix}"
    )
    assert status == 0, errors
    assert chosen.startswith("gpu|")
