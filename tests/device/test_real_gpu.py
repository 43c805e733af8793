"""What was published to go wrong on real GPUs, as far as a fake runtime can play it.

Each case is a process of its own. docs/real-gpu.md names the threads.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import amdattn
from amdattn.arch.architectures import ARCHITECTURES
from amdattn.arch.products import CHIPS
from amdattn.device import kernarg_preload
from tests.support import fake_rocm as fakes
from tests.support.fake_rocm import ROOT, SOURCE, run

PROPS = """
from amdattn.device import runtime
props = runtime.get().props
print(props.chip, props.num_cus, props.num_xcds, props.partition, sep="|")
print(*("|".join(source) for source in runtime.get().sources), sep="|")
"""

LAUNCH = """
import amdattn
from amdattn.device import runtime
device = runtime.get()
kernel = next(row for row in amdattn.kernels() if row.op == "gemm_nt")
device.function(kernel)
print(device.launch_form.value)
"""


@pytest.fixture(scope="module")
def rocm(fake_rocm):
    return fake_rocm()


def play(rocm: Path, code: str, **options: object) -> tuple[int, list[str], str]:
    """Exit status, lines and errors of code on a fake of these options (FAKE_HIP_*)."""
    # What is loaded already is asked without a child process.
    loaded = f"import ctypes; fake = ctypes.CDLL('{rocm}/lib/libamdhip64.so')\n"
    return run(loaded + code, **{f"FAKE_HIP_{name}": value for name, value in options.items()})


def outcome(rocm: Path, code: str, **options: object) -> list[str]:
    """Lines that code prints."""
    status, lines, errors = play(rocm, code, **options)
    assert status == 0, errors
    return lines


def failure(rocm: Path, code: str, **options: object) -> str:
    """The errors of code that fails."""
    status, lines, errors = play(rocm, code, **options)
    assert status != 0, lines
    return errors


# -- what the device is ----------------------------------------------------------------------------


@pytest.mark.parametrize("bindings", ["6.4", "7.2 and 10"])
def test_a_partition_is_known_through_every_generation(rocm, tmp_path, bindings):
    """Bindings of 6.4 have no name for the attributes: the kernel driver says it."""
    driver = bindings == "6.4"
    node = {"location_id": 0x0C00, "domain": 0, "device_id": 0x74A1, "num_xcc": 1}
    code = fakes.topology(tmp_path, {**node, "simd_count": 152, "simd_per_cu": 4}) + PROPS
    source = "the kernel driver" if driver else "the HIP runtime"
    assert outcome(rocm, fakes.HIP_PYTHON_6_4 * driver + code, CUS=38, XCCS=1) == [
        "MI300X|38|1|CPX",
        f"chip|MI300X, by id 0x74a1 of {source}|XCDs|1, by {source}",
    ]


def test_plans_are_of_the_partition_that_is_bound(rocm):
    code = """
import amdattn
props = amdattn.device_props()
plan = amdattn.plan_attention(1, 4096, 4096, 8, 8, 128, device=props)
print(dict(plan.reasons)["rounds"])
print(amdattn.plan_gemm(8, 8192, 8192, device=props).as_dict()["time"])
"""
    rounds, time = outcome(rocm, code, CUS=38, XCCS=1)
    assert "on 38 slots (1 x 38 CUs)" in rounds
    # 134 MB at an eighth of 4200 bytes/ns.
    assert float(re.search(r"less than ([\d.]+) us", time)[1]) == pytest.approx(256, rel=0.02)


# -- launches --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "form"),
    [({}, "extra"), ({"NO_EXTRA": 1}, "kernelParams"), ({"EXTRA_ERROR": 1}, "kernelParams")],
)
def test_the_form_of_launches_is_decided_once(rocm, options, form):
    code = LAUNCH + "for row in amdattn.kernels()[:3]: device.function(row)\n"
    status, lines, errors = play(rocm, code, LOG=1, **options)
    assert (status, lines) == (0, [form]), errors
    assert errors.count("hipModuleLaunchKernel") == 1 + bool(options)


def test_launches_are_in_the_form_that_works(rocm):
    code = """
