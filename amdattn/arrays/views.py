"""Views: how calls see memory, whoever owns it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from amdattn.dtypes import DType

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(eq=False, slots=True)  # not frozen, which would triple the cost of creating one
class View:
    """A strided view of memory, which never changes. Strides count elements.

    `array` is host memory as a numpy array, and None for device memory, whose device is `ordinal`.
    `facts` holds all that checks depend on; it is hashable and keeps no memory alive.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    read_only: bool
    owner: object
    array: NDArray[Any] | None = None
    ordinal: int | None = None
    facts: tuple[object, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.facts = (
            self.address,
            self.shape,
            self.strides,
            self.dtype.name,
            self.read_only,
            self.ordinal,
        )

    @property
    def on_device(self) -> bool:
        """True for device memory."""
        return self.ordinal is not None

    def extent(self) -> tuple[int, int]:
        """Addresses of the first byte and one past the last byte of the view."""
        if 0 in self.shape:
            return self.address, self.address
        first = last = 0
        for length, step in zip(self.shape, self.strides, strict=True):
            if step < 0:
                first += (length - 1) * step
            else:
                last += (length - 1) * step
        itemsize = self.dtype.itemsize
        return self.address + first * itemsize, self.address + (last + 1) * itemsize
