"""Runs the steps in a child process and ends it when one takes too long."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from amdattn.report.facts import without_paths
from amdattn.report.rows import ABSENT, FAILED as ROW_FAILED

PASSED, FAILED, TIMED_OUT, CRASHED, SKIPPED = "ok", "failed", "timed out", "crashed", "skipped"
NOT_MEASURED = "not measured"
INTERRUPTED = "interrupted"
_KILL_S = 10.0  # time that a killed process may take to end
_TAIL = 2000  # characters of a crashed process's output


@dataclass(frozen=True)
class Planned:
    """A step that the child is to run."""

    name: str
    title: str
    limit_s: float


@dataclass
class Outcome:
    """The outcome of a step."""

    planned: Planned
    status: str = SKIPPED
    seconds: float = 0.0
    error: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The outcome as an object of JSON."""
        return {
            "name": self.planned.name,
            "title": self.planned.title,
            "status": self.status,
            "seconds": round(self.seconds, 3),
            "limit_s": self.planned.limit_s,
            "error": self.error,
            "rows": self.rows,
        }


# Isolated: code from the current folder or PYTHON* variables runs only if this process loaded it,
# too.
_CHILD = (
    "import json, sys\n"
    "path, group, quick, pipe = json.loads(sys.argv[1])\n"
    "sys.path[:] = path\n"
    "from amdattn.report.worker import main\n"
    "main(group, quick, pipe)\n"
)


def child(group: str, quick: bool) -> Callable[[int], list[str]]:
    """The command that runs a group of steps and reports to a file descriptor."""

    def command(pipe: int) -> list[str]:
        path = [entry for entry in sys.path if entry]
        arguments = json.dumps([path, group, quick, pipe])
        return [sys.executable, "-I", "-c", _CHILD, arguments]

    return command


class _Deadline(Exception):
    """Raised if a step takes too long."""


class _Closed(Exception):
    """Raised if the child has ended, or writes a malformed message."""


def run(
    planned: Sequence[Planned],
    command: Callable[[int], list[str]],
    *,
    environment: dict[str, str] | None = None,
    advance: Callable[[str], None] = lambda title: None,
) -> list[Outcome]:
    """Run the planned steps, and return one outcome for each.

    After a step that takes longer than its limit, or ends the process, the others are skipped.
    Ctrl-C likewise ends the child and skips the rest.

    Parameters
    ----------
    command : callable
        The child's command line, given the file descriptor that it writes to.
    """
    outcomes = [Outcome(step) for step in planned]
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as errors, open(reader, "rb", buffering=0) as pipe:
        try:
            process = subprocess.Popen(
                command(writer),
                pass_fds=(writer,),
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                env=environment,
                start_new_session=True,  # this process handles Ctrl-C
            )
        finally:
            os.close(writer)
        try:
            last = _follow(outcomes, _Lines(pipe), advance)
            _leave(last, process)
        except (_Deadline, _Closed, KeyboardInterrupt) as why:
            _end(outcomes, process, errors, why)
        finally:
            _kill(process)
    return outcomes


def _leave(last: Outcome | None, process: subprocess.Popen[bytes]) -> None:
    """Wait for the child to end; a failure then counts for its last step."""
    try:
        code = process.wait(_KILL_S)
        wrong = f"the process ended with status {code}" if code else ""
    except subprocess.TimeoutExpired:
        wrong = f"the process did not end within {_KILL_S:g} s"
    if wrong and last is not None:
        last.status = FAILED
        last.error = f"{last.error}\n{wrong} after this step".strip()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the child and all processes that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class _Lines:
    """Reads messages from the child."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe, self._rest = pipe, b""

    def next(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._pipe], [], [], left)[0]:
                raise _Deadline
            part = self._pipe.read(65536)
            if not part:
                raise _Closed
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            message = json.loads(line)
        except ValueError:
            raise _Closed from None
        if not isinstance(message, dict):
            raise _Closed
        return message


def _follow(
    outcomes: Sequence[Outcome], lines: _Lines, advance: Callable[[str], None]
) -> Outcome | None:
    """Fill in outcomes as steps end, until the last step or until the device is unusable.

    Returns the outcome of the last step that ran.
    """
    for outcome in outcomes:
        advance(outcome.planned.title)
        begin = time.monotonic()
        deadline = begin + outcome.planned.limit_s
        outcome.status = TIMED_OUT  # until the child reports otherwise
        try:
            while True:
                message = lines.next(deadline)
                if "row" in message:
                    row = message["row"]
                    outcome.rows.append(row | {"text": without_paths(row["text"])})
                elif "end" in message:
                    break
        except _Closed:
            outcome.status = CRASHED
            raise
        except KeyboardInterrupt:
            outcome.status = SKIPPED
            raise
        finally:
            outcome.seconds = time.monotonic() - begin
        outcome.error = without_paths(message["error"])
        found = {row["outcome"] for row in outcome.rows}
        outcome.status = NOT_MEASURED if found == {ABSENT} else PASSED
        if message["error"] or ROW_FAILED in found:
            outcome.status = FAILED
        if not message["usable"]:
            outcome.status = FAILED
            outcome.error = outcome.error or "the device no longer answers"
            return outcome
    return outcomes[-1] if outcomes else None


def _end(
    outcomes: Sequence[Outcome], process: subprocess.Popen[bytes], errors: IO[bytes], why: object
) -> None:
    """Kill the child, and with it its queues and whatever hangs on the device."""
    _kill(process)
    try:
        code = process.wait(_KILL_S)
        gone = ""
    except subprocess.TimeoutExpired:
        code = None
        gone = (
            f"; its process did not end within {_KILL_S:.0f} s of being killed, so the device may "
            "need a reset"
        )
    for outcome in outcomes:
        if outcome.status == TIMED_OUT:
            outcome.error = f"took longer than {outcome.planned.limit_s:g} s and was ended{gone}"
        elif outcome.status == CRASHED:
            errors.seek(0)
            tail = errors.read().decode("utf-8", "replace")[-_TAIL:].strip()
            outcome.error = f"the process ended with status {code}{gone}\n{without_paths(tail)}"
    if isinstance(why, KeyboardInterrupt):
        for outcome in outcomes:
            if outcome.status == SKIPPED:
                outcome.error = INTERRUPTED
                break