import amdattn, ml_dtypes, numpy
x = numpy.ones((1, 256, 1, 128), ml_dtypes.bfloat16)
amdattn.flash_attn_func(x, x, x)
y = numpy.ones((16, 512), ml_dtypes.bfloat16)
amdattn.gemm_nt(y, y)
amdattn.gemm_nt(y, y, split_k=2)
"""
    _, _, errors = play(rocm, code, LOG=1, NO_EXTRA=1)
    made = re.findall(r"hipModuleLaunchKernel\((\w+)\)", errors)
    assert made == ["extra", "params", "params", "params", "params"], errors


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"NO_EXTRA": 1, "NO_PARAMS": 1},
            "extra: the kernel wrote nothing; kernelParams: hipModuleLaunchKernel failed: "
            "hipErrorInvalidValue",
        ),
        (
            {"READS_LATE": 1, "NO_PARAMS": 801},
            "extra: arguments are read after the call has returned; kernelParams: ",
        ),
    ],
)
def test_a_runtime_that_cannot_launch_is_refused(rocm, options, text):
    errors = failure(rocm, LAUNCH, **options)
    assert "BindingError: kernels cannot be launched through" in errors and text in errors


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"MAX_LANES": 64}, "takes at most 64"),
        (
            {"MAX_LANES": 1024, "SHARED": 4096},
            "0 bytes of LDS are recorded, the loaded kernel has 4096",
        ),
    ],
)
def test_limits_of_loaded_kernels_are_warned_of_once(rocm, options, text):
    """A runtime may round, or answer another question: the launch decides."""
    code = f"""
{LAUNCH}
for other in [row for row in amdattn.kernels() if row.arch == "gfx942" and row.op == "gemm_nt"]:
    device.function(other)
"""
    status, lines, errors = play(rocm, code, **options)
    assert (status, lines) == (0, ["extra"]), errors
    assert errors.count("RuntimeWarning") == 1 and text in errors
    assert "a launch fails if it cannot be" in errors


@pytest.mark.parametrize("bytes_of_lds", [32768, 65536 - 1, 65536, 163840])
def test_lds_is_that_of_the_architecture(rocm, bytes_of_lds):
    """What a runtime says of it can be a limit for others: kernels are planned and loaded."""
    code = """
