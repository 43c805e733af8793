"""The exported symbols, and the layout of every structure, against compiled bindings."""

from __future__ import annotations

import ctypes
import importlib
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from tests.support.paths import ROOT

SOURCES = ROOT / "virtual_device" / "hip"
OWN = (  # amdattn_vdev_*
    "abi", "last_report", "set_option", "counter", "instructions",
    "take_findings", "declare", "code_object", "listing", "take_profiles", "coexecution",
    "machines", "play", "borrow", "give_back",
)  # fmt: skip
STRUCTS = {  # name in hip_abi.h -> name in the bindings
    "hipDeviceProp_t": "hipDeviceProp_t",
    "hipPointerAttribute_t": "hipPointerAttribute_t",
    "hipFuncAttributes": "hipFuncAttributes",
    "hipChannelFormatDesc": "hipChannelFormatDesc",
    "hipPitchedPtr": "hipPitchedPtr",
    "hipExtent": "hipExtent",
    "hipPos": "hipPos",
    "hipMemcpy3DParms": "hipMemcpy3DParms",
    "hip_Memcpy2D": "hip_Memcpy2D",
    "hipMemLocation": "hipMemLocation",
    "hipMemAccessDesc": "hipMemAccessDesc",
    "hipMemPoolProps": "hipMemPoolProps",
    "hipLaunchConfig_t": "hipLaunchConfig_st",
    "HIP_LAUNCH_CONFIG": "HIP_LAUNCH_CONFIG_st",
    "hipHostNodeParams": "hipHostNodeParams",
    "hipKernelNodeParams": "hipKernelNodeParams",
    "hipMemsetParams": "hipMemsetParams",
    "hipGraphInstantiateParams": "hipGraphInstantiateParams",
    "dim3": "dim3",
}


def symbols() -> set[str]:
    return set((SOURCES / "symbols.txt").read_text().split())


def bound_symbols() -> set[str]:
    """Names that the installed bindings resolve, from the sources that the wheel brings along."""
    for module, name in (("rocm.bindings", "cyhip.pyx"), ("hip", "chip.pyx")):
        try:
            directory = Path(importlib.import_module(module).__path__[0])
        except ImportError:
            continue
        text = (directory / name).read_text()
        return set(re.findall(r'__init_symbol\(&\w+,\s*"(\w+)"\)', text))
    raise AssertionError("no bindings")


def test_every_symbol_of_the_bindings_is_exported(hip: Any) -> None:
    assert bound_symbols() <= symbols()
    missing = [name for name in symbols() if not hasattr(hip.lib, name)]
    assert not missing


def test_nothing_else_is_exported(hip: Any) -> None:
    own = {f"amdattn_vdev_{n}" for n in OWN}
    with open(hip.path, "rb") as library:
        dynamic = ELFFile(library).get_section_by_name(".dynsym").iter_symbols()
        exported = {s.name for s in dynamic if s.entry.st_shndx != "SHN_UNDEF"}
    others = {name for name in exported if not name.startswith(("vdev_test_", "hsa_"))}
    assert others == symbols() | own


def test_generated_source_is_up_to_date() -> None:
    script = SOURCES / "generate_unsupported.py"
    subprocess.run([sys.executable, str(script), "--check"], check=True)


def test_unsupported_calls_say_so(hip: Any) -> None:
    assert hip.lib.hipIpcGetMemHandle(None, None) == hip.errors.hipErrorNotSupported
    assert hip.hip.hipGetLastError()[0] == hip.errors.hipErrorNotSupported


