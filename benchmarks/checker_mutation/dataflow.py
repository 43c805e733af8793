"""Data flow along all paths of a kernel, and again after a change of a few instructions."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from benchmarks.checker_mutation.code import Instruction
from benchmarks.checker_mutation.kernel import KernelCode

if TYPE_CHECKING:
    from typing_extensions import Self

Key = TypeVar("Key")
Value = TypeVar("Value")
Found = TypeVar("Found")


class ForwardAnalysis(Generic[Key, Value, Found]):
    """What may hold at the beginning of each basic block, as a dictionary.

    Entries are about an instruction that came before. Where paths meet, a state has the entries of
    all of them.
    """

    def __init__(self, code: KernelCode) -> None:
        self.code = code
        self._blocks = code.blocks()
        self._states: dict[int, dict[Key, Value]] = {code.entry: {}}
        self._solve([code.entry])

    @abstractmethod
    def _step(self, inst: Instruction, state: dict[Key, Value]) -> None:
        """Change the state before an instruction to the one behind it."""

    @abstractmethod
    def _check(self, inst: Instruction, state: dict[Key, Value]) -> Iterator[Found]:
        """What an instruction finds in the state before it."""

    @staticmethod
    @abstractmethod
    def _join(old: Value | None, new: Value) -> Value:
        """The value of an entry where paths meet; `old` is None if only the new one has it."""

    @staticmethod
    @abstractmethod
    def _about(key: Key) -> int:
        """Address of the instruction that an entry is about."""

    def _found(self, blocks: Iterable[int] | None = None) -> frozenset[Found]:
        """What is found in these blocks, or in all."""
        found: set[Found] = set()
        for first in self._states if blocks is None else blocks:
            state = dict(self._states[first])
            for inst in self._blocks[first]:
                found.update(self._check(inst, state))
                self._step(inst, state)
        return frozenset(found)

    def _solve(self, todo: list[int]) -> set[int]:
        """Follow these blocks until nothing is new; those whose state it was, and they."""
        visited = set(todo)
        while todo:
            first = todo.pop()
            visited.add(first)
            state = dict(self._states[first])
            for inst in self._blocks[first]:
                self._step(inst, state)
            for following in self.code.successors[self._blocks[first][-1].pc]:
                if self._merge(following, state) and following not in todo:
                    todo.append(following)
        return visited

    def _merge(self, at: int, state: dict[Key, Value]) -> bool:
        known = self._states.get(at)
        if known is None:
            self._states[at] = dict(state)
            return True
        changed = False
        for key, value in state.items():
            old = known.get(key)
            new = self._join(old, value)
            if new != old:
                known[key] = new
                changed = True
        return changed

    def _changed(self, code: KernelCode, at: int, size: int) -> tuple[Self, Collection[int] | None]:
        """The analysis of the changed code, and the blocks in which it may find anything new.

        `size` bytes from `at` on are other instructions. Within a basic block what they may change
        is followed from there; what held elsewhere before the change is taken to hold still. That
        is right: more may hold at most. None: every block, of an analysis from the start.
        """
        first = self.code.block_of(at)
        old = self._blocks.get(first)
        if not code.same_paths or old is None or at + size > old[-1].end:
            return type(self)(code), None
        begin = code.index[first]
        new = copy.copy(self)
        new.code = code
        new._blocks = self._blocks | {first: list(code.instructions[begin : begin + len(old)])}
        new._states = {
            block: {
                key: value for key, value in state.items() if not at <= self._about(key) < at + size
            }
            for block, state in self._states.items()
        }
        return new, new._solve([first])
