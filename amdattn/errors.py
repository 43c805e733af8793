"""The package's own exceptions; malformed input raises plain ValueError or TypeError."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amdattn.checking.findings import Finding


class AmdattnError(Exception):
    """Base of the package's own exceptions."""


class UnsupportedProblem(AmdattnError, NotImplementedError, ValueError):
    """A well-formed problem that no shipped kernel solves; nothing falls back.

    The message names the argument, its value and what is allowed.
    """


class UnsupportedDeviceError(AmdattnError):
    """The bound device has an architecture for which no kernels are shipped."""


class BindingError(AmdattnError):
    """No HIP runtime could be bound as asked, or the process is already bound to another one."""


class ManifestError(AmdattnError):
    """hsaco/manifest.json is missing, malformed, or disagrees with the kernel argument headers."""


class CorruptKernel(AmdattnError):
    """A code object file does not have the sha256 that the manifest records."""


class HipError(AmdattnError):
    """A HIP call failed.

    Attributes
    ----------
    call : str
        Name of the HIP function.
    code : int
        The hipError_t value; `name` is its enumerator.
    report : str
        What the virtual device knows about the fault (kernel, pc, instruction, workgroup, wave,
        lane, address); empty on a GPU.
    """

    def __init__(
        self, call: str, code: int, name: str, explanation: str, report: str = "", note: str = ""
    ) -> None:
        self.call = call
        self.code = code
        self.name = name
        self.report = report
        lines = [f"{call} failed: {name} ({code}): {explanation}"]
        if name in _HINTS:
            lines.append(_HINTS[name])
        lines += [text for text in (note, report) if text]
        super().__init__("\n".join(lines))


class CheckError(AmdattnError):
    """Checked mode found defects.

    Attributes
    ----------
    findings : tuple of Finding
        Those of severity "error", with the place of each; the text shows the first ones.
    """

    def __init__(self, findings: Sequence[Finding], notes: Sequence[str] = ()) -> None:
        self.findings = tuple(findings)
        num = len(self.findings)
        lines = [f"{num} finding{'s' * (num != 1)} of checked mode"]
        lines += map(str, self.findings[:_MAX_SHOWN])
        if num > _MAX_SHOWN:
            lines.append(f"... and {num - _MAX_SHOWN} more (findings)")
        super().__init__("\n".join([*lines, *notes]))


_MAX_SHOWN = 10

_HINTS = {
    "hipErrorNoBinaryForGpu": "The code object does not fit this GPU or this ROCm is too old for "
    "its code object version; AMD_LOG_LEVEL=3 makes the HIP runtime say which.",
    "hipErrorInvalidImage": "The HIP runtime refused the code object; AMD_LOG_LEVEL=3 makes it say "
    "why. `amdattn info` shows the target and code object version of each kernel.",
    "hipErrorContextIsDestroyed": "The stream, event or graph is not of the HIP runtime that "
    "amdattn has bound, or was destroyed; `amdattn info` names the library.",
    "hipErrorOutOfMemory": "The device has no block of free memory of this size.",
}