@pytest.fixture(scope="module")
def offsets(hip: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    """Size (under "") and field offsets of the structures, as a C++ compiler sees hip_abi.h."""
    directory = tmp_path_factory.mktemp("abi")
    asked = []
    for ours, theirs in STRUCTS.items():
        asked.append((ours, "", f"sizeof({ours})"))
        for field in getattr(hip.hip, theirs).PROPERTIES():
            asked.append((ours, field, f"offsetof({ours}, {field})"))
    (directory / "offsets.cc").write_text(
        '#include <cstddef>\n#include "hip/hip_device_prop.h"\n'
        'extern "C" const unsigned long long offsets[] = {\n'
        + ",\n".join(expression for _, _, expression in asked)
        + "\n};\n"
    )
    # Not linked: a C++ library would have to be compiled for that first, which takes minutes.
    compiler = [sys.executable, "-m", "ziglang", "c++", "-std=c++20", f"-I{SOURCES.parent}"]
    source, made = directory / "offsets.cc", directory / "offsets.o"
    subprocess.run([*compiler, "-c", str(source), "-o", str(made)], check=True)
    with made.open("rb") as file:
        elf = ELFFile(file)
        (symbol,) = elf.get_section_by_name(".symtab").get_symbol_by_name("offsets")
        data = elf.get_section(symbol["st_shndx"]).data()
        at = symbol["st_value"]
        values = struct.unpack_from(f"<{len(asked)}Q", data, at)
    table: dict[str, dict[str, int]] = {}
    for (name, field, _), value in zip(asked, values, strict=True):
        table.setdefault(name, {})[field] = value
    return table


class Probe:
    """Finds where the bindings keep the fields of one structure."""

    def __init__(self, struct: Any) -> None:
        self.struct = struct
        self.view = (ctypes.c_ubyte * struct.c_sizeof()).from_address(int(struct))

    def clear(self) -> None:
        ctypes.memset(ctypes.addressof(self.view), 0, len(self.view))

    def written_offset(self, field: str) -> int | None:
        """The first byte that changes when the field is set; None if it cannot be set."""
        members = list(getattr(type(getattr(self.struct, field)), "__members__", {}).values())
        for value in (0xA7, *members):
            self.clear()
            try:
                setattr(self.struct, field, value)
            except (TypeError, AttributeError, ValueError, OverflowError, RuntimeError):
                continue
            changed = [i for i, byte in enumerate(self.view) if byte]
            if changed:
                return changed[0]
        return None

    def read_offset(self, field: str) -> int | None:
        """Where the object lies that the field is read as, or the byte that its text begins at."""
        self.clear()
        value = getattr(self.struct, field)
        if not isinstance(value, (str, bytes)):
            try:
                offset = int(value) - int(self.struct)
            except TypeError:
                return None
            return offset if 0 <= offset < len(self.view) else None
        for i in range(len(self.view)):
            self.clear()
            self.view[i] = ord("x")
            if len(getattr(self.struct, field)) == 1:
                return i
        return None


@pytest.mark.parametrize(("ours", "theirs"), STRUCTS.items())
def test_layout(hip: Any, offsets: dict[str, dict[str, int]], ours: str, theirs: str) -> None:
    binding = getattr(hip.hip, theirs)
    struct = binding()
    assert offsets[ours][""] == struct.c_sizeof()
    probe = Probe(struct)
    not_found = []
    for field in binding.PROPERTIES():
        found = probe.written_offset(field)
        if found is None:
            found = probe.read_offset(field)
        if found is None:
            not_found.append(field)
        else:
            assert (field, offsets[ours][field]) == (field, found)
    print(f"{ours}: could not compare {not_found}")
    assert len(not_found) <= len(binding.PROPERTIES()) // 4


def test_enumerations(hip: Any) -> None:
    """Every enumerator of hip_abi.h has the value that the bindings know."""
    text = (SOURCES / "hip_abi.h").read_text() + (SOURCES / "hip_device_prop.h").read_text()
    known: dict[str, int] = {}
    for name in dir(hip.hip):
        members = getattr(getattr(hip.hip, name), "__members__", {})
        known |= {k: int(v) for k, v in members.items() if not k.startswith("_")}
    compared = 0
    for body in re.findall(r"enum \w+ : int \{(.*?)\};", text, re.DOTALL):
        value = -1
        for name, given in re.findall(r"(\w+)(?: = (-?\w+))?\s*[,}\n]", body + "\n"):
            value = int(given, 0) if given else value + 1
            if name in known:
                assert (name, value) == (name, known[name])
                compared += 1
    assert compared > 150


def test_error_codes(hip: Any) -> None:
    text = (SOURCES / "error_codes.h").read_text()
    ours = {n: int(v) for n, v in re.findall(r"X\((hipError\w+|hipSuccess), (\d+),", text)}
    theirs = {n: int(v) for n, v in hip.errors.__members__.items()}
    assert len(ours) == 80
    common = ours.keys() & theirs.keys() - {"hipErrorTbd"}  # moved with every addition
    assert len(common) >= 75
    assert all(ours[name] == theirs[name] for name in common)
