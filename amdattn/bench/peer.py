"""What a benchmark of attention compares: this package's operation, and operations of others."""

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
    """An operation that solves shapes with one launch, or with several consecutive ones."""

    def refusal(self, shape: Shape) -> str:
        """The reason why it cannot solve the shape; "" if it can."""
        ...

    def launches(self, shape: Shape, operands: Operands) -> list[Launch]:
        """The launches that the operation itself would make."""
        ...

    def model(
        self, shape: Shape, functions: Functions, **options: Unpack[ModelOptions]
    ) -> list[Modelled]:
        """Model every launch with the performance model.

        Raises
        ------
        NotLinear
            The launches cannot be sampled, and `method` is "sampled".
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
        Makes the peers from the value ("" if it takes none) and the requested rounding modes.
    """

    spelling: str
    make: Callable[[str, Sequence[str]], Sequence[Peer]]

    def value(self, given: str) -> str | None:
        """The value in a `--peer` of this kind; None if it is of another kind or malformed."""
        name, equals, value = given.partition("=")
        own_name, own_equals, _ = self.spelling.partition("=")
        right = (name, equals, bool(value)) == (own_name, own_equals, bool(own_equals))
        return value if right else None
