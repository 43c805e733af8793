"""Places in a kernel named by their instructions, which a rebuild that moves them leaves as names.

A pattern is a run of instructions, one a line, of which `>` marks the site itself:

    v_cmp_gt_i32 vcc, s, v
  > s_and_saveexec_b64 s[2], vcc
    s_cbranch_execz
    global_store_dwordx4 v[2], v[4], off offset:#

Registers have lost their numbers and kept their width, mnemonics the encoding (`_e32`, `_e64`), and
branches their distance: what a compiler chooses anew after a change elsewhere. `#` stands for any
number. Everything else is as the disassembler writes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from benchmarks.checker_mutation.code import Instruction
from benchmarks.checker_mutation.kernel import KernelCode

# Instructions of a pattern besides the site: fewer would name a kind of place, not a place.
LEAST_NEIGHBOURS = 3

_MARK = ">"
_ENCODING = re.compile(r"_e(?:32|64)$")
_RANGE = re.compile(r"\b([sva])\[(\d+):(\d+)\]")
_SINGLE = re.compile(r"\b([sva])\d+\b")
_NUMBER = r"-?(?:0x[0-9a-f]+|\d+(?:\.\d+)?)"


def line(inst: Instruction) -> str:
    """An instruction as patterns have it."""
    mnemonic = _ENCODING.sub("", inst.mnemonic)
    if inst.target is not None:
        return mnemonic
    rest = inst.text.partition(" ")[2].strip()
    rest = _RANGE.sub(lambda m: f"{m[1]}[{int(m[3]) - int(m[2]) + 1}]", rest)
    return f"{mnemonic} {_SINGLE.sub(lambda m: m[1], rest)}".rstrip()


@dataclass(frozen=True)
class Pattern:
    """A run of instructions with a site in it.

    Raises
    ------
    ValueError
        No line, or more than one, is the site, or there are too few others.
    """

    text: str

    def __post_init__(self) -> None:
        marks = sum(line.startswith(_MARK) for line in self._lines)
        if marks != 1:
            raise ValueError(f"{marks} lines of a pattern are its site, not one:\n{self.text}")
        if len(self._lines) <= LEAST_NEIGHBOURS:
            raise ValueError(
                f"a pattern needs {LEAST_NEIGHBOURS} instructions besides its site:\n{self.text}"
            )

    @cached_property
    def _lines(self) -> list[str]:
        return [line.strip() for line in self.text.strip().splitlines()]

    @cached_property
    def _at(self) -> int:
        """Index of the site."""
        return next(i for i, line in enumerate(self._lines) if line.startswith(_MARK))

    @cached_property
    def _expressions(self) -> list[re.Pattern[str]]:
        texts = [line.removeprefix(_MARK).strip() for line in self._lines]
        return [re.compile(re.escape(text).replace(r"\#", _NUMBER)) for text in texts]

    def find(self, code: KernelCode) -> tuple[int, ...]:
        """Addresses of its sites in the reachable code."""
        lines, size = _lines_of(code), len(self._expressions)
        site = self._expressions[self._at]
        return tuple(
            code.instructions[i].pc
            for i in range(self._at, len(lines) - size + self._at + 1)
            if site.fullmatch(lines[i])
            and code.instructions[i].pc in code.reachable
            and all(
                wanted.fullmatch(lines[i - self._at + j])
                for j, wanted in enumerate(self._expressions)
            )
        )


def window(code: KernelCode, pc: int, before: int, after: int) -> str:
    """The text of a pattern of what is around an address."""
    at = code.index[pc]
    first, end = max(0, at - before), at + after + 1
    return "\n".join(
        f"{_MARK if i == at else ' '} {text}"
        for i, text in enumerate(_lines_of(code)[first:end], first)
    )


def smallest(code: KernelCode, pc: int) -> str:
    """The text of a pattern that has no other site, or as many as a long one has."""
    most = len(Pattern(window(code, pc, _LONG, _LONG)).find(code))
    for neighbours in range(LEAST_NEIGHBOURS, 2 * _LONG):
        text = window(code, pc, (neighbours + 1) // 2, neighbours // 2)
        if len(Pattern(text).find(code)) == most:
            break
    return text


_LONG = 12


def _lines_of(code: KernelCode) -> list[str]:
    """Of every instruction; made once for a kernel."""
    known = _KNOWN.get(code.instructions)
    if known is None:
        _KNOWN.clear()
        known = _KNOWN[code.instructions] = [line(inst) for inst in code.instructions]
    return known


_KNOWN: dict[tuple[Instruction, ...], list[str]] = {}
