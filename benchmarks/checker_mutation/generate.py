"""Mutants of a kernel, class by class: each changes its code object in one place, same length.

  wait deleted      one field of an s_waitcnt at its maximum
  wait weakened     one field of an s_waitcnt one greater
  barrier           s_barrier -> s_nop 0
  s_nop             the wait states gone: N -> 0, or the s_nop moved to the end of its block
  swap              neighbours exchanged, independent but for a required wait state
  LDS offset        immediate offset of an LDS operation one element further
  global offset     the same of a vector memory operation
  EXEC              a restore of EXEC dropped, or a narrowing of it
  num_records       range of a buffer resource one element longer or shorter
  semaphore         store of zero to memory that must be left zero dropped

Every mutant is decoded again, to see that what was meant to change did, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from benchmarks.checker_mutation import registers as regs
from benchmarks.checker_mutation.code import Instruction, disassemble
from benchmarks.checker_mutation.hazards import LLVM_ONLY, HazardAnalysis
from benchmarks.checker_mutation.kernel import KernelCode
from benchmarks.checker_mutation.makers import sources
from benchmarks.checker_mutation.waits import MAXIMUM, counts, with_count

CLASSES = (
    *("wait deleted", "wait weakened", "barrier", "s_nop", "swap"),
    *("LDS offset", "global offset", "EXEC", "num_records", "semaphore"),
)
NOP = (0xBF800000).to_bytes(4, "little")
_MOV_B64, _EXEC_LO = 1, 126
_RECORDS_WORD = 2  # of a buffer resource


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change.

    Attributes
    ----------
    kind : str
        One of CLASSES.
    pc : int
        The instruction that is changed or dropped; where a finding is in place.
    what : str
        The change, for people.
    at, encoding
        Address and new bytes.
    """

    kind: str
    pc: int
    what: str
    at: int
    encoding: bytes = field(repr=False)

    @property
    def name(self) -> str:
        """Unique within a kernel."""
        return f"{self.kind} @{self.pc:#x}: {self.what}"


def mutants(code: KernelCode, has_semaphores: bool) -> list[Mutant]:
    """Every mutant of the reachable code, in order of class and address."""
    found: list[Mutant] = []
    for generate in (_waits, _barriers, _nops, _swaps, _offsets, _exec_masks, _num_records):
        found += generate(code)
    if has_semaphores:
        found += _semaphores(code)
    for mutant in found:
        _verify(code, mutant)
    return sorted(found, key=lambda m: (CLASSES.index(m.kind), m.pc))


