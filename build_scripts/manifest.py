"""What a code object says of itself, and its row in hsaco/manifest.json."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cffi
import msgspec
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection

from amdattn.device import manifest_schema

# ELF: e_ident[EI_ABIVERSION] of an AMD HSA object, and the note that carries the metadata.
_EI_ABIVERSION = 8
_CODE_OBJECT_OF_ABI = {2: 4, 3: 5, 4: 6}
_NT_AMDGPU_METADATA = 32

_KERNEL_DESCRIPTOR_BYTES = 64
_VGPR_GRANULE = 8  # gfx90a and later allocate VGPRs by eights


class CodeObjectError(ValueError):
    """A code object is not what its source, its C header or its own descriptor promise."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What one kernel needs, from the metadata, checked against its kernel descriptor.

    `vgpr` counts the unified registers of a lane, AGPRs among them; `lds_bytes` is static.
    """

    vgpr: int
    agpr: int
    sgpr: int
    lds_bytes: int
    scratch_bytes: int
    vgpr_spills: int
    sgpr_spills: int
    kernarg_bytes: int
    max_workgroup: int


class CodeObject:
    """A parsed AMD HSA code object.

    Parameters
    ----------
    image : bytes
        The whole ELF file.
    """

    def __init__(self, image: bytes) -> None:
        self.image = image
        self._elf = ELFFile(io.BytesIO(image))
        self.version = _CODE_OBJECT_OF_ABI[image[_EI_ABIVERSION]]
        self._metadata = self._read_metadata()
        self.target: str = self._metadata["amdhsa.target"]
        self.kernels: tuple[str, ...] = tuple(k[".name"] for k in self._metadata["amdhsa.kernels"])

    def args(self, kernel: str) -> list[dict[str, Any]]:
        """The metadata's argument list; absent means none."""
        return list(self._kernel(kernel).get(".args", []))

    def resources(self, kernel: str) -> Resources:
        """Registers, LDS, scratch and kernarg bytes of `kernel`.

        Raises
        ------
        CodeObjectError
            Metadata and kernel descriptor contradict each other.
        """
        row = self._kernel(kernel)
        found = Resources(
            vgpr=row[".vgpr_count"],
            agpr=row[".agpr_count"],
            sgpr=row[".sgpr_count"],
            lds_bytes=row[".group_segment_fixed_size"],
            scratch_bytes=row[".private_segment_fixed_size"],
            vgpr_spills=row[".vgpr_spill_count"],
            sgpr_spills=row[".sgpr_spill_count"],
            kernarg_bytes=row[".kernarg_segment_size"],
            max_workgroup=row[".max_flat_workgroup_size"],
        )
        descriptor = self.data(row[".symbol"], _KERNEL_DESCRIPTOR_BYTES)
        lds, scratch, kernarg = struct.unpack_from("<3I", descriptor, 0)
        (rsrc1,) = struct.unpack_from("<I", descriptor, 48)
        # More VGPRs than are used may be allocated: as many as the LDS leaves to each wave.
        vgprs = ((rsrc1 & 0x3F) + 1) * _VGPR_GRANULE
        expected = (found.lds_bytes, found.scratch_bytes, found.kernarg_bytes)
        if (lds, scratch, kernarg) != expected or vgprs < found.vgpr:
            raise CodeObjectError(
                f"{kernel}: descriptor has (lds, scratch, kernarg) = {(lds, scratch, kernarg)} and "
                f"{vgprs} VGPRs, metadata {expected} and {found.vgpr}"
            )
        return found

    def data(self, symbol: str, size: int) -> bytes:
        """`size` bytes at a symbol of the dynamic symbol table."""
        table = self._elf.get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        symbols = table.get_symbol_by_name(symbol)
        if not symbols:
            raise CodeObjectError(f"no symbol {symbol}")
        address = symbols[0]["st_value"]
        for offset in self._elf.address_offsets(address, size):
            return self.image[offset : offset + size]
        raise CodeObjectError(f"symbol {symbol} has no bytes in the file")

    def _kernel(self, name: str) -> dict[str, Any]:
        for row in self._metadata["amdhsa.kernels"]:
            if row[".name"] == name:
                return dict(row)
        raise CodeObjectError(f"no kernel {name}; the code object has {', '.join(self.kernels)}")

    def _read_metadata(self) -> dict[str, Any]:
        for section in self._elf.iter_sections():
            if isinstance(section, NoteSection):
                for note in section.iter_notes():
                    if note["n_name"] == "AMDGPU" and int(note["n_type"]) == _NT_AMDGPU_METADATA:
                        return msgspec.msgpack.decode(note["n_descdata"], type=dict[str, Any])
        raise CodeObjectError("no AMDGPU metadata note")


def struct_layout(header: Path, name: str) -> tuple[int, list[list[Any]]]:
    """Size of a C struct and its fields in memory order: name, offset, size, C type."""
    ffi = cffi.FFI()
    ffi.cdef(header.read_text(encoding="utf-8"))
    ctype = ffi.typeof(name)
    fields = [
        [field_name, field.offset, ffi.sizeof(field.type.cname), field.type.cname]
        for field_name, field in ctype.fields
    ]
    return ffi.sizeof(name), fields


