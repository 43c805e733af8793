"""What the compiler made before, kept in build/compiled: a rebuild compiles what has changed.

An entry counts only while the code of every file that it was compiled from is what it was, and so
are its flags, the compiler's version and the script that runs it. `build_scripts.verify` compiles
all anew.
"""

from __future__ import annotations

import base64
import json
import os
import time
import zlib
from pathlib import Path

from build_scripts import manifest, toolchain
from build_scripts.toolchain import ASM_SRC, Compiled, Toolchain, compile_hip

FOLDER = ASM_SRC.parent / "build" / "compiled"


def compile_changed(
    source: Path,
    compiler: Toolchain,
    arch: str,
    defines: tuple[str, ...],
    flags: tuple[str, ...],
    folder: Path = FOLDER,
) -> Compiled:
    """As `toolchain.compile_hip`, from the folder if nothing has changed."""
    by = manifest.sha256(Path(toolchain.__file__).read_bytes())
    asked = repr((str(source.relative_to(ASM_SRC)), str(compiler), arch, defines, flags, by))
    entry = folder / manifest.sha256(asked.encode())
    if found := _read(entry):
        return found
    started = time.time_ns()
    compiled = compile_hip(source, compiler, arch, defines, flags)
    if any(path.stat().st_mtime_ns >= started for path in compiled.sources):
        return compiled  # of which state of a file nobody knows
    fields = {
        "sources": {
            str(path.relative_to(ASM_SRC)): manifest.source_sha256(path)
            for path in compiled.sources
        },
        "code_object": base64.b64encode(compiled.code_object).decode("ascii"),
        "assembly": compiled.assembly,
    }
    folder.mkdir(parents=True, exist_ok=True)
    written = entry.with_name(f"{entry.name}.{os.getpid()}")
    written.write_bytes(zlib.compress(json.dumps(fields).encode(), level=1))
    written.replace(entry)  # another process may be reading or writing it
    return compiled


def _read(entry: Path) -> Compiled | None:
    if not entry.exists():
        return None
    fields = json.loads(zlib.decompress(entry.read_bytes()))
    sources = {ASM_SRC / name: digest for name, digest in fields["sources"].items()}
    if any(
        not path.exists() or manifest.source_sha256(path) != digest
        for path, digest in sources.items()
    ):
        return None
    code_object = base64.b64decode(fields["code_object"])
    return Compiled(code_object, fields["assembly"], tuple(sources))
