"""What a benchmark of attention compares: our operation, and whatever is put beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from amdattn.bench.kernels import Functions, Launch, Operands, Titled
from amdattn.bench.modelled import Modelled
from amdattn.bench.shapes import Shape

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from amdattn.bench.modelled import ModelOptions


class Peer(Titled, Protocol):
    """An operation that solves shapes by one launch or several, which follow each other."""

    def refusal(self, shape: Shape) -> str:
        """Why it cannot solve the shape; "" if it can."""
        ...

    def launches(self, shape: Shape, operands: Operands) -> list[Launch]:
        """As the operation itself would make them."""
        ...

    def model(
        self, shape: Shape, functions: Functions, **options: Unpack[ModelOptions]
    ) -> list[Modelled]:
        """What the performance model says of every launch.

        Raises
        ------
        NotLinear
            The launches cannot be sampled, and `method` demands it.
        """
        ...


@dataclass(frozen=True)
class PeerKind:
    """A kind of peers that `--peer` may name.

    Attributes
    ----------
    spelling : str
        NAME, or NAME=WHAT if it takes a value.
    make : callable
        Of the value ("" if it takes none) and the rounding modes that were asked for: the peers.
    """

    spelling: str
    make: Callable[[str, Sequence[str]], Sequence[Peer]]

    def value(self, given: str) -> str | None:
        """The value of a `--peer` of this kind; None: it is of another, or wrong."""
        name, equals, value = given.partition("=")
        own_name, own_equals, _ = self.spelling.partition("=")
        right = (name, equals, bool(value)) == (own_name, own_equals, bool(own_equals))
        return value if right else None