import amdattn
from amdattn.device import runtime
kernels = (row for row in amdattn.kernels() if row.arch == "gfx942")
runtime.get().function(max(kernels, key=lambda row: row.lds_bytes))
print(runtime.get().props.lds_bytes, dict(runtime.get().sources).get("LDS"))
"""
    status, lines, errors = play(rocm, code, LDS=bytes_of_lds)
    told = "None"
    if bytes_of_lds != 65536:
        told = f"65536 bytes, of gfx942; the HIP runtime says {bytes_of_lds}"
    assert (status, lines) == (0, [f"65536 {told}"]), errors
    assert errors.count("RuntimeWarning") == (bytes_of_lds < 65536)


@pytest.mark.parametrize("error", [200, 209])
def test_a_failed_load_is_not_unloaded(rocm, error):
    """The handle that comes with an error is garbage; the fake aborts if it is unloaded."""
    errors = failure(rocm, LAUNCH, LOAD_ERROR=error)
    assert "hipModuleLoadData failed" in errors


def test_a_runtime_that_wants_to_be_initialised_first(rocm):
    """ROCm 7.2.3 answers 303 to whoever has called nothing but dlopen."""
    status, lines, errors = run(PROPS, ROCM_PATH=rocm, FAKE_HIP_NEEDS_INIT=1)
    assert status == 0 and lines[0] == "MI300X|304|8|SPX", errors


# -- two runtimes, several devices -----------------------------------------------------------------


@pytest.fixture(scope="module")
def renamed(fake_rocm, tmp_path_factory):
    """A runtime as wheels bring it, in a folder with a space in its name."""
    folder = tmp_path_factory.mktemp("a wheel")
    library = folder / "libamdhip64-1f2e3d.so.7"
    source = fake_rocm(NAME='"the one of the wheel"') / "lib" / "libamdhip64.so"
    library.write_bytes(source.read_bytes())
    return library


INFO = "from amdattn import cli; cli.app(['info', '--json'], standalone_mode=False)\n"


def alone(code: str, **environment: object) -> list[str]:
    """Lines of a process into which only the code itself loads libraries."""
    status, lines, errors = run(code, **environment)
    assert status == 0, errors
    return lines


def test_the_runtime_of_a_framework_is_bound_and_named(rocm, renamed):
    code = f"import ctypes; ctypes.CDLL({str(renamed)!r})\n" + INFO
    text = "\n".join(alone(code, ROCM_PATH=rocm))
    assert f'"library": "{renamed}"' in text and "the one of the wheel" in text
    assert "which this process had loaded" in text
    assert "two HIP runtimes" not in text


def test_a_runtime_that_comes_later_is_named(rocm, renamed):
    """In `info`, and in every error: 709 is what streams of the other one end in."""
    code = (
        "from amdattn.device import runtime; device = runtime.get()\n"
        f"import ctypes; ctypes.CDLL({str(renamed)!r})\n"
        + INFO
        + "device.check('hipStreamGetDevice', device.hip.hipStreamGetDevice(0x1234))\n"
    )
    status, lines, errors = run(code, ROCM_PATH=rocm)
    warning = f"This process also has {renamed}, beside {rocm}/lib/libamdhip64.so"
    assert status != 0 and warning in "\n".join(lines) and warning in errors
    assert "hipErrorContextIsDestroyed (709)" in errors


def test_of_two_runtimes_the_first_is_bound_or_the_one_that_is_named(rocm, renamed, fake_rocm):
    other = fake_rocm(NAME='"another one"') / "lib" / "libamdhip64.so"
    code = f"import ctypes; ctypes.CDLL({str(renamed)!r}); ctypes.CDLL({str(other)!r})\n"
    code += "from amdattn.device import runtime; print(runtime.get().choice.library)\n"
    assert alone(code, ROCM_PATH=rocm) == [str(renamed)]
    assert alone(code, ROCM_PATH=rocm, AMDATTN_HIP_LIBRARY=other) == [str(other)]


def test_a_library_that_is_named_is_never_replaced(rocm, tmp_path):
    code = "from amdattn.device import runtime; runtime.get()"
    for named, why in ((tmp_path / "none.so", "does not exist"), (SOURCE, "cannot be loaded")):
        status, _, errors = run(code, ROCM_PATH=rocm, AMDATTN_HIP_LIBRARY=named)
        text = f"BindingError: AMDATTN_HIP_LIBRARY='{named}': no GPU can be used: {named}: {why}"
        assert status != 0 and text in errors


def test_a_link_to_the_loaded_runtime_is_that_runtime(rocm, renamed, tmp_path):
    """One file is one runtime, by whatever name it was loaded."""
    link = tmp_path / "libamdhip64.so"
    link.symlink_to(renamed)
    code = f"import ctypes; ctypes.CDLL({str(link)!r})\n"
    code += "from amdattn.device import binding, runtime\n"
    code += "print(runtime.get().choice.library, binding.other_runtimes(str(" + repr(str(link))
    code += ")) or 'alone', sep='|')\n"
    assert alone(code, ROCM_PATH=rocm) == [f"{renamed}|alone"]


DEVICES = """
import threading
from amdattn.device import runtime
from amdattn.device.runtime.hip_python import import_hip_python
hip = import_hip_python().hip
fake.hipSetDevice(1)
device = runtime.get()
assert device.ordinal == 1
hip.hipSetDevice(0)
theirs = int(hip.hipStreamCreateWithFlags(1)[1])
hip.hipSetDevice(1)
ours = int(hip.hipStreamCreateWithFlags(1)[1])
hip.hipSetDevice(0)
"""


def test_a_stream_of_another_device_is_refused_by_name(rocm):
    code = """
import amdattn
x = amdattn.empty((1, 64, 1, 128), device=1)
out = amdattn.flash_attn_func(x, x, x, stream=ours)
weights = amdattn.empty((16, 512), device=1)
amdattn.gemm_nt(weights, weights, stream=ours)
for call in (
    lambda: amdattn.flash_attn_func(x, x, x, stream=theirs),
    lambda: amdattn.flash_attn_func(x, x, x, out=out, stream=theirs),
    lambda: amdattn.gemm_nt(weights, weights, stream=theirs),
    lambda: device.upload(x.address, x.address, 1, theirs),
    lambda: device.synchronize(theirs),
    lambda: device.record_event(theirs),
):
    hip.hipSetDevice(0)
    try:
        call()
    except ValueError as error:
        print(error)
