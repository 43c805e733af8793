"""Arguments about mutants that nothing can show, where no analysis here finds one.

Each is about the sites of a kernel that a pattern names (see `sites`), and says how many the
pattern finds. An argument whose pattern finds fewer, or more, is stale: it pardons nothing, and the
campaign fails. So does one about a site that has no mutant of its class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from benchmarks.checker_mutation.generate import CLASSES, Mutant
from benchmarks.checker_mutation.kernel import KernelCode
from benchmarks.checker_mutation.sites import Pattern

EVERY_ARCH = ("gfx942", "gfx950")


@dataclass(frozen=True)
class Stated:
    """An argument.

    Attributes
    ----------
    kernel : str
        Name of the subject.
    kinds : str or tuple of str
        Of CLASSES. A class of waits may name the counter: "wait deleted, vmcnt".
    reason : str
        Why nothing can be seen.
    site : str
        The text of a Pattern.
    sites : int
        How many the pattern finds.
    which : tuple of int
        The argument is about these of them, counted from 0 in order of address; none: about all.
    archs : tuple of str
        The kernels of these architectures.

    Raises
    ------
    ValueError
        An unknown class, or a site that cannot be among so many.
    """

    kernel: str
    kinds: str | tuple[str, ...]
    reason: str
    site: str = field(repr=False)
    sites: int = 1
    which: tuple[int, ...] = ()
    archs: tuple[str, ...] = EVERY_ARCH

    def __post_init__(self) -> None:
        for kind in self.classes:
            if kind.partition(",")[0] not in CLASSES:
                raise ValueError(f"kinds={self.kinds!r}: {kind!r} must be among {CLASSES}")
        if any(not 0 <= i < self.sites for i in self.which):
            raise ValueError(f"which={self.which} must be below sites={self.sites}")

    @property
    def classes(self) -> tuple[str, ...]:
        """`kinds`, always several."""
        return (self.kinds,) if isinstance(self.kinds, str) else self.kinds

    @cached_property
    def pattern(self) -> Pattern:
        """What finds the sites."""
        return Pattern(self.site)


class Arguments:
    """Those about one kernel, at their addresses.

    Attributes
    ----------
    stale : list of str
        What does not hold of the kernel as it is.
    """

    def __init__(self, stated: Iterable[Stated], kernel: str, code: KernelCode) -> None:
        self.stale: list[str] = []
        self._reasons: dict[tuple[str, int], str] = {}
        for one in stated:
            if one.kernel == kernel and code.arch in one.archs:
                self._place(one, code)

    def _place(self, one: Stated, code: KernelCode) -> None:
        found = one.pattern.find(code)
        if len(found) != one.sites:
            self.stale.append(
                f"an argument about {', '.join(one.classes)} is for {one.sites} places, "
                f"and there are {len(found)} of\n{one.site.strip()}"
            )
            return
        chosen = [found[i] for i in one.which] or found
        for key in ((kind, pc) for kind in one.classes for pc in chosen):
            if key in self._reasons:
                self.stale.append(f"two arguments are about {key[0]} at {key[1]:#x}")
            self._reasons[key] = one.reason

    def reason(self, mutant: Mutant) -> str:
        """Why nothing can be seen of a mutant; "" if no argument is about it."""
        return next(filter(None, (self._reasons.get(key) for key in _keys(mutant))), "")

    def without_mutant(self, mutants: Sequence[Mutant]) -> list[str]:
        """Arguments about what is not among all mutants of the kernel."""
        there = {key for mutant in mutants for key in _keys(mutant)}
        return [
            f"an argument is about {kind} at {pc:#x}, where there is no such mutant"
            for kind, pc in self._reasons
            if (kind, pc) not in there
        ]


def _keys(mutant: Mutant) -> tuple[tuple[str, int], ...]:
    """As arguments name it: a wait has a mutant for each counter."""
    counter = mutant.what.partition("(")[0]
    return (mutant.kind, mutant.pc), (f"{mutant.kind}, {counter}", mutant.pc)
