"""Calls as careless or hostile programs make them: refused by name, nothing breaks behind them."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn import scalars
from amdattn.device import runtime
from amdattn.output_files import check_outputs, replacing
from tests.support.cli_command import Command

X = np.ones((1, 8, 2, 64), np.float16)
A = np.ones((4, 128), np.float16)


@pytest.mark.parametrize("stream", [2**64, 2**70, -1, -(2**63)])
def test_streams_that_are_no_handles(stream: int) -> None:
    x, a = amdattn.asarray(X), amdattn.asarray(A)
    calls = (
        lambda: amdattn.flash_attn_func(x, x, x, stream=stream),
        lambda: amdattn.gemm_nt(a, a, stream=stream),
        lambda: x.record_stream(stream),
        lambda: setattr(x, "stream", stream),
        lambda: stream == -1 or x.__dlpack__(stream=stream),
    )
    for call in calls[: 4 if stream == -1 else 5]:
        with pytest.raises(ValueError, match=r"^stream(=-?(0x)?[0-9a-f]+)? "):
            call()
    assert not runtime.get().any_capturing()
    assert (amdattn.flash_attn_func(x, x, x).numpy() == 1).all()  # nothing stays behind


def test_results_of_a_captured_product_must_be_given(hip_stream: Any) -> None:
    from hip import hip

    a = amdattn.asarray(A)
    stream = runtime.stream_handle(hip_stream)
    out = amdattn.gemm_nt(a, a, stream=stream, split_k=1)  # loads the kernel
    amdattn.synchronize()
    mode = hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
    assert not hip.hipStreamBeginCapture(hip_stream, mode)[0]
    try:
        with pytest.raises(ValueError, match="pass out="):
            amdattn.gemm_nt(a, a, stream=stream, split_k=1)
        amdattn.gemm_nt(a, a, out=out, stream=stream, split_k=1)
    finally:
        status, graph = hip.hipStreamEndCapture(hip_stream)
    assert not status and not hip.hipGraphDestroy(graph)[0]


_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


class Capsule:
    """A producer of a capsule that points wherever it is told to."""

    def __init__(self, address: int, name: bytes) -> None:
        self._address, self._name = address, name

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **_: object) -> object:
        return _new(self._address, self._name, None)


@pytest.mark.parametrize("name", [b"dltensor", b"dltensor_versioned"])
@pytest.mark.parametrize("before", [None, 1, 8, 24, 63])
def test_capsules_of_memory_that_cannot_be_read(name: bytes, before: int | None) -> None:
    page = mmap.PAGESIZE
    pages = mmap.mmap(-1, 2 * page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    libc = ctypes.CDLL(None)
    assert libc.mprotect(ctypes.c_void_p(base + page), page, 0) == 0
    try:
        with pytest.raises(BufferError, match="cannot be taken"):
            amdattn.asarray(Capsule(1 if before is None else base + page - before, name))
    finally:
        assert libc.mprotect(ctypes.c_void_p(base + page), page, 3) == 0


def test_a_workspace_on_the_host() -> None:
    plan = amdattn.plan_attention(1, 8, 8, 2, 2, 64, dtype="float16", device="MI300X")
    with pytest.raises(TypeError, match="workspace must be in device memory"):
        plan.run(X, X, X, workspace=np.zeros(10, np.uint8))


class Array:
    """An object that numpy reads by `__array__`."""

    def __init__(self, give: Any) -> None:
        self._give = give

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._give()


class Interface:
    def __init__(self, **fields: Any) -> None:
        self.__array_interface__ = fields


def test_what_numpy_reads_is_looked_at() -> None:
    def fails() -> None:
        raise RuntimeError("zz")

    masked = Array(lambda: np.ma.array(X, mask=True))
    with pytest.raises(TypeError, match=r"k is a masked array"):
        amdattn.flash_attn_func(X, masked, X)
    with pytest.raises(ValueError, match=r"v .*cannot be taken: zz"):
        amdattn.flash_attn_func(X, X, Array(fails))
    with pytest.raises((TypeError, ValueError), match=r"q .*cannot be taken"):
        amdattn.flash_attn_func(Array(lambda: 5), X, X)
    with pytest.raises((TypeError, ValueError), match=r"q .*cannot be taken"):
        amdattn.flash_attn_func(Interface(shape=X.shape), X, X)
    data = (X.ctypes.data, False)
    for strides in ((0, 2**40, 0, 2), (0, -(2**40), 0, 2), (2**62, 0, 0, 2)):
        far = Interface(shape=X.shape, typestr="<f2", data=data, strides=strides, version=3)
        far.__array_interface__["shape"] = (2, *X.shape[1:])
        with pytest.raises(ValueError, match=r"q.__array_interface__ cannot be taken: .* be read"):
            amdattn.flash_attn_func(far, X, X)
    right = Interface(shape=X.shape, typestr="<f2", data=data, version=3)
    assert (amdattn.flash_attn_func(right, X, X) == 1).all()


def test_element_types_of_the_other_byte_order() -> None:
    other = np.dtype(np.float32).newbyteorder()
    for call in (
        lambda: amdattn.empty(3, other),
        lambda: amdattn.asarray(np.ones(3, np.float32), other),
        lambda: amdattn.gemm_nt(A, A, out_dtype=other),
    ):
        with pytest.raises((ValueError, TypeError), match=">f4"):
            call()


@pytest.mark.parametrize("rows", [(0, 8), (8, 0)])
@pytest.mark.parametrize(
    "sinks", [np.ones(99, np.float32), np.ones(2), np.ones((2, 1), np.float32)]
)
def test_sinks_of_calls_without_work(rows: tuple[int, int], sinks: Any) -> None:
    q, k = X[:, : rows[0]], X[:, : rows[1]]
    with pytest.raises((ValueError, TypeError), match="sinks"):
        amdattn.flash_attn_func(q, k, k, sinks=sinks)
    assert amdattn.flash_attn_func(q, k, k, sinks=np.ones(2, np.float32)).shape == q.shape


def test_truth_iteration_and_contents_of_an_array() -> None:
    one, none, many = (amdattn.asarray(np.full(n, 1.5, np.float32)) for n in (1, 0, 5))
    assert one and not amdattn.asarray(np.zeros((1, 1), np.float32))
    for array in (none, many):
        with pytest.raises(ValueError, match=r"truth of a DeviceArray of shape \(\d,\)"):
            bool(array)
    assert [x.item() for x in many] == [1.5] * 5
    with pytest.raises(TypeError, match="0-dimensional"):
        iter(amdattn.asarray(np.float32(1)))
    with pytest.raises(TypeError, match="numpy"):
        assert 1.5 in many


HUGE = 10**5000  # Python refuses to print it


@pytest.mark.parametrize("option", ["softmax_scale", "softcap", "num_splits", "dropout_p"])
@pytest.mark.parametrize("sign", [1, -1])
def test_enormous_numbers(option: str, sign: int) -> None:
    with pytest.raises(ValueError, match=option):
        amdattn.flash_attn_func(X, X, X, **{option: sign * HUGE})
    with pytest.raises(ValueError, match="seqlen_q"):
        amdattn.plan_attention(1, sign * HUGE, 8, 2, 2, 64, device="MI300X")
    with pytest.raises(ValueError, match=r"^m"):
        amdattn.plan_gemm(sign * HUGE, 8, 8, device="MI300X")
    with pytest.raises(ValueError, match="total_q"):
        amdattn.plan_attention(1, 8, 8, 2, 2, 64, total_q=HUGE, total_kv=3, device="MI300X")
    with pytest.raises(ValueError, match="cu_seqlens_q"):
        amdattn.flash_attn_varlen_func(*(X[0],) * 3, [0, HUGE], [0, 8], 8, 8)
    with pytest.raises(ValueError, match="number is an integer of"):
        scalars.integer("number", sign * HUGE)


@pytest.mark.parametrize("shape", [2**64, (2**62, 4), (0, 2**62), HUGE], ids=range(4))
def test_enormous_shapes(shape: Any) -> None:
    with pytest.raises(ValueError, match="shape"):
        amdattn.empty(shape)


def test_an_empty_last_axis_is_told_as_it_is() -> None:
    with pytest.raises(ValueError, match=r"head_dim_v=0 \(an empty tensor\) must be in 1\.\."):
        amdattn.flash_attn_func(X, X, X[..., :0])


# -- Ctrl-C in a destructor ------------------------------------------------------------------------

DROPPED = """
    import os, subprocess, time, numpy as np, amdattn
    x = amdattn.asarray(np.ones((1, 2500, 24, 128), np.float16))
    # From outside: older bindings keep the lock of the interpreter while they wait.
    subprocess.Popen(["sh", "-c", f"sleep 1; kill -INT {os.getpid()}"])
    try:
        out = amdattn.flash_attn_func(x, x, x)
        del out  # while the kernel runs
        amdattn.synchronize()
        time.sleep(10)
    except KeyboardInterrupt:
        print("interrupted")
    small = np.ones((1, 8, 2, 64), np.float16)
    try:
        amdattn.synchronize()
    except amdattn.HipError:
        pass
    print((amdattn.flash_attn_func(small, small, small) == 1).all())