"""
    lines = outcome(rocm, DEVICES + code, DEVICES=2)
    assert len(lines) == 6
    for line in lines:
        assert re.fullmatch(
            r"stream=0x[0-9a-f]+ is of device 0, not of device 1 \(AMD Instinct MI300X\)",
            line,
        )


def test_a_stream_handle_of_no_device(rocm):
    errors = failure(rocm, DEVICES + "device.synchronize(0x1230)", DEVICES=2)
    assert "hipStreamGetDevice failed: hipErrorContextIsDestroyed (709)" in errors


def calls_of(errors: str, call: str = r"\w+") -> set[str]:
    """Devices that were current when calls were made, of a log."""
    assert "Traceback" not in errors, errors
    return set(re.findall(rf"fake: {call}\b.* on device (\d)", errors))


def test_arrays_say_the_device_of_every_call(rocm):
    """Threads begin on device 0, and stay there; so do waits for the default stream there."""
    code = """
def work():
    x = amdattn.asarray(numpy.ones((1, 64, 1, 128), ml_dtypes.bfloat16), device="rocm:1")
    made = [amdattn.flash_attn_func(x, x, x)]
    amdattn.flash_attn_func(x, x, x, out=made[0])
    w = amdattn.empty((512, 4096), device=1)
    made += [amdattn.gemm_nt(w[:4], w), made[0].transpose(), amdattn.from_dlpack(made[0])]
    made += [pickle.loads(pickle.dumps(x))]
    device.wait_for(ours, 0)
    device.flush_caches()
    made[0].numpy()
    print(*[one.device for one in made], hip.hipGetDevice()[1])
import amdattn, ml_dtypes, numpy, pickle
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
    status, lines, errors = play(rocm, DEVICES + code, DEVICES=2, LOG=1)
    assert (status, lines) == (0, ["rocm:1 rocm:1 rocm:1 rocm:1 rocm:0 0"]), errors
    for call in ("hipModuleLoadData", "hipModuleLaunchKernel", "hipStreamSynchronize"):
        assert "1" in calls_of(errors, call), errors
    assert calls_of(errors, "hipModuleLaunchKernel") == calls_of(errors, "hipEventRecord") == {"1"}
    assert set(re.findall(r"hipModuleLoadData (\d)", errors)) == {"2"}  # of device 1


def test_devices_have_modules_memory_and_counters_of_their_own(rocm):
    code = """
import amdattn, ml_dtypes, numpy
from amdattn.arrays import memory
from amdattn.op import zero_at_rest
for ordinal in (0, 1, 0, 1):
    hip.hipSetDevice(ordinal)
    x = amdattn.asarray(numpy.ones((1, 64, 1, 128), ml_dtypes.bfloat16))
    w = amdattn.empty((512, 8192))
    outs = amdattn.flash_attn_func(x, x, x), amdattn.gemm_nt(w[:4], w)
    host = amdattn.flash_attn_func(*[numpy.ones((1, 9, 1, 128), ml_dtypes.bfloat16)] * 3)
    assert {one.device for one in (x, w, *outs)} == {f"rocm:{ordinal}"}
    assert outs[0].__dlpack_device__() == (10, ordinal) and hip.hipGetDevice()[1] == ordinal
devices = [runtime.get(i) for i in (0, 1)]
counters = [zero_at_rest.of_stream(device, 0, "counters", 32) for device in devices]
print([device.ordinal_of(address) for device, address in zip(devices, counters)])
print(memory.pool(devices[0]) is memory.pool(devices[1]), runtime.get() is devices[1])
print([amdattn.empty(3, device=name).device for name in (0, "rocm", "rocm:1", numpy.int64(1))])
"""
    status, lines, errors = play(rocm, DEVICES + code, DEVICES=2, LOG=1)
    assert status == 0, errors
    assert lines == ["[0, 1]", "False True", "['rocm:0', 'rocm:0', 'rocm:1', 'rocm:1']"]
    loads = re.findall(r"hipModuleLoadData (\d) on device (\d)", errors)
    once = len(loads) // 2  # no kernel is loaded on a device again
    assert sorted(loads) == [("1", "0")] * once + [("2", "1")] * once


