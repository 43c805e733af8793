"""Results without elements: nothing is launched, but every check is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from amdattn.arrays.buffers import empty, host_empty
from amdattn.arrays.interchange import to_library_of
from amdattn.arrays.views import View
from amdattn.dtypes import DType
from amdattn.op.operands import check_placement, check_shape
from amdattn.op.outputs import output_view


class EmptyResult(NamedTuple):
    """A result without elements that is allocated or was given."""

    given: Any
    shape: tuple[int, ...]
    dtype: DType
    layout: str


def empty_results(
    kind: Any, inputs: Mapping[str, View], results: Mapping[str, EmptyResult], stream: int
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
            found.append(to_library_of(kind, empty(result.shape, result.dtype.name, first.ordinal)))
        else:
            found.append(to_library_of(kind, host_empty(result.shape, result.dtype)))
    check_placement(named)
    return tuple(found)
