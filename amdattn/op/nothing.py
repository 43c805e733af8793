"""Results without elements: nothing is launched, but every check is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from amdattn.arrays.buffers import View, empty, host_empty
from amdattn.arrays.interchange import like
from amdattn.dtypes import DType
from amdattn.op.operands import check_placement, check_shape
from amdattn.op.outputs import output_view


class Nothing(NamedTuple):
    """A result without elements that is allocated or was given."""

    given: Any
    shape: tuple[int, ...]
    dtype: DType
    layout: str


def made(
    kind: Any, inputs: Mapping[str, View], results: Mapping[str, Nothing], stream: int
) -> tuple[Any, ...]:
    """The results, of the kind of the first input unless they were given."""
    first = next(iter(inputs.values()))
    named, found = dict(inputs), []
    for name, result in results.items():
        if result.given is not None:
            view = named[name] = output_view(result.given, name, stream)
            check_shape(view, name, result.shape, result.dtype.name, result.layout)
            if view.read_only:
                raise ValueError(f"{name} is read-only")
            found.append(result.given)
        elif first.on_device:
            found.append(like(kind, empty(result.shape, result.dtype.name, first.ordinal)))
        else:
            found.append(like(kind, host_empty(result.shape, result.dtype)))
    check_placement(named)
    return tuple(found)
