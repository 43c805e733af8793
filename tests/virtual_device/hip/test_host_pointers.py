"""Pointers to host memory that is not there, not readable or not writable: errors, no crash.

Every case runs in a process of its own, which would die.
"""

from __future__ import annotations

from typing import Any

from tests.support.hip_process import run

# Three pages: the first can be written, the second only read, the third not at all.
PAGES = """
import mmap
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.mprotect.argtypes = libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
PAGE = 4096
def pages(count=3):
    return libc.mmap(None, count * PAGE, 3, 0x22, -1, 0)
base = pages()
writable, readable, nothing = base, base + PAGE, base + 2 * PAGE
libc.mprotect(readable, PAGE, 1)
libc.mprotect(nothing, PAGE, 0)
P = ctypes.c_void_p
def still_works():
    out = hip.hipMalloc(256)
    _, fill = hip.kernel("fill")
    hip.launch(fill, out, 7)
    hip.hipDeviceSynchronize()
"""


def check(hip: Any, body: str) -> None:
    result = run(hip, PAGES + body + "\nstill_works()\nprint('alive')\n")
    assert not result.stderr, result.stderr[-1500:]
    assert (result.returncode, result.stdout) == (0, "alive\n"), result.returncode


# Of every call but these: the first returns a structure where its first argument points, the second
# begins a capture of the null stream, callbacks are called.
CALLS = """
skip = {"hipCreateChannelDesc", "hipStreamBeginCapture_spt", "hipStreamAddCallback",
        "hipStreamAddCallback_spt", "hipLaunchHostFunc", "hipLaunchHostFunc_spt"}
names = open(sys.path[0] + "/virtual_device/hip/symbols.txt").read().split()
calls = {name: getattr(hip.lib, name) for name in names if name not in skip}
"""


def test_every_call_survives_bad_pointers(hip: Any) -> None:
    """Every argument is the address of memory that cannot be written; handles are bad or null."""
    check(
        hip,
        CALLS
        + """
for bad in (nothing, readable, 16, nothing - 4, 1 << 62, -1):
    for call in calls.values():
        call(*[P(bad)] * 24)
        call(P(0), *[P(bad)] * 23)
""",
    )


def test_calls_survive_one_bad_pointer_among_good_ones(hip: Any) -> None:
    """What comes before it is in order, so that the call gets as far."""
    check(
        hip,
        CALLS
        + """
module, function = hip.kernel("nothing")
device = int(hip.hipMalloc(4096))
for good in range(6):
    for name, call in calls.items():
        if any(word in name for word in ("Destroy", "Unload", "Free")): continue
        for value in (writable, 0, int(function), int(module), device):
            call(*[P(value)] * good, *[P(nothing)] * (24 - good))
hip.lib.hipGetLastError()
""",
    )


def test_registration(hip: Any) -> None:
    check(
        hip,
        """
for bad, size in ((nothing, 1), (readable, 1), (base, 2 * PAGE), (base, 3 * PAGE), (16, 8),
                  (base, 1 << 50)):
    assert hip.lib.hipHostRegister(P(bad), ctypes.c_size_t(size), 0) == 1, hex(bad)
assert hip.lib.hipHostRegister(P(writable), ctypes.c_size_t(PAGE), 0) == 0
""",
    )


def test_registered_memory_that_goes_away(hip: Any) -> None:
    check(
        hip,
        """
_, fill = hip.kernel("fill")
for pages_kept in (1, 3000):
    for lose in (lambda at: libc.munmap(at, PAGE, 0), lambda at: libc.mprotect(at, PAGE, 1)):
        own = pages(pages_kept)
        assert hip.lib.hipHostRegister(P(own), ctypes.c_size_t(pages_kept * PAGE), 0) == 0
        hip.launch(fill, own, 3)
        hip.hipDeviceSynchronize()
        lose(own + (pages_kept - 1) * PAGE)
        hip.launch(fill, own, 3)
        assert hip.lib.hipDeviceSynchronize() == 700  # hipErrorIllegalAddress
        assert hip.says("registered host memory")
        dst = int(hip.hipMalloc(pages_kept * PAGE))
        assert hip.lib.hipMemcpy(P(own), P(dst), ctypes.c_size_t(pages_kept * PAGE), 4) != 0
        assert hip.lib.hipDeviceSynchronize() == 700
        hip.lib.hipGetLastError()
        assert hip.lib.hipHostUnregister(P(own)) == 0
""",
    )


