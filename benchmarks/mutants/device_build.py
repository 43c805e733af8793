"""A quick build of the virtual device that tells which blocks of it run: only what changed anew.

Unlike `build_scripts.virtual_device`: source by source instead of by folder, at -O1, with one
precompiled header that is kept. A change of a source takes a second, one of a header about a second
for each source that includes it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from trials import environment

# As an install builds it, asked of another process: tests are run in forks of this one, without
# amdattn.
_RECIPE = """
import json
from build_scripts.virtual_device import BASELINE, COMMON_FLAGS, PRECOMPILED, compiler
flags = [flag for flag in COMMON_FLAGS if flag not in ("-O2", "-Werror") and flag[:2] != "-I"]
print(json.dumps({"compiler": compiler(LEVEL), "linker": compiler(BASELINE), "flags": flags,
                  "headers": PRECOMPILED}))
"""
_COUNTED = ("-gline-tables-only", "-fsanitize-coverage=inline-bool-flag,pc-table")
# What the library says about itself to reach.py.
_FLAGS_SOURCE = """
#include <cstddef>
#include <cstdint>
static std::uint8_t *first, *last;
static const std::uintptr_t *places;
#define EXPORT __attribute__((visibility("default")))
extern "C" {
void __sanitizer_cov_bool_flag_init(std::uint8_t* begin, std::uint8_t* end) {
  first = begin;
  last = end;
}
void __sanitizer_cov_pcs_init(const std::uintptr_t* begin, const std::uintptr_t*) {
  places = begin;
}
EXPORT std::uint8_t* vdev_test_flags() { return first; }
EXPORT std::size_t vdev_test_num_flags() { return last - first; }
EXPORT const std::uintptr_t* vdev_test_places() { return places; }
}
"""


@dataclass
class QuickBuild:
    """The objects of one tree.

    Attributes
    ----------
    tree : Path
        Of the repository.
    work : Path
        Where objects are kept.
    level : str
        x86-64 level.
    depends : dict[str, set[str]]
        Of each source, the files below `virtual_device` that it includes, and itself.
    """

    tree: Path
    work: Path
    level: str
    depends: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Compile what is not there yet."""
        self.work.mkdir(parents=True, exist_ok=True)
        code = f"LEVEL = {self.level!r}{_RECIPE}"
        said = subprocess.run(
            [sys.executable, "-c", code],
            cwd=self.tree, env=environment(self.tree), capture_output=True, check=True,
        )  # fmt: skip
        self.recipe: dict[str, list[str]] = json.loads(said.stdout)
        flags = [*self.recipe["flags"], "-O1", "-w", f"-I{self.sources}"]
        self._header = self.work / "standard.h"
        if not self._header.with_suffix(".h.gch").exists():
            names = self.recipe["headers"]
            self._header.write_text("".join(f"#include <{name}>\n" for name in names))
            command = [*self.recipe["compiler"], *flags, "-x", "c++-header", str(self._header)]
            subprocess.run([*command, "-o", f"{self._header}.gch"], check=True)
        self._command = [*self.recipe["compiler"], "-include", str(self._header), *flags]
        for source in sorted(self.sources.rglob("*.cc")):
            name = source.relative_to(self.sources).as_posix()
            depfile = self._object(name).with_suffix(".d")
            if not depfile.exists() and not self._compile(name, self._object(name)):
                raise SystemExit(f"{source} does not compile")
            listed = depfile.read_text().partition(":")[2].replace("\\\n", " ").split()
            below = f"{self.sources}/"
            self.depends[name] = {n.removeprefix(below) for n in listed if n.startswith(below)}

    @property
    def sources(self) -> Path:
        """The folder of the device's sources."""
        return self.tree / "virtual_device"

    def library(self, out: Path, changed: str = "") -> bool:
        """Link, with what depends on a file that is `changed` now compiled anew beside the rest.

        Returns
        -------
        bool
            False if it does not compile.
        """
        objects = []
        for name, needed in self.depends.items():
            obj = self._object(name)
            if changed in needed:
                obj = out.parent / "changed" / obj.relative_to(self.work)
                if not self._compile(name, obj):
                    return False
            objects.append(str(obj))
        flags = self.work / "flags.cpp"
        flags.write_text(_FLAGS_SOURCE)
        command = [*self.recipe["linker"], "-shared", "-fPIC", "-Wl,-soname,libamdattn_vdev.so"]
        exports = self.sources / "hip" / "exports.map"
        command += [f"-Wl,--version-script={exports}", *objects, str(flags)]
        return _succeeds([*command, "-lpthread", "-o", str(out)])

    def same_code(self, changed: str, original: Path) -> bool:
        """Whether a file that is changed now makes no difference, beside the `original` sources."""
        out = self.work / "code.s"

        def code(sources: Path, name: str) -> bytes:
            where = [f"-I{sources}", str(sources / name)]
            command = [part for part in self._command if not part.startswith("-I")]
            subprocess.run([*command, "-O2", "-g0", "-S", *where, "-o", str(out)], check=True)
            return out.read_bytes()

        names = [name for name, needed in self.depends.items() if changed in needed]
        return all(code(self.sources, name) == code(original, name) for name in names)

    def _object(self, name: str) -> Path:
        return (self.work / name).with_suffix(".o")

    def _compile(self, name: str, obj: Path) -> bool:
        obj.parent.mkdir(parents=True, exist_ok=True)
        command = [*self._command, *_COUNTED, "-MMD", "-MF", str(obj.with_suffix(".d"))]
        return _succeeds([*command, "-c", str(self.sources / name), "-o", str(obj)])


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
