"""Data-flow analysis of s_waitcnt: what is still pending where a wave uses it.

Independent of the virtual device's checker: static, over all paths, from the text of the
instructions. For every point of a kernel it holds which memory operations may be pending and the
least number of younger ones that must then be pending as well, by counter:

  vmcnt    loads, stores and atomics complete in order (FLAT does not)
  lgkmcnt  LDS operations complete in order among themselves, scalar loads in any order

An operation is complete behind a wait for at most as many as its younger ones. That the counter's
maximum keeps younger ones from being issued is no wait: checked mode reports what relies on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.checker_mutation import registers as regs
from benchmarks.checker_mutation.arrivals import of_each_wave
from benchmarks.checker_mutation.code import Instruction
from benchmarks.checker_mutation.dataflow import ForwardAnalysis
from benchmarks.checker_mutation.kernel import KernelCode

# Field: (shift, bits) pairs of the immediate, low bits first.
FIELDS = {"vmcnt": ((0, 4), (14, 2)), "expcnt": ((4, 3),), "lgkmcnt": ((8, 4),)}
MAXIMUM = {name: (1 << sum(bits for _, bits in parts)) - 1 for name, parts in FIELDS.items()}

# In the place of a counter.
_DIRTY = "dirty"  # a store that other XCDs do not see yet
_WRITTEN_BACK = "written back"  # a store to other workgroups that a write-back has come behind

# (address, counter) of a pending operation -> least number of younger pending ones.
State = dict[tuple[int, str], int]


@dataclass(frozen=True, slots=True, order=True)
class TooEarly:
    """Something uses what a pending operation has not delivered."""

    consumer: int
    producer: int
    why: str


def counts(word: int) -> dict[str, int]:
    """Fields of an s_waitcnt."""
    values = {}
    for name, parts in FIELDS.items():
        value = position = 0
        for shift, bits in parts:
            value |= (word >> shift & (1 << bits) - 1) << position
            position += bits
        values[name] = value
    return values


def with_count(word: int, field: str, value: int) -> int:
    """The s_waitcnt with another value in one field."""
    for shift, bits in FIELDS[field]:
        mask = (1 << bits) - 1
        word = word & ~(mask << shift) | (value & mask) << shift
        value >>= bits
    return word


def counters(inst: Instruction) -> tuple[str, ...]:
    """Counters that an instruction increments."""
    if regs.is_flat(inst):
        return ("vmcnt", "lgkmcnt")
    if regs.is_vmem(inst):
        return () if inst.mnemonic.startswith("buffer_inv") else ("vmcnt",)
    if regs.is_ds(inst) or regs.is_smem(inst) or inst.mnemonic.startswith("s_sendmsg"):
        return ("lgkmcnt",)
    return ()


def _in_order(inst: Instruction, counter: str) -> bool:
    if counter == "vmcnt":
        return not regs.is_flat(inst)
    return regs.is_ds(inst)


def _stores(inst: Instruction) -> bool:
    return regs.is_store(inst) or regs.is_atomic(inst)


def _for_others(inst: Instruction) -> bool:
    """Writes data that other workgroups are told about by a flag, which is of 8 bytes at most."""
    if not regs.is_vmem(inst) or "sc1" not in inst.modifiers or regs.returns_data(inst):
        return False
    return (regs.is_atomic(inst) and "f32" in inst.mnemonic) or inst.mnemonic.endswith("x4")


def _is_term(inst: Instruction) -> bool:
    """Adds to a sum of floating point numbers, which is data: nobody counts by it."""
    return regs.is_atomic(inst) and "_f32" in inst.mnemonic and not regs.returns_data(inst)


def _tells(inst: Instruction) -> bool:
    """May tell other workgroups of data that was written before."""
    if not regs.is_vmem(inst) or not _stores(inst) or _for_others(inst) or _is_term(inst):
        return False
    return regs.is_atomic(inst) or "sc1" in inst.modifiers


class WaitAnalysis(ForwardAnalysis[tuple[int, str], int, TooEarly]):
    """What is used too early in a kernel, whatever path is taken."""

    def __init__(self, code: KernelCode) -> None:
        barriers = [i.pc for i in code.instructions if i.mnemonic == "s_barrier"]
        self._has_barriers = bool(barriers)
        telling = [i for i in code.instructions if i.pc in code.reachable and _tells(i)]
        self._each_tells = frozenset(i.pc for i in telling if of_each_wave(code, i))
        one_tells = [i for i in telling if i.pc not in self._each_tells]
        counted, stored = (
            frozenset(i.pc for i in one_tells if regs.is_atomic(i) is counts)
            for counts in (True, False)
        )
        self._counted_behind, self._stored_behind = (
            frozenset(pc for pc in barriers if _is_told_behind(code, pc, by))
            for by in (counted, stored)
        )
        super().__init__(code)

    def too_early(self) -> frozenset[TooEarly]:
        """Every pair of a pending operation and what does not wait for it."""
        return self._found()

    def after(self, code: KernelCode, at: int, size: int) -> frozenset[TooEarly]:
        """Every such pair that the code has for the change of `size` bytes at `at`, and others."""
        changed, blocks = self._changed(code, at, size)
        return changed._found(blocks)

    @staticmethod
    def _join(old: int | None, new: int) -> int:
        return new if old is None else min(old, new)

    @staticmethod
    def _about(key: tuple[int, str]) -> int:
        return key[0]

    def _step(self, inst: Instruction, state: State) -> None:
        if inst.mnemonic == "s_waitcnt":
            limits = counts(inst.word)
            for key, age in list(state.items()):
                if key[1] in limits and limits[key[1]] <= age and limits[key[1]] < MAXIMUM[key[1]]:
                    del state[key]
                    state.pop((key[0], _WRITTEN_BACK), None)
            return
        for counter in counters(inst):
            if _in_order(inst, counter):
                for key, age in list(state.items()):
                    older = self.code.at(key[0])
                    if key[1] == counter and self._same_queue(older, inst, counter):
                        state[key] = min(age + 1, MAXIMUM[counter])
            state[inst.pc, counter] = 0
        self._publish(inst, state)

    def _publish(self, inst: Instruction, state: State) -> None:
        """Stores that no write-back has taken along yet are "dirty" in the state.

        A write-back that finds none publishes nothing, and nothing needs to wait for it.
        """
        if _for_others(inst):
            state.pop((inst.pc, _WRITTEN_BACK), None)
        if regs.is_vmem(inst) and regs.is_store(inst) and "sc1" not in inst.modifiers:
            state[inst.pc, _DIRTY] = 0
        elif inst.mnemonic.startswith("buffer_wbl2"):
            dirty = [key for key in state if key[1] == _DIRTY]
            if not dirty:
                del state[inst.pc, "vmcnt"]
            for key in dirty:
                del state[key]
            for pc in {pc for pc, counter in state if counter == "vmcnt"}:
                if _for_others(self.code.at(pc)):
                    state[pc, _WRITTEN_BACK] = 0

    @staticmethod
    def _same_queue(older: Instruction, younger: Instruction, counter: str) -> bool:
        return _in_order(older, counter) and _in_order(younger, counter)

    def _check(self, inst: Instruction, state: State) -> Iterator[TooEarly]:
        if inst.mnemonic == "s_waitcnt":
            return
        use = regs.use(inst)
        for pc in {pc for pc, counter in state if counter in MAXIMUM}:
            pending = self.code.at(pc)
            results = regs.use(pending).writes
            if results & use.reads:
                yield TooEarly(inst.pc, pc, "reads a result that is pending")
            elif results & use.writes and not self._lands_later(pending, inst):
                yield TooEarly(inst.pc, pc, "overwrites a result that is pending")
            why = self._order(inst, pending, (pc, _WRITTEN_BACK) in state)
            if why:
                yield TooEarly(inst.pc, pc, why)

    @staticmethod
    def _lands_later(pending: Instruction, inst: Instruction) -> bool:
        """Two loads of one queue: the second result lands behind the first."""
        return bool(
            regs.is_vmem(pending)
            and regs.is_vmem(inst)
            and not regs.is_flat(pending)
            and not regs.is_flat(inst)
        )

    def _order(self, inst: Instruction, pending: Instruction, written_back: bool) -> str:
        """What else must be complete at `inst`: memory that others are told about, or told of."""
        written = _stores(pending) or regs.is_lds_dma(pending)
        if inst.mnemonic == "s_barrier":
            # Stores to memory need no wait: the waves of a workgroup share an L1 that keeps order.
            if regs.is_ds(pending) or regs.is_lds_dma(pending):
                return "barrier with an LDS operation pending"
            if pending.mnemonic.startswith("buffer_wbl2"):
                return "barrier with a write-back of the cache pending"
            # Without a write-back between them a store behind the barrier is data as well, as here
            # below.
            is_told = inst.pc in self._counted_behind
            is_told |= written_back and inst.pc in self._stored_behind
            if _for_others(pending) and is_told:
                return "barrier with a store to other workgroups pending"
        # With barriers, what is loaded is read behind the next one: others load a part of it.
        if regs.is_ds(inst) and regs.is_lds_dma(pending) and not self._has_barriers:
            return "LDS operation with a load to LDS pending"
        if regs.is_vmem(inst) and _stores(inst):
            if pending.mnemonic.startswith("buffer_wbl2"):
                return "store with a write-back of the cache pending"
            if regs.is_atomic(inst) and not _is_term(inst) and regs.is_ds(pending) and written:
                return "atomic with an LDS store pending"
            # Without a write-back between them both are data, which one behind them is for.
            is_flag = "sc1" in inst.modifiers and not _for_others(inst)
            if is_flag and _for_others(pending) and written_back:
                return "flag with a store to other workgroups pending"
            counts_itself = regs.is_atomic(inst) and inst.pc in self._each_tells
            if counts_itself and regs.is_store(pending) and "sc1" in pending.modifiers:
                return "arrival of a wave with its store to other workgroups pending"
        invalidates = inst.mnemonic.startswith("buffer_inv")
        if invalidates and regs.is_vmem(pending) and regs.returns_data(pending):
            return "invalidation with a load pending"
        return ""


def _is_told_behind(code: KernelCode, barrier: int, telling: frozenset[int]) -> bool:
    """Whether others may be told behind a barrier of what waves of the workgroup did before.

    `telling`: addresses of what one wave does for all.

    Not so where a write-back comes first: its wait covers what any of the waves has issued before.
    """
    seen: set[int] = set()
    todo = list(code.successors[barrier])
    while todo:
        pc = todo.pop()
        if pc in seen:
            continue
        seen.add(pc)
        inst = code.at(pc)
        if pc in telling:
            return True
        if inst.mnemonic != "s_barrier" and not inst.mnemonic.startswith("buffer_wbl2"):
            todo += code.successors[pc]
    return False