def test_transfers(hip: Any) -> None:
    check(
        hip,
        """
size = ctypes.c_size_t
device = P(int(hip.hipMalloc(3 * PAGE)))
copy, HTOD, DTOH = hip.lib.hipMemcpy, 1, 2
for src, n in ((nothing, 1), (base, 3 * PAGE), (readable, PAGE + 1), (16, 1), (nothing - 8, 9)):
    assert copy(device, P(src), size(n), HTOD) != 0
for dst, n in ((nothing, 1), (readable, 1), (base, PAGE + 1), (base, 3 * PAGE), (16, 1)):
    assert copy(P(dst), device, size(n), DTOH) != 0
# A hole between two ends that are there.
hole = pages()
libc.munmap(hole + PAGE, PAGE, 0)
assert copy(device, P(hole), size(3 * PAGE), HTOD) != 0
assert copy(P(hole), device, size(3 * PAGE), DTOH) != 0
assert hip.lib.hipMemcpy2D(P(hole), size(PAGE), device, size(PAGE), size(8), size(3), DTOH) != 0
assert copy(device, P(base), size(2 * PAGE), HTOD) == 0
# Memory that has gone when a captured copy runs.
big = 3000 * PAGE
device = P(int(hip.hipMalloc(big)))
stream, graph, run = P(), P(), P()
assert hip.lib.hipStreamCreate(ctypes.byref(stream)) == 0
for kind in (HTOD, DTOH):
    own = pages(3000)
    args = (device, P(own)) if kind == HTOD else (P(own), device)
    assert hip.lib.hipStreamBeginCapture(stream, 0) == 0
    assert hip.lib.hipMemcpyAsync(*args, size(big), kind, stream) == 0
    assert hip.lib.hipStreamEndCapture(stream, ctypes.byref(graph)) == 0
    assert hip.lib.hipGraphInstantiate(ctypes.byref(run), graph, None, None, size(0)) == 0
    for error in (0, 700):
        assert hip.lib.hipGraphLaunch(run, stream) == 0
        assert hip.lib.hipStreamSynchronize(stream) == error
        libc.munmap(own + 2000 * PAGE, PAGE, 0)
hip.lib.hipGetLastError()
""",
    )


def test_arguments_of_a_launch(hip: Any) -> None:
    check(
        hip,
        """
_, nothing_to_do = hip.kernel("nothing")
launch = hip.lib.hipModuleLaunchKernel
def with_extra(*words):
    extra = (P * len(words))(*words)
    return launch(P(int(nothing_to_do)), 1, 1, 1, 64, 1, 1, 0, None, None, extra)
size = ctypes.c_size_t(16)
at = ctypes.addressof(size)
assert with_extra(1, writable, 2, at, 3) == 0
for words in ((1, nothing, 2, at, 3), (1, nothing - 8, 2, at, 3), (1, writable, 2, nothing, 3),
              (1, writable, 2, nothing - 4, 3), (1, 16, 2, at, 3)):
    assert with_extra(*words) == 1, words
for extra in (nothing, nothing - 8, nothing - 16, nothing - 32, 16):
    assert launch(P(int(nothing_to_do)), 1, 1, 1, 64, 1, 1, 0, None, None, P(extra)) == 1
for params in (nothing, nothing - 8, 16, (P * 2)(nothing, at), (P * 2)(at, nothing - 2)):
    params = P(params) if isinstance(params, int) else params
    assert launch(P(int(nothing_to_do)), 1, 1, 1, 64, 1, 1, 0, None, params, None) == 1
    assert hip.says("kernelParams")
""",
    )


def test_files_that_are_none(hip: Any, tmp_path: Any) -> None:
    check(
        hip,
        f"""
module = P()
for path in ({str(tmp_path)!r}, "/dev/zero", "/nonexistent", ""):
    assert hip.lib.hipModuleLoad(ctypes.byref(module), path.encode()) == 301, path
""",
    )


def test_a_worker_without_memory(hip: Any) -> None:
    """An allocation that fails in a worker is an error of the launch; the device goes on."""
    check(
        hip,
        """
import resource
hungry = hip.kernel("fill", private_segment_fixed_size=131056, max_flat_workgroup_size=1024)[1]
_, small = hip.kernel("fill")
out = int(hip.hipMalloc(4096))
hip.launch(small, out, 1)
hip.hipDeviceSynchronize()
now = int(open("/proc/self/statm").read().split()[0]) * 4096
_, hard = resource.getrlimit(resource.RLIMIT_AS)
for threads in (1, 2):
    assert hip.set_option("threads", threads)
    resource.setrlimit(resource.RLIMIT_AS, (now + (64 << 20), hard))
    hip.launch(hungry, out, 1, lanes=1024)
    assert hip.lib.hipDeviceSynchronize() == 701, hip.report  # hipErrorLaunchOutOfResources
    assert hip.says("no host memory")
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    hip.launch(small, out, 1)
    hip.hipDeviceSynchronize()
""",
    )