"""


def test_an_interrupt_is_not_lost_in_a_destructor() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DROPPED)],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "AMDATTN_DEVICE": "virtual:gfx942"},
    )  # fmt: skip
    assert (ran.returncode, ran.stdout.split()) == (0, ["interrupted", "True"]), ran.stderr
    assert "ignored" not in ran.stderr


def test_a_dropped_array_is_freed_at_once_if_nothing_runs() -> None:
    amdattn.synchronize()
    x = amdattn.asarray(X)
    address = x.address
    assert runtime.get().owns(address)
    del x
    assert not runtime.get().owns(address)


# -- the command -----------------------------------------------------------------------------------


def command(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "amdattn.cli", *arguments],
        text=True, timeout=120, check=False, stderr=subprocess.PIPE,
        env={**os.environ, "AMDATTN_DEVICE": "virtual:gfx942"}, **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    "arguments", [("--version",), ("info", "--json"), ("explain",), ("--help",)]
)
def test_a_closed_stdout_is_told(arguments: tuple[str, ...]) -> None:
    def close() -> None:
        os.close(1)

    ran = command(*arguments, preexec_fn=close)
    assert ran.returncode == 2 and ran.stderr == "Error: stdout is closed\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        ran = command("info", "--json", stdout=full)
    assert ran.returncode == 2 and ran.stderr == "Error: stdout: No space left on device\n"
    with pytest.raises(OSError) as error, replacing(Path("/dev/full")) as path:
        path.write_bytes(b"x")
    assert error.value.filename == "/dev/full"


def test_outputs_are_not_inputs(tmp_path: Path, amdattn_command: Command) -> None:
    source = tmp_path / "x.hip"
    source.write_text("__global__ void k() {}\n")
    alias = tmp_path / "y.hip"
    alias.symlink_to(source)
    for option in ("--assembly", "--output"):
        for name in (source, alias):
            code, _, errors = amdattn_command("build", source, option, name)
            assert code == 2 and f"{option}='{name}' is also the file of" in errors
    assert source.read_text() == "__global__ void k() {}\n"
    files = {name: tmp_path / f"{name}.npy" for name in "qkv"}
    for file in files.values():
        np.save(file, X)
    before = files["k"].read_bytes()
    given = [word for name, file in files.items() for word in (f"--{name}", str(file))]
    code, _, errors = amdattn_command("run", *given, "-o", files["k"])
    assert code == 2 and "is also the file of --k" in errors
    assert files["k"].read_bytes() == before
    with pytest.raises(ValueError, match="is also the file of --table"):
        check_outputs([("--out", source)], [("--table", alias)])


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("run --q nothere.npy --k nothere.npy --v nothere.npy -o out.npy", "--q=nothere.npy: No"),
        ("build {hip} --define ", "--define='' must be NAME or NAME=VALUE"),
        ("check {hip} --grid 4294967296", "each in 1..4294967295"),
        ("check {hip} --grid 99999999999999999999", "each in 1..4294967295"),
        ("check {hip} --dynamic-lds 99999999999", "--dynamic-lds"),
        ("tune gemm -m 1 -n 64 -k 64 --table {folder}/no/t.json", "there is no folder"),
    ],
)
def test_messages_name_the_option(
    line: str, text: str, tmp_path: Path, amdattn_command: Command
) -> None:
    source = tmp_path / "x.hip"
    source.write_text("__global__ void k() {}\n")
    words = [word.format(hip=source, folder=tmp_path) for word in line.split(" ")]
    code, _, errors = amdattn_command(*words, folder=tmp_path)
    assert code == 2 and text in errors, errors
    assert not (tmp_path / "no").exists()


def test_a_signal_that_python_lost_ends_the_command() -> None:
    from amdattn.cli import errors

    def lost(**_: object) -> int:
        report = "aborted: interrupted by SIGINT while the host waited"
        raise amdattn.HipError("hipFree", 719, "hipErrorLaunchFailure", "failed", report)

    assert errors.run(lost) == 130  # type: ignore[arg-type]


def seconds_of_cpu(pid: int) -> float:
    """What a process has used of them: how far it is, however busy the machine."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def test_an_interrupted_check_says_so() -> None:
    ran = subprocess.Popen(
        [sys.executable, "-m", "amdattn.cli", "check", "attention", "-sq", "20000"],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "AMDATTN_DEVICE": "virtual:gfx942"},
    )  # fmt: skip
    while ran.poll() is None and seconds_of_cpu(ran.pid) < 2:  # it takes minutes
        time.sleep(0.05)
    ran.send_signal(signal.SIGINT)
    out, errors = ran.communicate(timeout=60)
    assert (ran.returncode, out, errors) == (130, "", "Error: interrupted\n")
