"""The virtual device with one constant of its performance model changed, for sensitivities."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from amdattn.device.x86_level import library_name
from build_scripts import virtual_device

LEVEL = "v3"
_CONSTANTS = virtual_device.SOURCES / "arch" / "gfx942.cc"
_MODEL = "arch_cold"  # the translation unit with everything that knows the constants


@dataclass(frozen=True)
class Variant:
    """One constant, its value in the model, and others that sources or doubt allow."""

    constant: str
    meaning: str
    values: tuple[int, ...]

    @property
    def value(self) -> int:
        """As the table of the architecture has it."""
        found = _pattern(self.constant).search(_CONSTANTS.read_text(encoding="utf-8"))
        if not found:
            raise ValueError(f"{_CONSTANTS} has no constant {self.constant}")
        return int(found[2])


# The most uncertain ones, and two more that a reader may ask for.
VARIANTS = (
    Variant("mfma_lost_slots", "VALU slots an MFMA takes besides its own", (0, 2)),
    Variant("lds_latency", "clk from LDS service to data", (64, 88)),
    Variant("barrier", "clk from the last arrival to the release", (0, 32)),
    Variant("lds_back_to_back", "clk between two LDS instructions of a wave", (4, 16)),
    Variant("convert", "clk of the VALU for a conversion to or from f32", (4,)),
    Variant("l2_latency", "clk of an L2 hit", (150, 288)),
    Variant("lds_queue", "LDS instructions under way per port", (8, 64)),
    Variant("taken_branch", "clk of a taken branch", (32,)),
)


def _pattern(constant: str) -> re.Pattern[str]:
    return re.compile(rf"(\b{constant} = )(\d+)")


def build(constants: Mapping[str, int], work: Path, out: Path) -> Path:
    """A library with these values; everything but the model is taken from the objects in `work`."""
    text = _CONSTANTS.read_text(encoding="utf-8")
    for constant, value in constants.items():
        text, count = _pattern(constant).subn(rf"\g<1>{value}", text)
        if count != 1:
            raise ValueError(f"{_CONSTANTS} has {count} constants {constant}, not one")
    (out / "arch").mkdir(parents=True, exist_ok=True)
    (out / "arch" / _CONSTANTS.name).write_text(text, encoding="utf-8")
    changed = out / f"{_MODEL}.o"
    flags = [f"-I{out}", *virtual_device.COMMON_FLAGS]  # finds this table first
    unit = work / f"{_MODEL}.cc"
    subprocess.run(
        [*virtual_device.compiler(LEVEL), *flags, "-c", str(unit), "-o", str(changed)],
        check=True,
    )
    sources = sorted(virtual_device.SOURCES.rglob("*.cc"))
    hot = [s.relative_to(virtual_device.SOURCES) for s in sources if virtual_device.is_hot(s)]
    objects = [work / LEVEL / source.with_suffix(".o") for source in hot]
    cold = [obj for obj in (work / virtual_device.BASELINE).glob("*_cold.o") if obj.stem != _MODEL]
    return virtual_device.link([*objects, changed, *cold], out / library_name(LEVEL))
