"""Options and counters of the virtual device.

The virtual device is a CPU library with the HIP runtime ABI that executes the same code objects as
a GPU. What is here exists only there: every function raises BindingError when a GPU is bound.
"""

from __future__ import annotations

from amdattn import runtime


def set_option(key: str, value: object) -> None:
    """Set an option of the virtual device: "threads", "quantum", "seed" or "max_instructions"."""
    runtime.get().virtual_exports().set_option(key, value)


def counter(name: str) -> int:
    """Read a counter of the virtual device, e.g. "instructions", "mfma" or "workgroups"."""
    return runtime.get().virtual_exports().counter(name)


def last_report() -> str:
    """What the virtual device knows about the last fault; "" if there was none."""
    return runtime.get().virtual_exports().last_report()
