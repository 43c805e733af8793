"""The specs of an operation's operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from amdattn.arrays.views import View
from amdattn.dtypes import DType

Role = Literal["in", "out", "inout"]
# Makes a view of a caller's array: (array, label, ordinal of the device or None, stream).
HostCheck = Callable[[Any, str, "int | None", int], View]


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """The requirements of one operand of a plan.

    Attributes
    ----------
    name : str
        The name in plans and kernels.
    role : {"in", "out", "inout"}
        Whether kernels read or write it. An "inout" operand must be given; an "out" operand is
        allocated if it is not given.
    shape : tuple of int
    dtype : DType
    axes : tuple of str
        Names of all axes except the last, which has stride 1.
    label : str
        The name in the public function; "": `name`.
    present : bool
        Whether this problem has the operand.
    condition : str
        The argument of the problem that decides `present`.
    host_check : callable, optional
        Reads what a caller gives, if it takes more than a view of an array or checks values on the
        host; the default is `as_view`.
    layout : str
        The shape in the caller's words, for messages.
    partly : bool
        Whether runs leave some elements of a result as they are.
    typical : callable, optional
        Makes contents for benchmarks, for lengths and indices, which cannot be random.
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
        """Bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize


Specs = Mapping[str, OperandSpec]
