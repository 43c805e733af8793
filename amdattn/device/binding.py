"""Decides which HIP runtime library to bind, a GPU's or the virtual device's; binds nothing."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amdattn.arch import products, props
from amdattn.arch.architectures import ARCHITECTURES
from amdattn.device import virtual_library
from amdattn.errors import BindingError

ENVIRONMENT_VARIABLE = "AMDATTN_DEVICE"
LIBRARY_VARIABLE = "AMDATTN_HIP_LIBRARY"  # the library to bind for a GPU
RUNTIME_VARIABLE = "AMDATTN_RUNTIME"  # the HIP runtime that presents the virtual device
_AMD, _AMD_LIBRARY = "amd", "libamdhip64.so.7"
_VIRTUAL = "virtual:"
_DEVICES = props.KNOWN_DEVICES | props.KNOWN_PARTITIONS
# "virtual:" with an architecture's name means its first product, unless the process has another.
REQUESTS = ("auto", "gpu", *(_VIRTUAL + name for name in (*ARCHITECTURES, *_DEVICES)))

_PROBE_TIMEOUT_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Choice:
    """The library to bind, the reason, and the candidates that were rejected."""

    kind: str  # "gpu" or "virtual"
    library: str
    why: str
    rejected: tuple[str, ...] = ()
    plays: str = ""  # the product of the virtual device, "" if it is open
    device: str = ""  # the virtual device's library if `library` is AMD's runtime on it

    @property
    def runtime(self) -> str:
        """The HIP runtime that presents a virtual device, as in `choose`."""
        if not self.device:
            return "amdattn"
        folder = os.path.dirname(self.library)
        return f"{_AMD}:{folder}" if folder else _AMD

    @property
    def device_library(self) -> str:
        """The library that is the virtual device."""
        return self.device or self.library


@dataclass(frozen=True, slots=True)
class Probe:
    """The answer of one candidate library."""

    path: str
    num_devices: int
    is_virtual: bool
    failure: str


def check_request(request: str) -> str:
    """Return `request` if it is one of REQUESTS, else raise ValueError."""
    if request not in REQUESTS:
        raise ValueError(f"device {request!r} must be one of {', '.join(REQUESTS)}")
    return request


def check_runtime(runtime: str) -> str:
    """Return "amdattn", "amd", or "amd:" with an absolute folder; else raise ValueError."""
    kind, _, folder = runtime.partition(":")
    if runtime not in ("amdattn", _AMD) and not (kind == _AMD and folder):
        raise ValueError(f"runtime {runtime!r} must be amdattn, amd or amd:FOLDER")
    return f"{_AMD}:{os.path.abspath(folder)}" if folder else runtime


def is_what_was_asked(request: str, bound: props.DeviceProps) -> bool:
    """Whether a device is the product, partition or architecture that a request names."""
    name = request.removeprefix(_VIRTUAL)
    if name in ARCHITECTURES:
        return name == bound.arch
    return name not in _DEVICES or name == bound.label


def choose(request: str, hip_python_default: str, runtime: str = "amdattn") -> Choice:
    """Decide for `request`; a real GPU always wins in "auto".

    Parameters
    ----------
    request : str
        One of REQUESTS.
    hip_python_default : str
        The library hip-python would open on its own: a path or a bare name.
    runtime : str
        The HIP runtime that presents the virtual device: "amdattn", its own; "amd", AMD's
        libamdhip64.so.7 where the dynamic linker finds it; "amd:FOLDER", AMD's in a folder.

    Raises
    ------
    BindingError
        A GPU or a library was requested and does not exist, or the virtual device's library is
        missing.
    """
    check_request(request)
    runtime = check_runtime(runtime)
    if request.startswith(_VIRTUAL):
        name = request.removeprefix(_VIRTUAL)
        plays = products.of_arch(name).name if name in ARCHITECTURES else name
        return _virtual(f"{request} was asked for", runtime, (), plays)
    rejected: list[str] = []
    before = mapped_runtimes()
    for candidate in _candidates(hip_python_default):
        probe = _probe(candidate)
        if not probe.failure and not probe.is_virtual:
            loaded = os.path.realpath(probe.path) in before
            why = f"{probe.path}{', which this process had loaded,' * loaded} sees "
            why += f"{probe.num_devices} GPU{'s' * (probe.num_devices > 1)}"
            return Choice("gpu", probe.path, why, tuple(rejected))
        rejected.append(f"{candidate}: {probe.failure or 'is the virtual device'}")
    named = os.environ.get(LIBRARY_VARIABLE)
    if named:
        raise BindingError(f"{LIBRARY_VARIABLE}={named!r}: no GPU can be used: {rejected[0]}")
    if request == "gpu":
        raise BindingError("no GPU can be used: " + "; ".join(rejected))
    return _virtual("no HIP library here sees a GPU", runtime, tuple(rejected))


def _virtual(why: str, runtime: str, rejected: tuple[str, ...], plays: str = "") -> Choice:
    """Choose the virtual device; the note names its library if that is not evident."""
    device = str(virtual_library.library_path())
    note = virtual_library.note()
    why = f"{why}; {note}" if note else why
    kind, _, folder = runtime.partition(":")
    if kind != _AMD:
        return Choice("virtual", device, why, rejected, plays)
    library = os.path.join(folder, _AMD_LIBRARY)
    if folder and not os.path.exists(library):
        raise BindingError(f"runtime {runtime!r}: {folder} has no {_AMD_LIBRARY}")
    return Choice("virtual", library, f"{why}, through {library}", rejected, plays, device)


def _candidates(hip_python_default: str) -> list[str]:
    """Libraries that may see a GPU, best first.

    A library that is already in the process comes first: two HIP runtimes in one process have
    separate streams and allocations, so arrays of JAX or torch would not be visible to ours.
    """
    named = os.environ.get(LIBRARY_VARIABLE)
    if named:
        return [named]
    rocm = os.environ.get("ROCM_PATH") or os.environ.get("ROCM_HOME") or "/opt/rocm"
    installed = os.path.join(rocm, "lib", "libamdhip64.so")
    found = [*mapped_runtimes(), hip_python_default]
    if os.path.exists(installed):
        found.append(installed)
    first: dict[str, str] = {}
    for path in found:
        first.setdefault(os.path.realpath(path) if "/" in path else path, path)
    return list(first.values())


class _LoadedObject(ctypes.Structure):
    """The fields of struct dl_phdr_info that are read."""

    _fields_ = (("address", ctypes.c_void_p), ("name", ctypes.c_char_p))


_Visitor = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(_LoadedObject), ctypes.c_size_t, ctypes.c_void_p
)


def mapped_runtimes() -> list[str]:
    """Paths of the HIP runtime libraries in this process, in the order in which they were loaded.

    Wheels rename the libraries that they contain, as in libamdhip64-1f2e3d.so.7.
    """
    found: list[str] = []

    def visit(loaded: Any, _size: int, _data: int | None) -> int:
        path = os.fsdecode(loaded.contents.name or b"")
        name = os.path.basename(path)
        if name.startswith("libamdhip64") and ".so" in name:
            found.append(os.path.realpath(path))
        return 0

    ctypes.CDLL(None).dl_iterate_phdr(_Visitor(visit), None)
    return list(dict.fromkeys(found))


def other_runtimes(bound: str) -> str:
    """A warning about HIP runtimes besides the bound one, or ""."""
    others = [path for path in mapped_runtimes() if path != os.path.realpath(bound)]
    if not others:
        return ""
    return (
        f"This process also has {' and '.join(others)}, beside {bound}, which amdattn has bound: "
        "streams, events, graphs and memory of one HIP runtime are unknown to another. Load the "
        f"framework first, or name its library in {LIBRARY_VARIABLE}."
    )


def _probe(candidate: str) -> Probe:
    if os.path.realpath(candidate) in mapped_runtimes():  # in use already, so asking is safe
        return _probe_in_process(candidate)
    if "/" in candidate and not os.path.exists(candidate):
        return Probe(candidate, 0, False, "does not exist")
    if not _can_start_again():
        return _probe_in_process(candidate)
    # A broken ROCm installation may abort while it initialises, so a child process goes first. It
    # is isolated: no module in the current folder, PYTHONPATH or the package's folder may shadow
    # one of Python's.
    root = str(Path(__file__).resolve().parents[2])
    code = f"import sys; sys.path.append({root!r}); from amdattn.device.binding import probe_main; "
    try:
        child = subprocess.run(
            [sys.executable, "-I", "-S", "-c", code + f"probe_main({candidate!r})"],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Probe(candidate, 0, False, f"probing it failed: {error}")
    answer = re.search(r"^amdattn-probe\t(.*)\t(\d+)\t([01])\t(.*)$", child.stdout, re.MULTILINE)
    if answer is None:
        return Probe(candidate, 0, False, f"probing it ended with status {child.returncode}")
    path, num_devices, is_virtual, failure = answer.groups()
    return Probe(path, int(num_devices), is_virtual == "1", failure)


def _can_start_again() -> bool:
    """Whether a child process finds its library without help from the environment."""
    # An embedded interpreter is not a program; isolated interpreters ignore PYTHONHOME.
    embedded = not os.path.basename(sys.executable or "").startswith("python")
    return not embedded and not ("PYTHONHOME" in os.environ and not sys.flags.ignore_environment)


def probe_main(candidate: str) -> None:
    """The body of the probing child process: print the answer of `candidate` as one line."""
    probe = _probe_in_process(candidate)
    fields = (probe.path, str(probe.num_devices), str(int(probe.is_virtual)), probe.failure)
    print("amdattn-probe", *(field.replace("\n", " ") for field in fields), sep="\t")


def _probe_in_process(candidate: str) -> Probe:
    try:
        library = ctypes.CDLL(candidate)
    except OSError as error:
        return Probe(candidate, 0, False, f"cannot be loaded ({error})")
    path = next(iter(mapped_runtimes()), candidate) if "/" not in candidate else candidate
    is_virtual = hasattr(library, virtual_library.MARKER)
    count = ctypes.c_int(0)
    with contextlib.suppress(AttributeError):
        library.hipInit(0)  # some runtimes refuse every call before it
    try:
        status = library.hipGetDeviceCount(ctypes.byref(count))
    except AttributeError:
        return Probe(path, 0, is_virtual, "has no hipGetDeviceCount")
    if status != 0 or count.value < 1:
        return Probe(path, 0, is_virtual, f"sees no GPU (hipGetDeviceCount: error {status})")
    return Probe(path, count.value, is_virtual, "")
