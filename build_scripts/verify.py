"""Rebuild hsaco/ elsewhere and compare byte for byte: `python -m build_scripts.verify`."""

from __future__ import annotations

import argparse
import difflib
import sys
import tempfile
from pathlib import Path

from build_scripts import schedules
from build_scripts.build import HSACO, build_all


def differences(shipped: Path, rebuilt: Path) -> list[str]:
    """What distinguishes two folders of code objects, a text a file; empty if nothing does."""
    found = []
    names = {path.relative_to(root) for root in (shipped, rebuilt) for path in _files(root)}
    for name in sorted(names):
        ours, theirs = shipped / name, rebuilt / name
        if not theirs.exists():
            found.append(f"{name}: shipped, but no kernel of the build table makes it")
        elif not ours.exists():
            found.append(f"{name}: built, but not shipped")
        elif ours.read_bytes() != theirs.read_bytes():
            describe = _text_difference if name.suffix == ".json" else _binary_difference
            found.append(describe(str(name), ours.read_bytes(), theirs.read_bytes()))
    return found


def _files(root: Path) -> list[Path]:
    return [*root.rglob("*.hsaco"), *root.rglob("manifest.json")]


def _text_difference(name: str, shipped: bytes, rebuilt: bytes) -> str:
    lines = difflib.unified_diff(
        shipped.decode().splitlines(),
        rebuilt.decode().splitlines(),
        f"{name} (shipped)",
        f"{name} (rebuilt)",
        lineterm="",
    )
    return "\n".join(lines)


def _binary_difference(name: str, shipped: bytes, rebuilt: bytes) -> str:
    pairs = list(zip(shipped, rebuilt, strict=False))
    differing = [at for at, (a, b) in enumerate(pairs) if a != b]
    first = differing[0] if differing else len(pairs)
    return (
        f"{name}: {len(shipped)} bytes shipped, {len(rebuilt)} rebuilt, {len(differing)} of the "
        f"common bytes differ, the first at {first:#x}"
    )


def main() -> int:
    """Command line; exit status 1 if anything differs."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="amdattn-verify-") as name:
        rebuilt = Path(name)
        built = build_all(rebuilt)
        found = differences(HSACO, rebuilt)
    found += [f"{name}.txt: not as asm_src/attn/schedule.h" for name in schedules.stale()]
    for text in found:
        print(text, file=sys.stderr)
    if found:
        print(
            "hsaco/ or asm_src/attn/schedules/ is not what asm_src/ builds; run python -m "
            "build_scripts.build, python -m build_scripts.schedules",
            file=sys.stderr,
        )
        return 1
    print(
        f"hsaco/ matches its sources: {len(built)} code objects and the micro kernels, to the byte"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
