"""Source lines of instructions, from the DWARF line table of a code object."""

from __future__ import annotations

import bisect
import io
import os
from typing import Any


class SourceLines:
    """Finds the source line that an instruction was compiled from.

    Parameters
    ----------
    image : bytes or None
        ELF image of a code object. Without debug info every lookup gives None.
    """

    def __init__(self, image: bytes | None) -> None:
        rows = _read_rows(image) if image else []
        self._addresses = [address for address, _ in rows]
        self._places = [place for _, place in rows]

    def __bool__(self) -> bool:
        return bool(self._addresses)

    def at(self, pc: int | None) -> tuple[str, int] | None:
        """File (with its folder, as the compiler recorded it) and line; None if unknown."""
        if pc is None:
            return None
        at = bisect.bisect_right(self._addresses, pc) - 1
        return self._places[at] if at >= 0 else None

    def text(self, pc: int | None) -> str | None:
        """The place as "file:line", relative to the working directory for files inside it."""
        place = self.at(pc)
        return None if place is None else f"{_shortened(place[0])}:{place[1]}"


def _shortened(path: str) -> str:
    here = os.path.join(os.getcwd(), "")
    return path.removeprefix(here)


def _read_rows(image: bytes) -> list[tuple[int, tuple[str, int] | None]]:
    """Ascending (address, place); a place of None ends a sequence, as does line 0."""
    from elftools.elf.elffile import ELFFile

    rows: dict[int, tuple[str, int] | None] = {}
    # Debug info is optional and may be malformed in any way, for which pyelftools raises any
    # exception; then there are no source lines.
    try:
        elf = ELFFile(io.BytesIO(image))
        if not elf.has_dwarf_info():
            return []
        dwarf = elf.get_dwarf_info()
        for unit in dwarf.iter_CUs():
            program = dwarf.line_program_for_CU(unit)
            if program is None:
                continue
            folder = unit.get_top_DIE().attributes.get("DW_AT_comp_dir")
            names = _file_names(program, folder.value if folder else b"")
            for entry in program.get_entries():
                state = entry.state
                if state is None:
                    continue
                if state.end_sequence:
                    rows.setdefault(state.address, None)
                elif state.line:
                    rows[state.address] = (names.get(state.file, "?"), state.line)
                else:
                    rows[state.address] = None  # code without a line
    except Exception:
        return []
    return sorted(rows.items(), key=lambda row: row[0])


def _file_names(program: Any, folder: bytes) -> dict[int, str]:
    """File names by number: from 1 up to DWARF 4, from 0 since DWARF 5."""
    header = program.header
    first = 0 if header["version"] >= 5 else 1
    folders = list(header["include_directory"])
    if first == 1:
        folders.insert(0, folder)
    names = {}
    for number, entry in enumerate(header["file_entry"], first):
        parts = (folder, folders[entry.dir_index], entry.name)
        names[number] = os.path.normpath(os.path.join(*(os.fsdecode(part) for part in parts)))
    return names
