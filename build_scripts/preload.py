"""Kernel arguments that are in SGPRs when a workgroup starts: each is a parameter of its own."""

from __future__ import annotations

from build_scripts.manifest import struct_layout
from build_scripts.toolchain import ASM_SRC

# The flags of a kernel whose first arguments come so.
FLAGS = ("-mllvm", "-amdgpu-kernarg-preload-count=14")  # dwords


def defines(header: str, struct: str) -> dict[str, str]:
    """The fields of a struct in asm_src/args as PARAMETERS, and their names as ARGUMENTS."""
    _, fields = struct_layout(ASM_SRC / "args" / header, struct)
    return {
        "PARAMETERS": ", ".join(f"{c_type} {name}" for name, _, _, c_type in fields),
        "ARGUMENTS": ", ".join(name for name, *_ in fields),
    }
