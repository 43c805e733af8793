"""The library at the ends of a process: exit with work in flight, fork, threads, time of a call."""

from __future__ import annotations

from typing import Any

from tests.support.hip_process import run


def test_exit_with_work_in_flight(hip: Any) -> None:
    """Even with a kernel that would run for minutes, and without a word on stderr."""
    result = run(
        hip,
        """
        stream = hip.hipStreamCreate()
        _, spin = hip.kernel("spin")
        for s in (None, stream, 2):
            for _ in range(50):
                hip.launch(spin, value=200_000_000, stream=s)
        print("launched")
        """,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "launched\n", "")


def test_exit_with_handles_open(hip: Any) -> None:
    result = run(
        hip,
        """
        hip.hipStreamCreate(); hip.hipEventCreate(); hip.hipMalloc(1 << 20)
        _, nothing = hip.kernel("nothing")
        hip.launch(nothing)
        """,
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_child_of_fork_is_refused(hip: Any) -> None:
    result = run(
        hip,
        """
        _, nothing = hip.kernel("nothing")
        hip.launch(nothing)
        child = os.fork()
        if child == 0:
            ok = hip.hip.hipMalloc(64)[0].name == "hipErrorNotInitialized"
            sys.exit(0 if ok else 1)
        assert os.waitpid(child, 0)[1] == 0
        hip.hipDeviceSynchronize()
        """,
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_fork_before_first_use(hip: Any) -> None:
    result = run(
        hip,
        """
        child = os.fork()
        _, nothing = hip.kernel("nothing")
        hip.launch(nothing)
        hip.hipDeviceSynchronize()
        if child != 0:
            assert os.waitpid(child, 0)[1] == 0
        """,
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_every_call_survives_zeros(hip: Any) -> None:
    """Null pointers, null handles and zero sizes are refused or do nothing."""
    result = run(
        hip,
        """
        directory = sys.path[0] + "/virtual_device/hip/symbols.txt"
        zeros = [ctypes.c_void_p(0)] * 24  # registers, and structures passed on the stack
        count = 0
        for name in open(directory).read().split():
            # The first returns a structure where its first argument points, the second begins a
            # capture, which forbids other calls.
            if name not in ("hipCreateChannelDesc", "hipStreamBeginCapture_spt"):
                getattr(hip.lib, name)(*zeros)
                count += 1
        hip.hipDeviceSynchronize()
        _, nothing = hip.kernel("nothing")
        hip.launch(nothing)
        hip.hipDeviceSynchronize()
        print(count)
        """,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "533\n", "")


def test_launch_overhead(hip: Any) -> None:
    """While the stream is busy, a launch takes the calling thread less than 20 empty calls.

    It takes about 6, whatever else the machine does. docs/studies/launch-overhead.md has times.
    """
    result = run(
        hip,
        """
        extra = ctypes.create_string_buffer(16)
        size = ctypes.c_size_t(16)
        config = (ctypes.c_void_p * 5)(1, ctypes.addressof(extra), 2, ctypes.addressof(size), 3)
        launch = hip.lib.hipModuleLaunchKernel
        _, nothing = hip.kernel("nothing")
        _, spin = hip.kernel("spin")
        handle = ctypes.c_void_p(int(nothing))
        noop = hip.device.amdattn_vdev_abi
        def cost(call, n=400):
            began = time.thread_time_ns()
            for _ in range(n):
                call(handle, 1, 1, 1, 64, 1, 1, 0, None, None, config)
            return (time.thread_time_ns() - began) / n / 1e3
        launches, empty = [], []
        for _ in range(5):
            hip.launch(spin, value=300_000)
            launches.append(cost(launch))
            empty.append(cost(noop))
            hip.hipDeviceSynchronize()
        print(min(launches) / min(empty))
        """,
    )
    assert result.returncode == 0, result.stderr
    print(f"a launch takes as long as {float(result.stdout):.1f} empty calls")
    assert float(result.stdout) < 20
