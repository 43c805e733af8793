"""The metadata of a code object's kernels, from the note of the AMDGPU ABI."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_NOTE_OWNER, _NOTE_TYPE = "AMDGPU", 32  # NT_AMDGPU_METADATA
_RESOURCES = {
    "vgpr": ".vgpr_count",
    "agpr": ".agpr_count",
    "sgpr": ".sgpr_count",
    "lds_bytes": ".group_segment_fixed_size",
    "scratch_bytes": ".private_segment_fixed_size",
}
_HIDDEN = "hidden_"  # value kinds of arguments that the runtime adds


@dataclass(frozen=True, slots=True)
class Argument:
    """One explicit argument: its place in the kernarg segment and its kind."""

    name: str
    offset: int
    size: int
    value_kind: str

    @property
    def is_buffer(self) -> bool:
        """Whether it must be a device address."""
        return self.value_kind == "global_buffer"


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """A kernel of a code object; `workgroup` is the size that it was compiled for, if given.

    `resources` are vgpr, agpr and sgpr of a lane or wave, lds_bytes of a workgroup, scratch_bytes
    of a lane.
    """

    name: str
    arguments: tuple[Argument, ...]
    kernarg_bytes: int
    workgroup: tuple[int, int, int] | None
    max_lanes: int
    wave_lanes: int
    resources: Mapping[str, int]

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each explicit argument begins."""
        return tuple(argument.offset for argument in self.arguments)

    @property
    def explicit_bytes(self) -> int:
        """Bytes up to the end of the last explicit argument."""
        return max((argument.offset + argument.size for argument in self.arguments), default=0)


def read_kernels(image: bytes, name: str) -> dict[str, KernelInfo]:
    """The kernels of an ELF code object, by name.

    Parameters
    ----------
    name : str
        The name that errors use.

    Raises
    ------
    ValueError
        The image is not a code object, or has no readable metadata of its kernels.
    """
    if image[:4] != b"\x7fELF":
        raise ValueError(f"{name} is not an ELF code object (it begins with {image[:8]!r})")
    # Neither reader documents its exceptions for malformed input.
    try:
        note = _metadata_note(image)
        found = [_kernel(entry) for entry in note["amdhsa.kernels"]]
    except Exception as error:
        raise ValueError(f"{name} has no readable kernel metadata: {error!r}") from None
    if not found:
        raise ValueError(f"{name} holds no kernel")
    return {kernel.name: kernel for kernel in found}


def has_kernels(image: bytes) -> bool:
    """Whether the metadata of a well-formed code object lists a kernel."""
    return bool(_metadata_note(image)["amdhsa.kernels"])


def _metadata_note(image: bytes) -> Any:
    import msgpack
    from elftools.elf.elffile import ELFFile
    from elftools.elf.segments import NoteSegment

    for segment in ELFFile(io.BytesIO(image)).iter_segments():
        if isinstance(segment, NoteSegment):
            for note in segment.iter_notes():
                if note["n_name"] == _NOTE_OWNER and note["n_type"] in (_NOTE_TYPE, _NOTE_NAME):
                    return msgpack.unpackb(note["n_descdata"])
    raise ValueError("there is no note of the kernels")


_NOTE_NAME = "NT_AMDGPU_METADATA"


def _kernel(entry: Any) -> KernelInfo:
    arguments = [
        Argument(
            str(argument.get(".name", f"argument {i}")),
            int(argument[".offset"]),
            int(argument[".size"]),
            str(argument[".value_kind"]),
        )
        for i, argument in enumerate(entry.get(".args", ()))
        if not str(argument[".value_kind"]).startswith(_HIDDEN)
    ]
    required = entry.get(".reqd_workgroup_size")
    return KernelInfo(
        str(entry[".name"]),
        tuple(arguments),
        int(entry[".kernarg_segment_size"]),
        (int(required[0]), int(required[1]), int(required[2])) if required else None,
        int(entry[".max_flat_workgroup_size"]),
        int(entry[".wavefront_size"]),
        {name: int(entry.get(key, 0)) for name, key in _RESOURCES.items()},
    )
