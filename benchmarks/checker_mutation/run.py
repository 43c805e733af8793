"""Runs launches on versions of a code object, in processes of their own with a time limit."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import hashlib
import math
import multiprocessing
import os
import resource
import signal
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from amdattn.checking.findings import ERROR, Finding, read_findings
from amdattn.device import runtime
from amdattn.errors import HipError
from benchmarks.checker_mutation.code import Elf
from benchmarks.checker_mutation.subject import Buffer, Case, Subject

# By the clock a task may take so many times its CPU time: others have the CPU, too, and what waits
# for nothing takes none.
_BY_THE_CLOCK = 20


class CampaignError(RuntimeError):
    """A launch could not be run at all."""


@dataclass(frozen=True, slots=True)
class Task:
    """Launches of one version of a subject's code object.

    Attributes
    ----------
    cases : tuple of int
        Tried in order, until one has an error finding at `places`, or of `kinds`.
    schedules : tuple of (seed, quantum)
        Orders of waves and workgroups. All cases run under the first; the next ones only while
        there is no error finding, no error and no output other than `outputs`.
    outputs : tuple of (case, digests)
        Of the unmutated kernel.
    """

    id: int
    subject: int
    image: bytes = field(repr=False)
    cases: tuple[int, ...]
    checked: bool = True
    places: frozenset[int] = frozenset()
    kinds: tuple[str, ...] = ()
    schedules: tuple[tuple[int, int], ...] = ((0, 8),)
    outputs: tuple[tuple[int, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What one launch gave: error findings, digests of the outputs, the HIP error if any."""

    case: int
    findings: tuple[Finding, ...]
    outputs: tuple[str, ...]
    error: str
    instructions: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task gave; `failure` says how its process ended if it did."""

    id: int
    cases: tuple[CaseResult, ...] = ()
    failure: str = ""


def in_place(finding: Finding, places: frozenset[int], kinds: Sequence[str]) -> bool:
    """Whether a finding is where the defect is: at its place or that of producer or consumer."""
    return finding.pc in places or finding.producer_pc in places or finding.kind in kinds


# -- in the worker ---------------------------------------------------------------------------------


class _Device:
    """Launches cases on the virtual device."""

    def __init__(self, options: dict[str, int]) -> None:
        self._device = runtime.get()
        self._exports = self._device.virtual_exports()
        self._exports.set_options(**options)

    def schedule(self, seed: int, quantum: int) -> None:
        """Choose the order of waves and workgroups of later launches."""
        self._exports.set_options(seed=seed, quantum=quantum)

    def run(self, image: bytes, symbol: str, case: Case, checked: bool) -> CaseResult:
        """Launch once on fresh memory."""
        begin = time.perf_counter()
        before = self._exports.counter("instructions")
        device, hip = self._device, self._device.hip
        error = ""
        outputs: list[str] = []
        findings: tuple[Finding, ...] = ()
        self._exports.set_options(check=int(checked))
        with contextlib.ExitStack() as stack:
            stack.callback(self._exports.set_options, check=0)
            try:
                module = device.check("hipModuleLoadData", hip.hipModuleLoadData(image))
                stack.callback(hip.hipModuleUnload, module)
                function = device.check(
                    "hipModuleGetFunction", hip.hipModuleGetFunction(module, symbol.encode())
                )
                addresses = [self._place(stack, buffer, checked) for buffer in case.buffers]
                self._launch(function, case, addresses)
                for buffer, address in zip(case.buffers, addresses, strict=True):
                    if buffer.output:
                        host = ctypes.create_string_buffer(buffer.nbytes)
                        device.download(ctypes.addressof(host), address, buffer.nbytes)
                        runtime.synchronize()
                        outputs.append(hashlib.sha256(host.raw).hexdigest())
            except HipError as fault:
                error = str(fault).splitlines()[0]
            if checked:
                findings = self._findings()
        executed = self._exports.counter("instructions") - before
        seconds = time.perf_counter() - begin
        return CaseResult(-1, findings, tuple(outputs), error, executed, seconds)

    def _place(self, stack: contextlib.ExitStack, buffer: Buffer, checked: bool) -> int:
        address = self._device.malloc(buffer.nbytes)
        stack.callback(self._device.free, address)
        if buffer.data is not None:
            self._device.upload(address, _address_of(buffer.data), buffer.nbytes)
            runtime.synchronize()
        if checked and buffer.contract:
            self._exports.declare(buffer.contract, address, buffer.nbytes, buffer.name)
        return address

    def _launch(self, function: Any, case: Case, addresses: Sequence[int]) -> None:
        block = bytearray(case.kernarg)
        for offset, index in case.pointers:
            block[offset : offset + 8] = addresses[index].to_bytes(8, "little")
        kernargs = self._device.kernarg_buffer(len(block))
        kernargs.block[:] = block
        hip = self._device.hip
        status = hip.hipModuleLaunchKernel(
            function, *case.grid, *case.workgroup, case.dynamic_lds_bytes, 0,
            kernargs.params, kernargs.extra,
        )  # fmt: skip
        self._device.check("hipModuleLaunchKernel", status)
        runtime.synchronize()

    def _findings(self) -> tuple[Finding, ...]:
        _, findings = read_findings(self._exports.take_findings(), str)
        return tuple(finding for finding in findings if finding.severity == ERROR)


def _address_of(data: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


def _serve(
    connection: Connection, subjects: Sequence[Subject], options: dict[str, int], seconds: float
) -> None:
    """Answer tasks until there are no more, or one takes more CPU time than it may."""
    (arch,) = {Elf(subject.image).arch for subject in subjects}
    os.environ["AMDATTN_DEVICE"] = f"virtual:{arch}"
    try:
        device = _Device(options)
        while (task := connection.recv()) is not None:
            _limit_cpu_time(seconds)
            connection.send(_answer(device, subjects[task.subject], task))
    except Exception:
        # A defect of the campaign itself must never pass for a mutant that was noticed.
        connection.send(traceback.format_exc())


def _limit_cpu_time(seconds: float) -> None:
    """End this process by SIGXCPU after so much CPU time more."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    end = math.ceil(used.ru_utime + used.ru_stime + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (end, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _answer(device: _Device, subject: Subject, task: Task) -> TaskResult:
    results: list[CaseResult] = []
    expected = dict(task.outputs)
    for seed, quantum in task.schedules:
        device.schedule(seed, quantum)
        for i in task.cases:
            result = device.run(task.image, subject.symbol, subject.cases[i], task.checked)
            results.append(dataclasses.replace(result, case=i))
            if any(in_place(finding, task.places, task.kinds) for finding in result.findings):
                return TaskResult(task.id, tuple(results))
        if expected and any(_seen(result, expected) for result in results):
            break
    return TaskResult(task.id, tuple(results))