def kernarg(code: CodeObject, kernel: str, header: Path, name: str) -> dict[str, Any]:
    """The manifest's account of the kernarg block: struct `name`, and nothing else.

    The kernel takes it by value, or each field as an argument of its own.

    Raises
    ------
    CodeObjectError
        The code object takes other arguments, or a struct of another size, or hidden ones.
    """
    size, fields = struct_layout(header, name)
    told = [(arg[".offset"], arg[".size"]) for arg in code.args(kernel)]
    kinds = {arg[".value_kind"] for arg in code.args(kernel)}
    allowed = ([(0, size)], [(offset, nbytes) for _, offset, nbytes, _ in fields])
    if kinds != {"by_value"} or told not in allowed:
        raise CodeObjectError(
            f"{kernel}: {header.name} has {name} of {size} bytes, the code object takes (offset, "
            f"size) {told} of kinds {sorted(kinds)}"
        )
    if code.resources(kernel).kernarg_bytes != size:
        raise CodeObjectError(
            f"{kernel}: {header.name} has {name} of {size} bytes, the code object takes "
            f"{code.resources(kernel).kernarg_bytes} bytes"
        )
    return {"struct": name, "header": header.name, "size": size, "fields": fields}


def sha256(data: bytes) -> str:
    """Hexadecimal digest."""
    return hashlib.sha256(data).hexdigest()


def source_sha256(path: Path) -> str:
    """Digest of what the compiler sees of a source: comments and blank lines do not count."""
    return _digest_of_code(path.read_text(encoding="utf-8"))


@functools.cache
def _digest_of_code(text: str) -> str:
    text = _COMMENT_OR_QUOTED.sub(lambda found: " " if found[0].startswith("/") else found[0], text)
    lines = (line.rstrip() for line in text.splitlines())
    return sha256("\n".join(line for line in lines if line).encode())


# Quoted text is matched so that what looks like a comment in it stays.
_COMMENT_OR_QUOTED = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL
)


def render(rows: list[dict[str, Any]]) -> str:
    """The text of manifest.json: a line for each kernarg struct, source and kernel.

    Raises
    ------
    CodeObjectError
        Two kernels were built with different headers of one struct.
    ManifestError
        A row says what no reader takes: `amdattn.device.manifest_schema` has the rules.
    """
    kernargs: dict[str, Any] = {}
    sources: dict[tuple[str, str], int] = {}  # path and sha256 of each, and where they stand
    named = []
    for row in rows:
        layout = {key: row["kernarg"][key] for key in _LAYOUT}
        name = row["kernarg"]["struct"]
        if kernargs.setdefault(name, layout) != layout:
            raise CodeObjectError(
                f"{row['name']} has another {name} than the kernels before it; build all"
            )
        places = [sources.setdefault(one, len(sources)) for one in row["source_sha256"].items()]
        of_row = {key: value for key, value in row.items() if key != "source_sha256"}
        named.append({**of_row, "kernarg": name, "sources": places})
    digest = _BLANK_DIGEST
    document = {
        "schema": manifest_schema.SCHEMA,
        manifest_schema.DIGEST: digest,
        "kernargs": kernargs,
        "sources": [list(source) for source in sources],
        "kernels": named,
    }
    manifest_schema.check(Path("manifest.json"), document)
    text = _lines(document)
    return text.replace(digest, manifest_schema.digest_of(text.encode(), digest), 1)


_BLANK_DIGEST = 64 * "0"  # in the place of the document's own until it is known
_LAYOUT = ("header", "size", "fields")


def _lines(document: dict[str, Any]) -> str:
    """JSON with a line for each member of each member."""
    members = []
    for name, value in document.items():
        if isinstance(value, dict):
            inner = [f"{json.dumps(key)}: {json.dumps(one)}" for key, one in value.items()]
            text = "{\n " + ",\n ".join(inner) + "\n}"
        elif isinstance(value, list):
            text = "[\n " + ",\n ".join(map(json.dumps, value)) + "\n]"
        else:
            text = json.dumps(value)
        members.append(f"{json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(members) + "\n}\n"


def read_rows(folder: Path) -> dict[str, dict[str, Any]]:
    """The rows of a manifest by symbol, as `render` takes them."""
    document = manifest_schema.read(folder / "manifest.json")
    return {row["symbol"]: _whole(row, folder, document) for row in document["kernels"]}


def _whole(row: dict[str, Any], folder: Path, document: dict[str, Any]) -> dict[str, Any]:
    """A row with all that it refers to."""
    found = {
        **row,
        "kernarg": {"struct": row["kernarg"], **document["kernargs"][row["kernarg"]]},
    }
    if document["schema"] == manifest_schema.FORMER_SCHEMA:
        return {**found, "bytes": (folder / row["file"]).stat().st_size}
    sources = [document["sources"][place] for place in found.pop("sources")]
    return {**found, "source_sha256": dict(sources)}
