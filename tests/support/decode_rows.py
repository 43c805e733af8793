"""Rows of the manifest as kernels of attention over a cache have them, of kernels that are none."""

from __future__ import annotations

import dataclasses
import re

from amdattn.device import manifest
from amdattn.device.manifest import Facts, KernargSpec, KernelSpec
from tests.support.paths import ROOT

_BYTES = {"uint64_t": 8, "int64_t": 8, "int32_t": 4, "float": 4}
_HEADER = "attn_decode.h"


def kernarg() -> KernargSpec:
    """Of the header, whose fields follow each other without gaps."""
    text = (ROOT / "asm_src/args" / _HEADER).read_text(encoding="utf-8")
    fields, offset = [], 0
    for kind, name in re.findall(r"^  (\w+) (\w+);", text, re.MULTILINE):
        fields.append((name, offset, _BYTES[kind], kind))
        offset += _BYTES[kind]
    return KernargSpec("AttnDecodeArgs", _HEADER, offset, tuple(fields))


def decode_row(
    rows: int = 16, columns: int = 128, dtype: str = "bfloat16", arch: str = "gfx942"
) -> KernelSpec:
    """One that plans of a device of that architecture take."""
    like = next(row for row in manifest.kernels() if row.arch == arch)  # its file is never read
    name = f"made_up_decode_{dtype}_d{columns}_q{rows}_{arch}"
    return dataclasses.replace(
        like,
        symbol=name,
        sha256=name,
        name=name,
        op="attn_decode",
        dtype=dtype,
        params=Facts(
            name,
            "params",
            {"rows": rows, "columns": columns, "kv_dtype": dtype, "packed": False},
        ),
        tile=Facts(name, "tile", {"rows": rows, "keys": 128}),
        accepts=Facts(name, "accepts", {}),
        grid="shares_of_work",
        workgroup=(256, 1, 1),
        vgpr=128,
        lds_bytes=32768,
        kernarg=kernarg(),
    )


def decode_rows(arch: str = "gfx942") -> tuple[KernelSpec, ...]:
    """A family of them."""
    return tuple(
        decode_row(rows, columns, dtype, arch)
        for dtype in ("bfloat16", "float16")
        for columns in (64, 128, 192, 256)
        for rows in (16, 32, 64)
    )
