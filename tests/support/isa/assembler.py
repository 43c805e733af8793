"""LLVM's assembler out of pip's ziglang: the oracle that the encoding tests trust."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from build_scripts.toolchain import LLVM22
from tests.support.vdev_library import DEFAULT_CPU

_LINE = re.compile(r"^\t(.*\S)\s+; encoding: \[(.*)\]$")
_ERROR = re.compile(r"^<stdin>:(\d+):\d+: error: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Assembled:
    """One instruction: the assembler's own spelling and its bytes.

    `encoding` is None where a fixup fills a part of it in later.
    """

    text: str
    encoding: bytes | None


class AssemblerError(ValueError):
    """The assembler refused a text.

    Attributes
    ----------
    lines : dict[int, str]
        Message by index of the line.
    """

    def __init__(self, lines: dict[int, str], texts: Sequence[str]) -> None:
        shown = [f"{texts[i]!r}: {message}" for i, message in list(lines.items())[:20]]
        super().__init__(f"{len(lines)} texts refused\n" + "\n".join(shown))
        self.lines = lines


def assemble_source(source: str, cpu: str = DEFAULT_CPU) -> list[Assembled]:
    """Assemble a whole source; directives and labels yield nothing."""
    command = [str(LLVM22.executable()), "clang", "-cc1as", "-triple", "amdgcn-amd-amdhsa"]
    command += ["-target-cpu", cpu, "-filetype", "asm", "-show-encoding", "-o", "-", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = {int(m[1]) - 1: m[2] for m in _ERROR.finditer(done.stderr)}
        if not errors:
            raise RuntimeError(done.stderr)
        raise AssemblerError(errors, source.splitlines())
    found = (_LINE.match(line) for line in done.stdout.splitlines())
    # The text may carry a comment of the compiler's.
    return [Assembled(m[1].replace("\t", " ").split(" ; ")[0], _bytes(m[2])) for m in found if m]


def assemble(texts: Sequence[str], cpu: str = DEFAULT_CPU) -> list[bytes]:
    """Encodings of instructions, one a text.

    Raises
    ------
    AssemblerError
        With all texts that were refused.
    """
    assembled = assemble_source("\n".join(texts) + "\n", cpu)
    if len(assembled) != len(texts):
        raise RuntimeError(f"{len(texts)} texts gave {len(assembled)} instructions")
    return [a.encoding or b"" for a in assembled]


def _bytes(listing: str) -> bytes | None:
    parts = listing.split(",")
    if not all(part.startswith("0x") for part in parts):
        return None
    return bytes(int(part, 16) for part in parts)