def _seen(result: CaseResult, expected: Mapping[int, tuple[str, ...]]) -> bool:
    return bool(result.findings or result.error) or result.outputs != expected[result.case]


# -- in the parent ---------------------------------------------------------------------------------


class _Worker:
    def __init__(
        self, subjects: Sequence[Subject], options: dict[str, int], seconds: float
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        arguments = other, subjects, options, seconds
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        other.close()
        self.task: Task | None = None
        self.deadline = 0.0
        self._seconds = seconds

    def give(self, task: Task) -> None:
        self.task, self.deadline = task, time.monotonic() + _BY_THE_CLOCK * self._seconds
        with contextlib.suppress(BrokenPipeError):  # what it sent before it ended says more
            self.connection.send(task)

    def end(self) -> str:
        """Stop the process; how it ended."""
        if self.task is None and self._process.is_alive():
            with contextlib.suppress(OSError):
                self.connection.send(None)
            self._process.join(2)
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self.connection.close()
        if self._process.exitcode == -signal.SIGXCPU:
            return f"more than {self._seconds:g} s of CPU time"
        return f"exit code {self._process.exitcode}"


def run(
    tasks: Iterable[Task],
    subjects: Sequence[Subject],
    options: dict[str, int],
    num_workers: int,
    seconds_per_task: float,
) -> Iterator[TaskResult]:
    """Results as they come. A task whose process dies or takes too long has a `failure`.

    Seconds are of CPU time, which other processes do not use up. `tasks` may be a generator: the
    next one is made while the workers are busy.
    """
    todo = iter(tasks)
    workers = [_Worker(subjects, options, seconds_per_task) for _ in range(num_workers)]
    try:
        while True:
            for worker in workers:
                if worker.task is None and (task := next(todo, None)) is not None:
                    worker.give(task)
            busy = [worker for worker in workers if worker.task]
            if not busy:
                return
            left = min(worker.deadline for worker in busy) - time.monotonic()
            ready = wait([worker.connection for worker in busy], timeout=max(0.0, left))
            for worker in busy:
                task = worker.task
                assert task
                failure = ""
                if worker.connection in ready:
                    try:
                        result = worker.connection.recv()
                        if isinstance(result, str):
                            raise CampaignError(result)
                        worker.task = None
                        yield result
                    except (EOFError, OSError):
                        failure = "the process ended"
                elif time.monotonic() >= worker.deadline:
                    failure = f"no answer within {_BY_THE_CLOCK * seconds_per_task:g} s"
                if failure:
                    how = worker.end()
                    new = _Worker(subjects, options, seconds_per_task)
                    workers[workers.index(worker)] = new
                    yield TaskResult(task.id, failure=f"{failure} ({how})")
    finally:
        for worker in workers:
            worker.end()
