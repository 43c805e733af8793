"""Ctrl-C while the host waits for a launch aborts it within a second, and the device goes on."""

from __future__ import annotations

from typing import Any

from tests.support.hip_process import run

# Sends SIGINT to the process while `wait` runs, which must then be over soon: by the time of two
# cores, which other load does not change as it does a clock. Kernels here run for minutes.
INTERRUPT = """
import signal, threading
def interrupted(wait):
    sent = []
    def send():
        sent.append(time.process_time())
        os.kill(os.getpid(), signal.SIGINT)
    threading.Timer(0.3, send).start()
    try:
        wait()
        time.sleep(60)  # an error of the call comes before the handler has run
    except KeyboardInterrupt:
        took = time.process_time() - sent[0]
        assert took < 2, took
    else:
        raise AssertionError("no KeyboardInterrupt")
def still_works(out):
    hip.lib.hipDeviceSynchronize()
    _, fill = hip.kernel("fill")
    hip.launch(fill, out, 7)
    hip.hipDeviceSynchronize()
    word = ctypes.c_uint32()
    assert hip.lib.hipMemcpy(ctypes.byref(word), ctypes.c_void_p(out), ctypes.c_size_t(4), 2) == 0
    assert word.value == 7
_, spin = hip.kernel("spin")
_, forever = hip.kernel("forever")
out = int(hip.hipMalloc(4096))
stream, event = hip.hipStreamCreate(), hip.hipEventCreate()
word = ctypes.create_string_buffer(4096)
lib, P = hip.lib, ctypes.c_void_p
WAITS = {
    "device": lambda: lib.hipDeviceSynchronize(),
    "stream": lambda: lib.hipStreamSynchronize(P(int(stream))),
    "event": lambda: lib.hipEventSynchronize(P(int(event))),
    "copy": lambda: lib.hipMemcpyDtoH(word, P(out), ctypes.c_size_t(4096)),
    "free": lambda: lib.hipFree(P(int(hip.hipMalloc(64)))),
    "destroy": lambda: lib.hipStreamDestroy(P(int(stream))),  # the last one
}
def launch_long():
    hip.launch(spin, value=2_000_000_000, stream=stream)
    hip.launch(spin, value=2_000_000_000, stream=stream)
    hip.hipEventRecord(event, stream)
"""


def check(hip: Any, body: str) -> None:
    result = run(hip, INTERRUPT + body + "\nprint('over')\n")
    assert (result.returncode, result.stdout, result.stderr) == (0, "over\n", "")


def test_waits(hip: Any) -> None:
    check(
        hip,
        """
for wait in WAITS.values():
    launch_long()
    interrupted(wait)
    assert "interrupted by SIGINT" in hip.report
    still_works(out)
""",
    )


def test_modes(hip: Any) -> None:
    check(
        hip,
        """
for option in ("check", "timing", "seed"):
    assert hip.set_option(option, 1)
    launch_long()
    interrupted(WAITS["device"])
    assert hip.set_option(option, 0)
    still_works(out)
""",
    )


def test_who_answers_otherwise(hip: Any) -> None:
    """A thread that waits goes on while the main one answers; no handler stays behind."""
    check(
        hip,
        """
before = signal.getsignal(signal.SIGINT)
done = []
def wait():
    hip.launch(spin, value=8_000_000, stream=stream)
    done.append(lib.hipStreamSynchronize(P(int(stream))))
thread = threading.Thread(target=wait)
thread.start()
interrupted(lambda: time.sleep(30))
thread.join()
assert done == [0]
# Ignored: the launch ends as if nothing had happened.
signal.signal(signal.SIGINT, signal.SIG_IGN)
threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
hip.launch(spin, value=8_000_000)
assert lib.hipDeviceSynchronize() == 0
signal.signal(signal.SIGINT, before)
launch_long()
interrupted(WAITS["device"])
still_works(out)
launch_long()
interrupted(WAITS["device"])  # once more
still_works(out)
""",
    )


def test_exit_ends_what_runs(hip: Any) -> None:
    result = run(hip, INTERRUPT + 'hip.launch(forever)\nprint("over")', timeout=30)
    assert (result.returncode, result.stdout, result.stderr) == (0, "over\n", "")


def test_an_operation_of_the_package(hip: Any) -> None:
    check(
        hip,
        """
os.environ["AMDATTN_DEVICE"] = "virtual:gfx942"
import ml_dtypes, numpy as np
import amdattn
def run(seqlen):
    x = np.ones((1, seqlen, 8, 128), ml_dtypes.bfloat16)
    return np.asarray(amdattn.flash_attn_func(x, x, x))
run(64)
interrupted(lambda: run(8192))
assert (run(256) == 1).all()
""",
    )