def _word(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _with_first_word(inst: Instruction, word: int) -> bytes:
    return _word(word) + inst.encoding[4:]


def _each(code: KernelCode, wanted: Callable[[Instruction], bool]) -> Iterator[Instruction]:
    return (inst for inst in code.instructions if inst.pc in code.reachable and wanted(inst))


# -- synchronisation -------------------------------------------------------------------------------


def _waits(code: KernelCode) -> Iterator[Mutant]:
    for inst in _each(code, lambda inst: inst.mnemonic == "s_waitcnt"):
        for name, value in counts(inst.word).items():
            if value == MAXIMUM[name]:
                continue
            gone = _word(with_count(inst.word, name, MAXIMUM[name]))
            yield Mutant("wait deleted", inst.pc, f"{name}({value}) gone", inst.pc, gone)
            if value + 1 < MAXIMUM[name]:
                weaker = _word(with_count(inst.word, name, value + 1))
                what = f"{name}({value}) -> {value + 1}"
                yield Mutant("wait weakened", inst.pc, what, inst.pc, weaker)


def _barriers(code: KernelCode) -> Iterator[Mutant]:
    for inst in _each(code, lambda inst: inst.mnemonic == "s_barrier"):
        yield Mutant("barrier", inst.pc, "s_barrier -> s_nop 0", inst.pc, NOP)


# -- wait states -----------------------------------------------------------------------------------


def _nops(code: KernelCode) -> Iterator[Mutant]:
    for inst in _each(code, lambda inst: inst.mnemonic == "s_nop"):
        count = inst.word & 0xFFFF
        if count:
            yield Mutant("s_nop", inst.pc, f"s_nop {count} -> s_nop 0", inst.pc, NOP)
        rest = _rest_of_block(code, inst)
        if any(other.encoding != inst.encoding for other in rest):
            moved = b"".join(other.encoding for other in rest) + inst.encoding
            yield Mutant(
                "s_nop", inst.pc, f"s_nop {count} moved to {rest[-1].pc:#x}", inst.pc, moved
            )


def _rest_of_block(code: KernelCode, inst: Instruction) -> list[Instruction]:
    """What follows in the block and may move: no branch, nothing that knows its address."""
    rest: list[Instruction] = []
    for other in code.instructions[code.index[inst.pc] + 1 :]:
        fixed = other.is_branch or other.mnemonic in ("s_getpc_b64", "s_call_b64", "s_swappc_b64")
        if fixed or other.pc in code.targets or other.pc == code.entry:
            break
        rest.append(other)
    return rest


def _swaps(code: KernelCode) -> Iterator[Mutant]:
    """Exchange the neighbours of pairs that have no wait state to spare."""
    seen = set()
    for pair in sorted(HazardAnalysis(code).tight()):
        if pair.rule in LLVM_ONLY:
            continue
        after = code.index[pair.producer]
        before = code.index[pair.consumer] - 1
        for i in (after, before):
            if i in seen or i < 0 or i + 1 >= len(code.instructions):
                continue
            seen.add(i)
            first, second = code.instructions[i : i + 2]
            if _may_swap(code, first, second):
                what = f"{first.text} <-> {second.text}"
                yield Mutant("swap", first.pc, what, first.pc, second.encoding + first.encoding)


def _may_swap(code: KernelCode, first: Instruction, second: Instruction) -> bool:
    """Neighbours whose order matters for nothing but wait states, or that is all they are."""
    for inst in (first, second):
        if inst.mnemonic in ("s_nop", "s_waitcnt", "s_barrier", "s_getpc_b64") or inst.is_branch:
            return False
        if inst.mnemonic.startswith(("s_setreg", "s_setprio", "s_sleep", "s_sendmsg")):
            return False
    if second.pc in code.targets or second.pc == code.entry:
        return False
    a, b = regs.use(first), regs.use(second)
    memory = [regs.is_vmem(i) or regs.is_ds(i) or regs.is_smem(i) for i in (first, second)]
    return not (all(memory) or a.writes & b.touched or b.writes & a.touched)


# -- addresses -------------------------------------------------------------------------------------

_WIDTHS = (
    (re.compile(r"_(?:b128|dwordx4|format_xyzw)\b|_xyzw"), 16),
    (re.compile(r"_(?:b96|dwordx3)"), 12),
    (re.compile(r"_(?:[bui]64|f64|dwordx2|x2)\b"), 8),
    (re.compile(r"_(?:[bui]16|short|ushort|sshort|short_d16)(?:_d16)?(?:_hi)?\b"), 2),
    (re.compile(r"_(?:[bui]8|byte|ubyte|sbyte|byte_d16)(?:_d16)?(?:_hi)?\b"), 1),
)


def element_bytes(inst: Instruction) -> int:
    """Bytes that a lane accesses at one address."""
    for pattern, width in _WIDTHS:
        if pattern.search(inst.mnemonic):
            return width
    return 4


def _offsets(code: KernelCode) -> Iterator[Mutant]:
    for inst in _each(code, regs.is_ds):
        if re.match(r"ds_(read2|write2|load_2|store_2)", inst.mnemonic):
            yield _offset(inst, "LDS offset", 0, 8, 1)
            yield _offset(inst, "LDS offset", 8, 8, 1)
        elif inst.operands:
            yield _offset(inst, "LDS offset", 0, 16, element_bytes(inst))
    for inst in _each(code, lambda i: regs.is_vmem(i) and not regs.is_cache_control(i)):
        buffered = inst.mnemonic.startswith(("buffer_", "tbuffer_"))
        # 12 bits unsigned, or 13 bits of which the sign stays out of it.
        yield _offset(inst, "global offset", 0, 12, element_bytes(inst), signed=not buffered)


def _offset(
    inst: Instruction, kind: str, shift: int, bits: int, step: int, signed: bool = False
) -> Mutant:
    word, limit = inst.word, 1 << bits
    value = word >> shift & limit - 1
    if signed and word >> bits & 1:
        value -= limit
    new = value + step if value + step < limit else value - step
    mask = (2 * limit - 1 if signed else limit - 1) << shift
    word = word & ~mask | (new << shift) & mask
    what = f"{inst.mnemonic} offset {value} -> {new}"
    return Mutant(kind, inst.pc, what, inst.pc, _with_first_word(inst, word))


# -- masks and ranges ------------------------------------------------------------------------------


def _exec_masks(code: KernelCode) -> Iterator[Mutant]:
    for inst in _each(code, regs.is_salu):
        if not regs.use(inst).writes & frozenset(regs.EXEC):
            continue
        if "saveexec" in inst.mnemonic:
            saved = inst.word >> 16 & 0x7F
            word = 0xBE800000 | saved << 16 | _MOV_B64 << 8 | _EXEC_LO
            what = f"{inst.text}: EXEC saved, not changed"
            yield Mutant("EXEC", inst.pc, what, inst.pc, _word(word) + NOP * (inst.size // 4 - 1))
        else:
            what = f"{inst.text} dropped"
            yield Mutant("EXEC", inst.pc, what, inst.pc, NOP * (inst.size // 4))


def _num_records(code: KernelCode) -> Iterator[Mutant]:
    seen: dict[int, int] = {}  # instruction that makes the range -> element
    for inst in _each(code, lambda i: i.mnemonic.startswith(("buffer_", "tbuffer_"))):
        if regs.is_cache_control(inst):
            continue
        resource = sorted(regs.registers(inst.operands[2]))
        if len(resource) == 4:
            for pc in sources(code, inst.pc, resource[_RECORDS_WORD]):
                seen[pc] = min(element_bytes(inst), seen.get(pc, 16))
    for pc, step in sorted(seen.items()):
        inst = code.at(pc)
        for change in (step, -step):
            encoding = _shifted(inst, change)
            if encoding is not None:
                what = f"{inst.text}: range {change:+d} bytes"
                yield Mutant("num_records", pc, what, pc, encoding)


def _shifted(inst: Instruction, change: int) -> bytes | None:
    """The instruction with a result that is `change` greater; None where no same length does it."""
    literal = inst.size == 8
    if inst.mnemonic == "s_mov_b32" and literal:
        value = int.from_bytes(inst.encoding[4:], "little") + change
        return inst.encoding[:4] + _word(value & 0xFFFFFFFF)
    if inst.mnemonic == "s_movk_i32":
        value = (inst.word & 0xFFFF) + change
        return _word(inst.word & ~0xFFFF | value & 0xFFFF) if 0 <= value < 0x8000 else None
    if inst.mnemonic == "s_lshl_b32" and not literal:
        amount = (inst.word >> 8 & 0xFF) - 128
        if 1 <= amount <= 4:  # s_lshl<amount>_add_u32 with an inline constant
            opcode = 46 + amount - 1
            constant = 128 + change if change >= 0 else 192 - change
            target_and_source = inst.word & (0x7F << 16 | 0xFF)
            return _word(0x80000000 | opcode << 23 | constant << 8 | target_and_source)
    return None


def _semaphores(code: KernelCode) -> Iterator[Mutant]:
    """Stores of a constant zero, and exchanges with it."""
    for inst in _each(code, lambda i: regs.is_vmem(i) and bool(regs.use(i).data)):
        makers = [sources(code, inst.pc, register) for register in regs.use(inst).data]
        if all(all(_makes_zero(code.at(pc)) for pc in pcs) and pcs for pcs in makers):
            nops = NOP * (inst.size // 4)
            yield Mutant("semaphore", inst.pc, f"{inst.text} dropped", inst.pc, nops)


def _makes_zero(inst: Instruction) -> bool:
    return inst.mnemonic.startswith(("v_mov_b", "s_mov_b")) and inst.operands[1] == "0"


# -- check -----------------------------------------------------------------------------------------


def _verify(code: KernelCode, mutant: Mutant) -> None:
    """The new bytes decode to as many bytes as they are, and differ from the old."""
    old = code.bytes_at(mutant.at, len(mutant.encoding))
    before, after = (disassemble(b, mutant.at, code.arch) for b in (old, mutant.encoding))
    assert old != mutant.encoding, mutant
    assert sum(inst.size for inst in before) == sum(inst.size for inst in after), mutant
    if mutant.kind in ("s_nop", "swap") and len(before) > 1:
        assert sorted(i.encoding for i in before) == sorted(i.encoding for i in after), mutant
    elif mutant.kind.startswith("wait") or "offset" in mutant.kind:
        assert [i.mnemonic for i in before] == [i.mnemonic for i in after], mutant
        assert [i.operands for i in before] == [i.operands for i in after] or (
            mutant.kind.startswith("wait") or "offset" in mutant.kind
        ), mutant
