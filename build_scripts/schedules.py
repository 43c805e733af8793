"""Write when each instruction of attention's main loop is issued.

`python -m build_scripts.schedules [--check]`

asm_src/attn/schedule.h places them, for the kernels and for this program alike. The texts in
asm_src/attn/schedules are what it comes to, under a legend of their steps; tests compare them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from build_scripts.schedule_legend import with_legend
from build_scripts.toolchain import ASM_SRC, CONSTEXPR_STEPS, LLVM22

PROGRAM = Path(__file__).with_suffix(".cc")
FOLDER = ASM_SRC / "attn" / "schedules"


def schedules() -> dict[str, str]:
    """The text of each member by its name, of the sources as they are.

    Raises
    ------
    subprocess.CalledProcessError
        The program does not compile.
    """
    with tempfile.TemporaryDirectory(prefix="amdattn-schedules-") as folder:
        program = Path(folder) / "schedules"
        compiler = [str(LLVM22.executable()), "c++", "-std=c++20", "-O1", CONSTEXPR_STEPS]
        subprocess.run([*compiler, f"-I{ASM_SRC}", str(PROGRAM), "-o", str(program)], check=True)
        text = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    members = (part.partition("\n") for part in text.split("== ")[1:])
    return {
        name: with_legend(name, "\n".join(line.rstrip() for line in body.splitlines()) + "\n")
        for name, _, body in members
    }


def written() -> dict[str, str]:
    """The texts in asm_src/attn/schedules, by the names of the members."""
    return {file.stem: file.read_text(encoding="utf-8") for file in FOLDER.glob("*.txt")}


def stale() -> list[str]:
    """Members whose text is not what the sources come to, or that one of both has not."""
    made, there = schedules(), written()
    return sorted(name for name in made.keys() | there if made.get(name) != there.get(name))


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    if parser.parse_args().check:
        if names := stale():
            print(
                f"{', '.join(names)}: not as asm_src/attn/schedule.h; run build_scripts.schedules"
            )
        return bool(names)
    FOLDER.mkdir(exist_ok=True)
    for name, text in schedules().items():
        (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
