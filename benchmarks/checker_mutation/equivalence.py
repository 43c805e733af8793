"""Which mutants change nothing that can be seen, and where the others should be reported.

A mutant is equivalent only by an argument that is stated here, from a static analysis of all paths
that shares no code with the checker. Everything else must be reported.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.checker_mutation import (
    backward_idioms,
    decode_columns,
    decode_idioms,
    decode_turns,
    idioms,
    registers as regs,
)
from benchmarks.checker_mutation.arguments import ARGUMENTS
from benchmarks.checker_mutation.clauses import overwrites
from benchmarks.checker_mutation.code import Instruction
from benchmarks.checker_mutation.generate import Mutant, element_bytes
from benchmarks.checker_mutation.hazards import LLVM_ONLY, HazardAnalysis, Missing
from benchmarks.checker_mutation.kernel import KernelCode
from benchmarks.checker_mutation.makers import sources
from benchmarks.checker_mutation.masks import restored_at_once
from benchmarks.checker_mutation.paths import Paths
from benchmarks.checker_mutation.stated import Arguments
from benchmarks.checker_mutation.subject import Subject
from benchmarks.checker_mutation.uniform import Taken, decisions
from benchmarks.checker_mutation.waits import TooEarly, WaitAnalysis

_EXEC = frozenset(regs.EXEC)
_OWN_LOAD = (
    "the load that may be pending after the loop goes to LDS, where only the wave's own later "
    "loads write: these end after it, and are waited for before the barrier after which more of "
    "LDS than the waves' votes is next read"
)
_IGNORES_EXEC = ("v_readlane", "v_writelane", "v_nop", "v_mfma", "v_smfmac", "buffer_wbl2")
# Lanes that must not touch memory get this offset, behind every range below it.
_MASKED_OFFSET = 1 << 31
_MAX_ALLOCATION = 1 << 30


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is expected of a mutant.

    Attributes
    ----------
    argument : str
        Why nothing can be seen of it; "" if it must be reported.
    places : frozenset of int
        Addresses in the mutated code: the mutated instruction, those that it served and those that
        made what they use. A finding there is in the right place.
    kinds : tuple of str
        Kinds of finding that have no address and are in the right place.
    stated : bool
        The argument is one of `arguments`, not of an analysis.
    """

    argument: str
    places: frozenset[int]
    kinds: tuple[str, ...] = ()
    stated: bool = False


class WaitsOnPaths:
    """What waits too little on a path that a wave can take.

    Branches on one condition go one way, and those on a constant mask; some are always taken, or
    never, as functions that are given know, and some decide others behind them: `past` says where
    these lead in the end. All that is looked at only where there is something.
    """

    def __init__(
        self,
        code: KernelCode,
        *always: Callable[[KernelCode], Taken],
        past: Callable[[KernelCode], Mapping[int, int]] = lambda code: {},
    ) -> None:
        self._code = code
        self._always = (idioms.never_below, *always)
        self._past = past
        self._paths = Paths(code)
        self._whole = _Cases([WaitAnalysis(code)])

    @functools.cached_property
    def _each(self) -> list[_Cases]:
        """Of each condition."""
        found = [
            _Cases([WaitAnalysis(self._code.assuming(taken)) for taken in both])
            for both in decisions(self._code)
        ]
        found += [
            _Cases([WaitAnalysis(self._code.assuming(taken))])
            for taken in (known(self._code) for known in self._always)
            if taken
        ]
        if past := self._past(self._code):
            blocks = self._code.blocks()
            targets = [self._code.at(branch).target or 0 for branch in past]
            left_out = frozenset(i.pc for target in targets for i in blocks[target])
            found.append(_Cases([WaitAnalysis(self._code.leading(past))], left_out))
        return found

    @functools.cached_property
    def _found(self) -> frozenset[TooEarly]:
        early = self._whole.found
        for cases in self._each if early else ():
            early = cases.of(early, cases.found)
        return early

    def too_early(self) -> frozenset[TooEarly]:
        """Of the code."""
        return self._met(self._found)

    def after(self, at: int, encoding: bytes) -> frozenset[TooEarly]:
        """Of the code with other instructions at an address."""
        early = self._whole.after(at, encoding)
        if not early <= self._found:
            for cases in self._each:
                early = cases.of(early, cases.after(at, encoding))
        return self._met(early)

    def _met(self, early: frozenset[TooEarly]) -> frozenset[TooEarly]:
        """Those that a wave comes to. A change of a wait leaves all ways as they are."""
        return frozenset(p for p in early if self._paths.lead(p.producer, p.consumer))


