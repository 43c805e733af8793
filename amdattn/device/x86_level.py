"""x86-64 levels that the virtual device is built for, and which of them this CPU runs.

It imports nothing of the package, since the build uses it before any dependency is installed.
"""

from __future__ import annotations

LEVELS = ("v2", "v3")  # each level runs everything that lower levels run

# The flags that a level adds to the one before, in the spelling of /proc/cpuinfo (pni: SSE3, abm:
# LZCNT).
_ADDED_FLAGS = {
    "v2": {"cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3"},
    "v3": {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"},
}


def library_name(level: str) -> str:
    """File name of the virtual device's library for one of LEVELS."""
    return f"libamdattn_vdev_x86_64_{level}.so"


def runnable_levels() -> tuple[str, ...]:
    """The levels that this CPU runs, oldest first; none on a CPU older than all.

    Raises
    ------
    OSError
        /proc/cpuinfo, which lists the CPU's features, cannot be read.
    """
    flags = _cpu_flags()
    runnable: list[str] = []
    for level in LEVELS:
        if not flags >= _ADDED_FLAGS[level]:
            break
        runnable.append(level)
    return tuple(runnable)


def _cpu_flags() -> set[str]:
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as cpuinfo:
        for line in cpuinfo:
            if line.startswith("flags"):
                return set(line.partition(":")[2].split())
    return set()
