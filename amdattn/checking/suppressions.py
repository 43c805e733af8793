"""Findings that are known and accepted: a file of kernel, pc, kind and the reason.

    [[suppression]]
    kernel = "lds_reduce"
    pc = 0x4c                  # offset from the kernel's entry
    kind = "lds_race"
    reason = "both waves store the same value"

JSON files hold {"suppression": [...]} with the same keys; a pc may be the string "0x4c" there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amdattn.checking.findings import KINDS, Finding
from amdattn.user_files import read_json, read_toml


@dataclass(frozen=True, slots=True)
class Suppression:
    """One accepted finding; `pc` is the offset from the kernel's entry."""

    kernel: str
    pc: int
    kind: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind} of {self.kernel} at +{self.pc:#x}: {self.reason}"

    def covers(self, finding: Finding) -> bool:
        """Whether the entry accepts a finding."""
        key = (finding.kernel, finding.offset, finding.kind)
        return key == (self.kernel, self.pc, self.kind)


class Suppressions:
    """The entries of a suppressions file.

    Parameters
    ----------
    entries : sequence of Suppression
        No two for the same finding.
    name : str
        Where they come from, for reports.
    """

    def __init__(self, entries: Sequence[Suppression] = (), name: str = "suppressions") -> None:
        self.entries = tuple(entries)
        self.name = name

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Suppressions:
        """Read a .toml or .json file.

        Raises
        ------
        ValueError
            It is malformed; the message names the file and the entry.
        OSError
            It cannot be read.
        """
        file = Path(path)
        document = read_table(file)
        unknown = sorted(set(document) - {"suppression"})
        rows = document.get("suppression")
        if unknown or not isinstance(rows, list):
            have = f"has {', '.join(unknown)}" if unknown else "has no list of them"
            raise ValueError(f'{file}: must hold entries named "suppression" only, but {have}')
        entries: list[Suppression] = []
        for number, row in enumerate(rows, 1):
            try:
                entry = _entry(row)
                if any(_same(entry, other) for other in entries):
                    raise ValueError("repeats an earlier entry")
            except ValueError as error:
                raise ValueError(f"{file}: suppression {number}: {error}") from None
            entries.append(entry)
        return cls(entries, str(file))

    @classmethod
    def of(cls, given: Suppressions | str | os.PathLike[str] | None) -> Suppressions:
        """The entries of an argument `suppressions=`: a file, entries that were read, or none."""
        if given is None:
            return cls()
        return given if isinstance(given, Suppressions) else cls.read(given)

    def split(self, findings: Iterable[Finding]) -> tuple[list[Finding], dict[Suppression, int]]:
        """The findings that no entry covers, and how often each entry was needed."""
        used = dict.fromkeys(self.entries, 0)
        kept = []
        for finding in findings:
            entry = next((entry for entry in self.entries if entry.covers(finding)), None)
            if entry is None:
                kept.append(finding)
            else:
                used[entry] += finding.count
        return kept, used


def read_table(file: Path) -> dict[str, Any]:
    """The table in a .toml or .json file, chosen by its name; ValueError if it is malformed."""
    suffix = file.suffix.lower()
    if suffix not in (".toml", ".json"):
        raise ValueError(f"{file}: must be a .toml or a .json file")
    document = read_toml(file) if suffix == ".toml" else read_json(file)
    if not isinstance(document, dict):
        raise ValueError(f"{file}: must hold a table, not a {type(document).__name__}")
    return document


_KEYS = ("kernel", "pc", "kind", "reason")


def _entry(row: object) -> Suppression:
    if not isinstance(row, Mapping):
        raise ValueError(f"must be a table of {', '.join(_KEYS)}, not {row!r}")
    missing = [key for key in _KEYS if key not in row]
    if missing:
        raise ValueError(f"lacks {', '.join(missing)}; all of {', '.join(_KEYS)} are needed")
    unknown = sorted(set(row) - set(_KEYS))
    if unknown:
        raise ValueError(f"has {', '.join(unknown)}; there is only {', '.join(_KEYS)}")
    for key in ("kernel", "kind", "reason"):
        if not isinstance(row[key], str) or not row[key].strip():
            raise ValueError(f"{key}={row[key]!r} must be a text that is not empty")
    if row["kind"] not in KINDS:
        raise ValueError(f"kind={row['kind']!r} must be one of {', '.join(KINDS)}")
    return Suppression(row["kernel"], _offset(row["pc"]), row["kind"], row["reason"].strip())


def _offset(value: object) -> int:
    try:
        if isinstance(value, str):
            value = int(value, 0)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    except ValueError:
        pass
    raise ValueError(
        f"pc={value!r} must be the instruction's offset from the kernel's entry, e.g. 0x4c"
    )


def _same(one: Suppression, other: Suppression) -> bool:
    return (one.kernel, one.pc, one.kind) == (other.kernel, other.pc, other.kind)