class _Cases:
    """Analyses of which one is right for every wave.

    They know nothing of what is used at `unknown` addresses.
    """

    def __init__(self, analyses: list[WaitAnalysis], unknown: frozenset[int] = frozenset()) -> None:
        self._analyses, self._unknown = analyses, unknown
        self.found = frozenset[TooEarly]().union(*(a.too_early() for a in analyses))

    def after(self, at: int, encoding: bytes) -> frozenset[TooEarly]:
        return self.found.union(
            *(a.after(a.code.changed(at, encoding), at, len(encoding)) for a in self._analyses)
        )

    def of(self, early: frozenset[TooEarly], own: frozenset[TooEarly]) -> frozenset[TooEarly]:
        """What stays of others' results."""
        return frozenset(p for p in early if p in own or p.consumer in self._unknown)


class Judge:
    """Judges the mutants of one subject.

    Attributes
    ----------
    wait_violations, hazard_violations, clause_violations
        What the analyses find in the unmutated kernel: nothing, or they are wrong, or it is. Loads
        to LDS and reads of it under way at a barrier, which they cannot decide, are not among
        them, nor are wait states that only LLVM keeps: a schedule of the source's own has none.
    arguments : Arguments
        Those that are stated about the kernel.
    """

    def __init__(self, subject: Subject, code: KernelCode) -> None:
        self._subject = subject
        self._code = code
        self.arguments = Arguments(ARGUMENTS, subject.name, code)
        self._is_attention = subject.name.startswith("attn_fwd_")
        self._is_backward = subject.name.startswith("attn_bwd_")
        self._is_decode = subject.name.startswith("attn_decode_")
        always = (decode_columns.first_steps,) if self._is_decode else ()
        past = {"past": decode_turns.past_the_end} if self._is_decode else {}
        self._waits, self._hazards = WaitsOnPaths(code, *always, **past), HazardAnalysis(code)
        self._known_early = self._waits.too_early()
        self.wait_violations = frozenset(filter(self._is_decided, self._known_early))
        self._known_missing: frozenset[Missing] = self._hazards.missing()
        self.hazard_violations = frozenset(
            pair for pair in self._known_missing if pair.rule not in LLVM_ONLY
        )
        self.clause_violations = overwrites(code, code.start, code.end - code.start)

    def _is_decided(self, pair: TooEarly) -> bool:
        """Not of loads to LDS at a barrier: they may be for the reads behind the next one.

        Nor of reads of LDS, which what is written behind the barrier may leave alone.
        """
        at_barrier = self._code.at(pair.consumer).mnemonic == "s_barrier"
        producer = self._code.at(pair.producer)
        is_read = producer.mnemonic.startswith("ds_read")
        return not (at_barrier and (is_read or regs.is_lds_dma(producer)))

    def __call__(self, mutant: Mutant) -> Judgement:
        """Judge one mutant."""
        judges: dict[str, Callable[[Mutant], Judgement]] = {
            "wait deleted": self._wait,
            "wait weakened": self._wait,
            "barrier": self._barrier,
            "s_nop": self._wait_states,
            "swap": self._wait_states,
            "LDS offset": self._offset,
            "global offset": self._offset,
            "EXEC": self._exec_mask,
            "num_records": self._range,
            "semaphore": self._semaphore,
        }
        judgement = judges[mutant.kind](mutant)
        if judgement.argument:
            return judgement
        stated = self.arguments.reason(mutant)
        if self._is_decode:
            stated = stated or decode_idioms.argument(self._subject.name, self._code, mutant)
        if self._is_backward:
            stated = stated or backward_idioms.argument(self._code, mutant)
        if self._is_attention:
            stated = stated or idioms.argument(self._code, mutant)
            if mutant.kind == "wait weakened":
                stated = stated or self._last_load_to_lds(mutant)
        return dataclasses.replace(judgement, argument=stated, stated=bool(stated))

    def _mutated(self, mutant: Mutant) -> tuple[KernelCode, int, int]:
        """The code, and where how many bytes of it are others."""
        changed = self._code.changed(mutant.at, mutant.encoding)
        return changed, mutant.at, len(mutant.encoding)

    def _wait(self, mutant: Mutant) -> Judgement:
        early = self._waits.after(mutant.at, mutant.encoding) - self._known_early
        places = {mutant.pc}.union(*({pair.consumer, pair.producer} for pair in early))
        if any(self._code.at(pair.producer).mnemonic.startswith("buffer_wbl2") for pair in early):
            # What a release publishes is stored and loaded elsewhere, by other workgroups.
            places |= {inst.pc for inst in self._code.instructions if regs.is_vmem(inst)}
        argument = (
            ""
            if early
            else "on no path is anything used or published before a later wait covers it"
        )
        return Judgement(argument, frozenset(places))

    def _wait_states(self, mutant: Mutant) -> Judgement:
        known = {(pair.consumer, pair.producer, pair.rule) for pair in self._known_missing}
        missing = [
            pair
            for pair in self._hazards.missing_after(*self._mutated(mutant))
            if (pair.consumer, pair.producer, pair.rule) not in known
        ]
        required = [pair for pair in missing if pair.rule not in LLVM_ONLY]
        places = {mutant.pc}.union(*({pair.consumer, pair.producer} for pair in required))
        joined = overwrites(*self._mutated(mutant)) - self.clause_violations
        places = places.union(*joined)
        argument = ""
        if not required and not joined:
            argument = "no pair of instructions has fewer wait states than the table requires"
            if missing:
                rule = missing[0].rule
                argument = f"only LLVM requires states for {rule}; the manual's table requires none"
        return Judgement(argument, frozenset(places))

    def _last_load_to_lds(self, mutant: Mutant) -> str:
        """Of a wait that leaves a load into LDS pending at barriers behind which it is not read.

        Behind the loop: in one, other waves may meet the barrier in code that reads.
        """
        if idioms.is_in_a_loop(self._code, mutant.pc):
            return ""
        early = self._waits.after(mutant.at, mutant.encoding) - self._known_early
        into_lds = all(regs.is_lds_dma(self._code.at(pair.producer)) for pair in early)
        votes_only = all(self._is_for_votes(pair.consumer) for pair in early)
        return _OWN_LOAD if early and into_lds and votes_only else ""

    def _is_for_votes(self, pc: int) -> bool:
        """Whether this is a barrier behind which LDS is read once at most until the next one."""
        if self._code.at(pc).mnemonic != "s_barrier":
            return False
        behind = map(self._code.at, self._until_barrier(pc, self._code.successors))
        return sum(inst.mnemonic.startswith("ds_read") for inst in behind) <= 1

    def _barrier(self, mutant: Mutant) -> Judgement:
        if all(case.num_waves == 1 for case in self._subject.cases):
            return Judgement("workgroups have one wave", frozenset({mutant.pc}))
        after = self._until_barrier(mutant.pc, self._code.successors)
        before = self._until_barrier(mutant.pc, self._code.predecessors)
        ordered = [pc for pc in after | before if self._orders(self._code.at(pc))]
        argument = ""
        if not any(self._conflict(before, after, of) for of in (regs.is_ds, regs.is_vmem)):
            argument = "nothing before it touches the same memory as anything after it"
        return Judgement(argument, frozenset({mutant.pc, *ordered}))

    def _conflict(
        self, before: set[int], after: set[int], of: Callable[[Instruction], bool]
    ) -> bool:
        """Whether both sides touch a memory, and one of them writes."""
        sides = [
            [i for i in map(self._code.at, side) if of(i) and not regs.is_cache_control(i)]
            for side in (before, after)
        ]
        written = [i for side in sides for i in side if regs.is_store(i) or regs.is_atomic(i)]
        loads_lds = any(regs.is_lds_dma(i) for i in map(self._code.at, before | after))
        return loads_lds or (all(sides) and bool(written))

    @staticmethod
    def _orders(inst: Instruction) -> bool:
        return regs.is_ds(inst) or regs.is_vmem(inst)

    def _until_barrier(
        self, start: int, neighbours: dict[int, tuple[int, ...]] | dict[int, list[int]]
    ) -> set[int]:
        """Instructions on the paths from `start` up to the next barrier."""
        seen: set[int] = set()
        todo = list(neighbours[start])
        while todo:
            pc = todo.pop()
            if pc not in seen and pc in self._code.reachable:
                seen.add(pc)
                if self._code.at(pc).mnemonic != "s_barrier":
                    todo += neighbours[pc]
        return seen

    def _offset(self, mutant: Mutant) -> Judgement:
        inst = self._code.at(mutant.pc)
        places = {mutant.pc} | self._readers(inst)
        same_memory = regs.is_ds if regs.is_ds(inst) else regs.is_vmem
        places |= {other.pc for other in self._code.instructions if same_memory(other)}
        return Judgement("", frozenset(places))

    def _readers(self, inst: Instruction) -> set[int]:
        """Instructions that read a result of `inst`."""
        found: set[int] = set()
        seen: set[tuple[int, regs.Registers]] = set()
        todo = [(pc, regs.use(inst).writes) for pc in self._code.successors[inst.pc]]
        while todo:
            pc, live = todo.pop()
            if (pc, live) in seen or not live:
                continue
            seen.add((pc, live))
            use = regs.use(self._code.at(pc))
            if use.reads & live:
                found.add(pc)
            todo += [(other, live - use.writes) for other in self._code.successors[pc]]
        return found

    def _exec_mask(self, mutant: Mutant) -> Judgement:
        depending: set[int] = set()
        seen: set[int] = set()
        todo = list(self._code.successors[mutant.pc])
        while todo:
            pc = todo.pop()
            if pc in seen:
                continue
            seen.add(pc)
            inst = self._code.at(pc)
            use = regs.use(inst)
            if _EXEC & use.reads and not inst.mnemonic.startswith(_IGNORES_EXEC):
                depending.add(pc)
            if not use.writes >= _EXEC or _EXEC & use.reads:
                todo += self._code.successors[pc]
        argument = "" if depending else "on no path does anything depend on EXEC afterwards"
        if restored_at_once(self._code, self._code.at(mutant.pc)):
            argument = "the next instruction restores a mask that includes the one restored here"
        return Judgement(argument, frozenset({mutant.pc, *depending}))

    def _range(self, mutant: Mutant) -> Judgement:
        users = {
            inst.pc
            for inst in self._code.instructions
            if inst.pc in self._code.reachable
            and inst.mnemonic.startswith(("buffer_", "tbuffer_"))
            and not regs.is_cache_control(inst)
            and len(regs.registers(inst.operands[2])) == 4  # not so of loads to LDS
            and mutant.pc
            in sources(self._code, inst.pc, sorted(regs.registers(inst.operands[2]))[2])
        }
        old = self._code.at(mutant.pc)
        argument = ""
        if old.mnemonic == "s_mov_b32" and old.size == 8:
            ends = [int.from_bytes(e[4:], "little") for e in (old.encoding, mutant.encoding)]
            sizes = [buffer.nbytes for case in self._subject.cases for buffer in case.buffers]
            # A buffer without stride is checked dword by dword.
            width = min(4, *(element_bytes(self._code.at(pc)) for pc in users))
            far = max(sizes) <= _MAX_ALLOCATION < min(ends)
            if far and max(ends) < _MASKED_OFFSET + width:
                argument = (
                    f"both ranges end near {min(ends):#x}: after every byte of the allocations, "
                    f"and before the offset {_MASKED_OFFSET:#x} of masked lanes plus one element"
                )
        return Judgement(argument, frozenset({mutant.pc, *users}))

    def _semaphore(self, mutant: Mutant) -> Judgement:
        return Judgement("", frozenset({mutant.pc}), ("dirty_memory",))
