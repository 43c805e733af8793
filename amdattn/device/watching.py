"""The watcher of the process's launches: one check or one profile at a time.

A check executes every workgroup; a profile executes those of one XCD, on the model's schedule.
Findings of a launch that is also profiled would cover only a part of it.
"""

from __future__ import annotations

import threading

_lock = threading.Lock()
_watcher = ""


def begin(watcher: str) -> None:
    """Become the watcher, "a check" or "a profile".

    Raises
    ------
    RuntimeError
        There is a watcher already.
    """
    global _watcher
    with _lock:
        if _watcher:
            raise RuntimeError(
                f"{_watcher} is running already; checks and profiles cannot be nested: run "
                "the launches once for each"
            )
        _watcher = watcher


def end() -> None:
    """Stop being the watcher."""
    global _watcher
    _watcher = ""
