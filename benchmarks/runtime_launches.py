"""Measures what a launch costs the host, with the virtual device's HIP runtime and with AMD's.

`python -m benchmarks.runtime_launches`. Both runtimes pass launches of a kernel that ends at once
to threads that execute them. A loop in C counts the calling thread's own time in the calls, without
the interpreter and the execution; round trips count wall-clock time. AMD's runtime is the one that
`python -m build_scripts.amd_runtime` installs; without it, only ours is measured.
"""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from amdattn.device import binding, virtual_library
from build_scripts import amd_runtime
from tests.support.hip_runtime import code_object
from tests.support.paths import ROOT

_SOURCE = Path(__file__).with_suffix(".c")
_NODES = (1, 10, 100)  # of graphs
_ROUNDS, _CALLS = 100, 50
_POINTER = ctypes.c_void_p


def main() -> None:
    """Command line: prints the table; with "--measure LIBRARY", one runtime's figures as JSON."""
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measured(sys.argv[2])))
        return
    rows: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        loops = f"{folder}/loops.so"
        compiler = [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-O2"]
        target = ["-target", "x86_64-linux-gnu.2.28"]
        subprocess.run([*compiler, *target, str(_SOURCE), "-o", loops], check=True)
        for name, (python, runtime) in _runtimes().items():
            environment = {"PYTHONPATH": str(ROOT), binding.RUNTIME_VARIABLE: runtime}
            done = subprocess.run(
                [python, "-m", "benchmarks.runtime_launches", "--measure", loops],
                env=os.environ | environment,
                check=True,
                capture_output=True,
                text=True,
            )
            rows[name] = json.loads(done.stdout)
    print(f"| host µs a call | {' | '.join(rows)} |\n|---|{'---:|' * len(rows)}")
    for what in next(iter(rows.values())):
        print(f"| {what} | {' | '.join(_shown(each[what]) for each in rows.values())} |")


def _shown(quartiles: list[float]) -> str:
    low, median, high = quartiles
    return f"{median:.2f} ({low:.2f} .. {high:.2f})"


def _runtimes() -> dict[str, tuple[str, str]]:
    """(interpreter, AMDATTN_RUNTIME) of what there is here."""
    found = {"the virtual device's own": (sys.executable, "amdattn")}
    target = amd_runtime.TARGET
    if amd_runtime.is_whole(target):
        found["AMD's"] = (str(amd_runtime.python_of(target)), f"amd:{target / 'lib'}")
    return found


class _Hip:
    """A runtime's functions, which raise unless they succeed."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library

    def made(self, name: str, *arguments: Any) -> int:
        """What a call writes to its first argument."""
        out = _POINTER()
        self.call(name, ctypes.byref(out), *arguments)
        return out.value or 0

    def call(self, name: str, *arguments: Any) -> None:
        wide = (_POINTER(each) if isinstance(each, int) else each for each in arguments)
        status = getattr(self.library, name)(*wide)
        if status != 0:
            raise RuntimeError(f"{name}: error {status}")


def _bound() -> _Hip:
    request = os.environ.get(binding.ENVIRONMENT_VARIABLE) or "virtual:gfx942"
    choice = binding.choose(request, "", os.environ.get(binding.RUNTIME_VARIABLE) or "amdattn")
    virtual_library.play(choice.device_library, choice.plays)
    if choice.device:
        virtual_library.load_hsa(choice.device)
    return _Hip(ctypes.CDLL(choice.library))


def measured(loops_path: str) -> dict[str, list[float]]:
    """Microseconds of a call, the quartiles of the rounds, by what is called."""
    hip, loops = _bound(), ctypes.CDLL(loops_path)
    stream = hip.made("hipStreamCreateWithFlags", 1)
    image = code_object("nothing")
    module = hip.made("hipModuleLoadData", ctypes.c_char_p(image))
    function = hip.made("hipModuleGetFunction", module, ctypes.c_char_p(b"k"))
    out = hip.made("hipMalloc", ctypes.c_size_t(4096))
    values = (ctypes.c_uint64(out), ctypes.c_uint32(7))
    params = (_POINTER * 2)(*(ctypes.addressof(value) for value in values))
    block = (ctypes.c_uint64 * 2)(out, 7)
    size = ctypes.c_size_t(16)
    extra = (_POINTER * 5)(1, ctypes.addressof(block), 2, ctypes.addressof(size), 3)
    launch, wait, replay = (
        ctypes.cast(getattr(hip.library, name), _POINTER)
        for name in ("hipModuleLaunchKernel", "hipStreamSynchronize", "hipGraphLaunch")
    )
    of_kernel = (_POINTER(function), _POINTER(stream))
    for name in ("time_launches", "time_replays", "time_round_trips"):
        getattr(loops, name).restype = ctypes.c_double

    def captured(nodes: int) -> int:
        hip.call("hipStreamBeginCapture", stream, ctypes.c_int(0))
        shape = [ctypes.c_uint(each) for each in (1, 1, 1, 64, 1, 1, 0)]
        for _ in range(nodes):
            hip.call("hipModuleLaunchKernel", function, *shape, stream, params, None)
        graph = _POINTER()
        hip.call("hipStreamEndCapture", stream, ctypes.byref(graph))
        return hip.made("hipGraphInstantiate", graph, None, None, ctypes.c_size_t(0))

    calls: dict[str, Callable[[], float]] = {
        "launch, `kernelParams`": lambda: loops.time_launches(
            launch, wait, *of_kernel, params, None, _CALLS
        ),
        "launch, `extra`": lambda: loops.time_launches(
            launch, wait, *of_kernel, None, extra, _CALLS
        ),
    }

    def replayed(nodes: int) -> Callable[[], float]:
        graph = _POINTER(captured(nodes))
        return lambda: loops.time_replays(replay, wait, graph, _POINTER(stream), _CALLS // 10)

    for nodes in _NODES:
        calls[f"replay of a graph of {nodes}"] = replayed(nodes)
    calls["launch and wait, on the clock"] = lambda: loops.time_round_trips(
        launch, wait, *of_kernel, params, _CALLS
    )
    rounds = [{name: call() / 1e3 for name, call in calls.items()} for _ in range(_ROUNDS)]
    if min(min(each.values()) for each in rounds) < 0:
        raise RuntimeError("a call failed")
    return {name: statistics.quantiles(each[name] for each in rounds) for name in calls}


if __name__ == "__main__":
    main()