def test_operands_on_several_devices_are_named(rocm):
    code = """
import amdattn
x, y = (amdattn.empty((1, 64, 1, 128), device=i) for i in (0, 1))
v, w = (amdattn.empty((8, 512), device=i) for i in (0, 1))
both = amdattn.plan_gemm(8, 8, 512, device=amdattn.device_props(), split_k=4)
for call in (
    lambda: amdattn.flash_attn_func(x, y, x),
    lambda: amdattn.flash_attn_func(x, x, x, out=y),
    lambda: amdattn.gemm_nt(w, v),
    lambda: both.run(w, w, workspace=both.new_workspace(device=0)),
    lambda: amdattn.asarray(x, device=1),
    lambda: amdattn.empty(3, device=2),
    lambda: amdattn.empty(3, device="cuda:0"),
    lambda: amdattn.empty(3, device=1.5),
):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, error)
"""
    place = "TypeError all operands must be in the same place, not"
    assert outcome(rocm, DEVICES + code, DEVICES=2) == [
        f"{place} q on device 0, k on device 1, v on device 0",
        f"{place} q on device 0, k on device 0, v on device 0, out on device 1",
        f"{place} a on device 1, b on device 0",
        f"{place} a on device 1, b on device 1, workspace on device 0",
        "ValueError x is on device 0, not on device=1",
        "ValueError device 2 must be in 0..1, those the process sees",
        "ValueError device='cuda:0' must be a number or a name like \"rocm:0\"",
        "TypeError device=1.5 must be an int, not float",
    ]


def test_failures_are_of_a_device(rocm):
    """Counters of the device that failed are made anew, those of the other are not."""
    code = """
from amdattn.op import zero_at_rest
devices = [runtime.get(i) for i in (0, 1)]
before = [zero_at_rest.of_stream(device, 0, "counters", 32) for device in devices]
devices[1].failures += 1
after = [zero_at_rest.of_stream(device, 0, "counters", 32) for device in devices]
print([one == other for one, other in zip(before, after)])
"""
    assert outcome(rocm, DEVICES + code, DEVICES=2) == ["[True, False]"]


# -- what is supported -----------------------------------------------------------------------------


def test_readme_and_dependencies_agree():
    needed = re.search(r'"hip-python>=([\d.]+)"', (ROOT / "pyproject.toml").read_text())[1]
    said = re.search(
        r"hip-python ([\d.]+), ([\d.]+) and ([\d.]+)", (ROOT / "README.md").read_text()
    )
    assert said.groups() == (needed, "7.2", "10")


@pytest.mark.slow
@pytest.mark.parametrize("version", ["6.4.4.555.40", "7.2.2.562.43"])
def test_older_bindings_themselves(rocm, tmp_path, version):
    """The released wheels, if pip can get them, with the fake and with the virtual device."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path)]
    if subprocess.run([*pip, f"hip-python=={version}"], check=False).returncode:
        pytest.skip(f"hip-python {version} cannot be installed here")
    older = "import sys; sys.modules['rocm'] = None\n"
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    for form, options in (("extra", {}), ("kernelParams", {"FAKE_HIP_NO_EXTRA": 1})):
        code = older + LAUNCH + "print(device.props.num_xcds, device.hip_python_version())"
        status, lines, errors = run(code, ROCM_PATH=rocm, PYTHONPATH=path, **options)
        assert status == 0, errors
        assert lines == [form, f"8 {version}"]
    code = (
        older
        + """
import amdattn, ml_dtypes, numpy
x = numpy.random.default_rng(0).standard_normal((1, 100, 2, 128)).astype(ml_dtypes.bfloat16)
print(abs(amdattn.flash_attn_func(x, x, x).astype("f4") - x.astype("f4")).mean() < 2)
"""
    )
    status, lines, errors = run(code, AMDATTN_DEVICE="virtual:gfx942", PYTHONPATH=path)
    assert (status, lines) == (0, ["True"]), errors


def test_the_page_names_every_product_and_what_it_counts():
    """docs/real-gpu.md, of every architecture there are kernels for."""
    page = (ROOT / "docs" / "real-gpu.md").read_text(encoding="utf-8")
    for arch in ARCHITECTURES:
        names = ", ".join(chip.name for chip in CHIPS if chip.arch == arch)
        (line,) = re.findall(rf"^\| {arch} \| (.*?) \|", page, re.M)
        assert set(line.split(", ")) == set(names.split(", "))
    large = [row for row in amdattn.kernels() if row.lds_bytes > 64 * 1024]
    assert f"{len(large)} kernels use more than 64" in page
    assert {(row.arch, row.op) for row in large} == {
        ("gfx950", op) for op in ("attn_fwd", "attn_bwd", "gemm_nt")
    }
    ops = {
        row.op
        for row in amdattn.kernels()
        if kernarg_preload.length(row.read_code_object(), row.symbol)
    }
    assert ops == {
        "rms_norm",
        "norm",
        "attn_decode",
        "gemm_nt",
        "merge_state",
        "quantize_blocks",
        "quantize_fp8",
        "gated_activation",
        "rotary",
        "embedding",
    }
