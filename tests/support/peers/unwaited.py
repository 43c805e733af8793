"""Reads code objects for registers that are used before the load that fills them is waited for.

    python -m tests.support.peers.unwaited FILE_OR_FOLDER ...

Static, and of straight-line code alone: along the instructions as they stand, conditional branches
not taken, from each load to the first use of its registers. What goes around a loop's back edge is
not seen. A place that is printed can be verified by reading the code between the two addresses: no
s_waitcnt there covers the load. Whether an input reaches it is another question.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.elffile import ELFFile

from benchmarks.checker_mutation.code import Instruction, disassemble

Register = tuple[str, int]
_REGISTERS = re.compile(r"\b([va])(?:(\d+)\b|\[(\d+):(\d+)\])")
_LEAVES = ("s_endpgm", "s_branch", "s_setpc_b64", "s_swappc_b64")
_VECTOR_MEMORY = ("buffer_", "global_", "scratch_", "tbuffer_", "flat_")
_NO_VECTOR_RESULT = ("v_readlane", "v_readfirstlane", "v_cmp")
_ADDS_TO_RESULT = ("v_fmac", "v_mac", "v_pk_fmac", "v_dot2c", "v_dot4c", "v_dot8c")


@dataclass(frozen=True)
class Place:
    """A use of what a load may not have returned.

    Attributes
    ----------
    pc, load_pc : int
        ELF addresses.
    counter : {"vmcnt", "lgkmcnt"}
    since : int
        Operations of the counter that were issued after the load: a wait for so many covers it.
    """

    pc: int
    text: str
    load_pc: int
    register: str
    counter: str
    since: int


def registers(text: str) -> list[Register]:
    found = []
    for file, one, first, last in _REGISTERS.findall(text):
        numbers = [int(one)] if one else range(int(first), int(last) + 1)
        found += [(file, number) for number in numbers]
    return found


class _Counters:
    """Of vmcnt and lgkmcnt: operations issued, and how many of them are known to be done.

    Scalar loads count in lgkmcnt too, out of order; leaving them out only makes waits stronger.
    """

    def __init__(self) -> None:
        self.issued = {"vmcnt": 0, "lgkmcnt": 0}
        self.done = dict(self.issued)

    def wait(self, text: str) -> None:
        for counter, value in re.findall(r"(vmcnt|lgkmcnt)\((\d+)\)", text):
            self.done[counter] = max(self.done[counter], self.issued[counter] - int(value))


def unwaited(instructions: Iterable[Instruction]) -> Iterator[Place]:
    """The first use of each register that a load fills, where no wait between covers it."""
    counters = _Counters()
    pending: dict[Register, tuple[str, int, int]] = {}  # counter, number, pc of the load
    indexed = False  # registers are indexed by M0: the text does not say which
    for instruction in instructions:
        name, _, operands = instruction.text.partition(" ")
        if name in _LEAVES:
            pending.clear()
        elif name == "s_waitcnt":
            counters.wait(operands)
            for register, (counter, number, _) in list(pending.items()):
                if number <= counters.done[counter]:
                    del pending[register]
        elif name.startswith("s_set_gpr_idx"):
            indexed = name != "s_set_gpr_idx_off"
        if name.startswith("s_"):
            continue
        memory = name.startswith(_VECTOR_MEMORY)
        to_lds = memory and operands.endswith(" lds")
        loads = memory and "_load" in name and not to_lds and not name.startswith("flat_")
        reads = name.startswith("ds_") and any(w in name for w in ("read", "permute", "swizzle"))
        results: list[Register] = []
        writes = "store" in name or "atomic" in name or name.startswith("ds_write")
        if writes or to_lds or name.startswith(_NO_VECTOR_RESULT):
            sources = registers(operands)
        else:
            first, _, rest = operands.partition(", ")
            results, sources = registers(first), registers(rest)
            if name.startswith((*_ADDS_TO_RESULT, "v_swap")):
                sources += results
        for register in () if indexed else sources:
            if register in pending:
                counter, number, pc = pending.pop(register)
                since = counters.issued[counter] - number
                where = f"{register[0]}{register[1]}"
                yield Place(instruction.pc, instruction.text, pc, where, counter, since)
        for register in results:
            pending.pop(register, None)
        if memory:
            counters.issued["vmcnt"] += 1
        if name.startswith(("ds_", "flat_")):
            counters.issued["lgkmcnt"] += 1
        if loads or reads:
            counter = "vmcnt" if loads else "lgkmcnt"
            for register in results:
                pending[register] = (counter, counters.issued[counter], instruction.pc)


def instructions_of(image: bytes) -> list[Instruction]:
    """Of a code object."""
    text = ELFFile(io.BytesIO(image)).get_section_by_name(".text")
    return disassemble(text.data(), text["sh_addr"])


def main() -> None:
    """Print one line for each file that has such places."""
    files = [
        file
        for given in map(Path, sys.argv[1:])
        for file in (sorted(given.rglob("*.co")) if given.is_dir() else [given])
    ]
    found = 0
    for file in files:
        places = list(unwaited(instructions_of(file.read_bytes())))
        found += bool(places)
        if places:
            p = places[0]
            print(
                f"{file}: {len(places)} places, first {p.pc:#x} {p.text}: {p.register} of the load "
                f"at {p.load_pc:#x}, {p.counter}({p.since}) would do",
                flush=True,
            )
    print(f"{found} of {len(files)} files")


if __name__ == "__main__":
    main()
