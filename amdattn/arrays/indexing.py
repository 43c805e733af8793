"""Views of a strided array by a key or by a new shape: arithmetic of shapes, no memory."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, SupportsIndex

from amdattn import scalars

_MAX_ELEMENTS = 2**60  # with 8 bytes each, these fill the address space
Strided = tuple[int, tuple[int, ...], tuple[int, ...]]  # elements skipped, shape, strides


def lengths_of(shape: object) -> tuple[int, ...]:
    """The shape that a caller gives: an int or a sequence of ints.

    Raises
    ------
    TypeError, ValueError
        A length is not an int, or is negative.
    """
    if isinstance(shape, SupportsIndex) or not isinstance(shape, Sequence) or _is_text(shape):
        shape = (scalars.integer("shape", shape),)
    lengths = tuple(scalars.integer("shape", length) for length in shape)
    if any(length < 0 for length in lengths):
        raise ValueError(f"shape={lengths} must not be negative")
    if math.prod(lengths) > _MAX_ELEMENTS or max(lengths, default=0) > _MAX_ELEMENTS:
        raise ValueError(f"shape={lengths} must have at most 2**60 elements")
    return lengths


def _is_text(shape: object) -> bool:
    return isinstance(shape, (str, bytes))


def index(key: object, shape: tuple[int, ...], strides: tuple[int, ...]) -> Strided:
    """The view by integers, slices and ``...``."""
    skipped = 0
    lengths: list[int] = []
    steps: list[int] = []
    for item, length, stride in zip(_full_key(key, len(shape)), shape, strides, strict=True):
        if isinstance(item, slice):
            start, stop, step = item.indices(length)
            count = len(range(start, stop, step))
            lengths.append(count)
            steps.append(stride * step)
            first = start if count else 0
        else:
            first = operator.index(item)
            if not -length <= first < length:
                raise IndexError(f"index {first} is out of range for an axis of {length}")
            first %= length
        skipped += first * stride
    return skipped, tuple(lengths), tuple(steps)


def _full_key(key: object, ndim: int) -> list[Any]:
    items = list(key) if isinstance(key, tuple) else [key]
    # By identity: a comparison with an array has no single truth value.
    ellipses = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError("an index can hold only one ellipsis")
    if not ellipses:
        ellipses = [len(items)]
        items.append(Ellipsis)
    at = ellipses[0]
    missing = ndim - (len(items) - 1)
    if missing < 0:
        raise IndexError(f"{len(items) - 1} indices for {ndim} dimensions")
    items[at : at + 1] = [slice(None)] * missing
    for i, item in enumerate(items):
        if type(item) is slice or type(item) is int:
            continue
        items[i] = item if isinstance(item, slice) else _integer_key(item)
    return items


def _integer_key(item: object) -> int:
    try:
        return scalars.integer("index", item)
    except TypeError:
        raise TypeError(
            f"DeviceArray index {item!r} must be an int, a slice or ...; arrays, masks and None "
            "are not taken"
        ) from None


def reshape(
    shape: tuple[int, ...], strides: tuple[int, ...], wanted: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of a view with the elements in the same order; -1 stands for the rest.

    Raises
    ------
    ValueError
        The number of elements differs, or no strides give this order.
    """
    size = math.prod(shape)
    if wanted.count(-1) > 1 or any(length < -1 for length in wanted):
        raise ValueError(f"shape={wanted} must not be negative, but for one -1")
    if -1 in wanted:
        others = -math.prod(wanted)
        rest = size // others if others else 0
        wanted = tuple(rest if length == -1 else length for length in wanted)
    if math.prod(wanted) != size:
        raise ValueError(f"shape={wanted} has other than the {size} elements of {shape}")
    if size == 0:
        return wanted, (0,) * len(wanted)
    # Runs of axes that follow each other in memory, from the last: (elements, innermost stride).
    runs: list[list[int]] = []
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length == 1:
            continue
        if runs and stride == runs[-1][0] * runs[-1][1]:
            runs[-1][0] *= length
        else:
            runs.append([length, stride])
    steps: list[int] = []
    left, step = 1, 1  # of the run that is being cut
    pending = iter(runs)
    for length in reversed(wanted):
        if left == 1 and length > 1:
            left, step = next(pending)
        if left % length:
            raise ValueError(
                f"shape={wanted} is no view of an array of shape {shape} and strides {strides}; "
                "copy it first, as amdattn.asarray(x.numpy()) does"
            )
        steps.append(step)
        step *= length
        left //= length
    return wanted, tuple(reversed(steps))
