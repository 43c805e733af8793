"""What an operation says of its operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from amdattn.arrays.buffers import View
from amdattn.dtypes import DType

Role = Literal["in", "out", "inout"]
# Makes a view of what a caller gives: (array, label, ordinal of the device or None, stream).
HostCheck = Callable[[Any, str, "int | None", int], View]


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """What one operand of a plan must be.

    Attributes
    ----------
    name : str
        As plans and kernels name it.
    role : {"in", "out", "inout"}
        Who writes it. What is "inout" must be given; what is "out" is made if it is not.
    shape : tuple of int
    dtype : DType
    axes : tuple of str
        Names of all axes but the last, which has stride 1.
    label : str
        As the public function names it; "": `name`.
    present : bool
        False: of this problem there is none.
    condition : str
        Argument of the problem on which that depends.
    host_check : callable, optional
        Reads what a caller gives, where more than a view of an array is to be had, or to be checked
        of values on the host; else `as_view` does.
    layout : str
        What the shape is in the words of the caller, for messages.
    partly : bool
        Of a result: whether runs leave some elements as they are.
    typical : callable, optional
        Makes contents as benchmarks have them, of lengths and indices, which cannot be random.
    """

    name: str
    role: Role
    shape: tuple[int, ...]
    dtype: DType
    axes: tuple[str, ...]
    label: str = ""
    present: bool = True
    condition: str = ""
    host_check: HostCheck | None = None
    layout: str = ""
    partly: bool = False
    typical: Callable[[], Any] | None = None

    @property
    def title(self) -> str:
        """The name that callers know."""
        return self.label or self.name

    @property
    def nbytes(self) -> int:
        """Of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize


Specs = Mapping[str, OperandSpec]
