"""Rebuild hsaco/ elsewhere and compare byte for byte.

    python -m build_scripts.verify [--share N]

All of it takes 20 minutes on two cores. --share N rebuilds every Nth kernel. Which ones follows
from the manifest: whenever a kernel changes others are rebuilt.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from amdattn.device import manifest_schema, packs
from build_scripts import manifest, packed_objects, schedules
from build_scripts.build import HSACO, KERNELS, build, build_all


def differences(shipped: Path, rebuilt: Path) -> list[str]:
    """What distinguishes two folders of code objects, a text a file; empty if nothing does."""
    found = []
    ours, theirs = _contents(shipped), _contents(rebuilt)
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in theirs:
            found.append(f"{name}: shipped, but no kernel of the build table makes it")
        elif name not in ours:
            found.append(f"{name}: built, but not shipped")
        elif ours[name] != theirs[name]:
            describe = _text_difference if name.endswith(".json") else _binary_difference
            found.append(describe(name, ours[name], theirs[name]))
    return found


def _contents(root: Path) -> dict[str, bytes]:
    """Manifests and code objects, which may be in other packs, or compressed otherwise."""
    texts = [root / "manifest.json", *root.glob("micro/*.json")]
    found = {str(path.relative_to(root)): path.read_bytes() for path in texts}
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        for name, image in packed_objects.read_folder(folder).items():
            found[f"{folder.name}/{name}"] = image
    return found


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


def differences_of_share(shipped: Path, share: int) -> tuple[int, list[str]]:
    """How many kernels one of `share` is, and what distinguishes these from what is built anew."""
    rows = manifest.read_rows(shipped)
    first = int(manifest_schema.read(shipped / "manifest.json")[manifest_schema.DIGEST], 16) % share
    chosen = KERNELS[first::share]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = list(pool.map(build, chosen))
    found = []
    for one in built:
        image = packs.read(shipped / one.kernel.file, packs.MOST_BYTES)
        if image != one.image:
            found.append(_binary_difference(one.kernel.file, image, one.image))
        row = rows[one.kernel.symbol]
        for key in row.keys() | one.row.keys():
            if row.get(key) != one.row.get(key):
                have, made = row.get(key), one.row.get(key)
                found.append(
                    f"manifest.json, {one.kernel.symbol}: {key}={have!r}, rebuilt {made!r}"
                )
    return len(chosen), found


def main() -> int:
    """Command line; exit status 1 if anything differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--share", type=int, default=1, metavar="N", help="one kernel of N")
    share = parser.parse_args().share
    if share < 1:
        parser.error(f"--share={share} must be 1 or more")
    if share == 1:
        with tempfile.TemporaryDirectory(prefix="amdattn-verify-") as name:
            rebuilt = Path(name)
            count = len(build_all(rebuilt))
            found = differences(HSACO, rebuilt)
    else:
        count, found = differences_of_share(HSACO, share)
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
    if share == 1:
        print(
            f"hsaco/ matches its sources: {count} code objects and the micro kernels, to the byte"
        )
    else:
        print(f"{count} of {len(KERNELS)} code objects match their sources, to the byte")
    return 0


if __name__ == "__main__":
    sys.exit(main())
