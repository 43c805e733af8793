"""Stands in for a C++ compiler: writes the files that one would, and a line for each call.

    python recording_compiler.py LOG VERSION ARGUMENTS...

The line is what was made ("compile", "precompile" or "link") and the output's file name. Beside the
log, LOG.headers has a line for each text that was precompiled, its digest.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path


def included(source: Path, folder: Path) -> list[Path]:
    """The project's headers that a source includes, directly or not."""
    found = [folder / name for name in re.findall(r'#include "(.*)"', source.read_text())]
    return found + [deeper for header in found for deeper in included(header, folder)]


def main(log: Path, version: str, arguments: list[str]) -> None:
    """Do what the arguments say."""
    if arguments == ["--version"]:
        print(version)
        return
    value = dict(zip(arguments, arguments[1:], strict=False))
    output = Path(value["-o"])
    if "-c" in arguments:
        folder = Path(next(flag[2:] for flag in arguments if flag.startswith("-I")))
        source = Path(value["-c"])
        headers = [Path(value["-include"])] if "-include" in value else []
        inputs = [source, *headers, *included(source, folder)]
        Path(value["-MF"]).write_text(f"{output}: " + " \\\n  ".join(map(str, inputs)))
        assert all(header.is_file() for header in headers)
        kind = "compile"
    else:
        kind = "precompile" if "c++-header" in arguments else "link"
    if kind == "precompile":
        digest = hashlib.sha256(Path(arguments[arguments.index("-o") - 1]).read_bytes()).hexdigest()
        with Path(f"{log}.headers").open("a") as file:
            print(digest, file=file)
    output.write_text(kind)
    with log.open("a") as file:
        print(kind, output.parent.name, output.name, file=file)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
