"""10,000 launches of four threads, each with a stream of its own.

Prints how many bytes the process and the device's memory have grown by since the first tenth of
them, as JSON.
"""

from __future__ import annotations

import json
import threading

import numpy as np

import amdattn
from amdattn.device import runtime

THREADS, LAUNCHES, EACH = 4, 10_000, 50  # a wait each so many


def resident_bytes() -> int:
    """Of this process."""
    with open("/proc/self/status", encoding="ascii") as file:
        (line,) = (line for line in file if line.startswith("VmRSS"))
    return 1024 * int(line.split()[1])


def main() -> None:
    """Script: the device and its runtime are the environment's."""
    device = runtime.get()
    x, weight = (amdattn.asarray(np.ones(shape, np.float16)) for shape in ((1, 64), 64))
    hip = device.hip
    failures: list[object] = []

    def work(count: int) -> None:
        stream = device.check("hipStreamCreateWithFlags", hip.hipStreamCreateWithFlags(1))
        out = amdattn.empty(x.shape, x.dtype)
        try:
            for i in range(count):
                amdattn.rms_norm(x, weight, out=out, stream=int(stream))
                if i % EACH == EACH - 1:
                    device.synchronize(int(stream))
            device.synchronize(int(stream))
        except Exception as error:
            failures.append(error)
        hip.hipStreamDestroy(stream)

    def launched(count: int) -> tuple[int, int]:
        threads = [threading.Thread(target=work, args=(count // THREADS,)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        amdattn.synchronize()
        free, _ = device.check("hipMemGetInfo", hip.hipMemGetInfo())
        return resident_bytes(), -int(free)

    before = launched(LAUNCHES // 10)
    after = launched(LAUNCHES - LAUNCHES // 10)
    if failures:
        raise RuntimeError(str(failures[0]))
    names = ("resident", "device")
    print(json.dumps({n: a - b for n, a, b in zip(names, after, before, strict=True)}))


if __name__ == "__main__":
    main()
