"""Contents of q, k and v in benchmarks of attention: classes of scores, and arrays of a file.

The time of a kernel may depend on them. Scores are q . k / sqrt(head_dim), in nats. Contents depend
on the place in the operand only, so a part of a problem holds the same numbers as the whole problem
does there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from amdattn.user_files import read_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NUMBERS = 2**21 + 2**7 * 3  # random numbers, which repeat; not a power of two
_TYPES = ("float16", "float32", "float64")  # in files; NumPy has no bfloat16


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a problem; head h of q reads head h // (heads_q // heads_kv) of k and v."""

    batch: int
    seqlen_q: int
    seqlen_kv: int
    heads_q: int
    heads_kv: int
    head_dim: int
    head_dim_v: int

    def shape(self, operand: str) -> tuple[int, int, int, int]:
        """Shape of "q", "k" or "v": (batch, seqlen, heads, columns)."""
        if operand == "q":
            return self.batch, self.seqlen_q, self.heads_q, self.head_dim
        columns = self.head_dim if operand == "k" else self.head_dim_v
        return self.batch, self.seqlen_kv, self.heads_kv, columns


@dataclass(frozen=True, slots=True)
class Place:
    """The place of rows in an operand: the batch entry, the first row and the first head."""

    operand: str
    batch: int
    row: int = 0
    head: int = 0


class Inputs(Protocol):
    """Contents of q, k and v."""

    @property
    def name(self) -> str:
        """The name in commands and records."""
        ...

    def check(self, sizes: Sizes) -> None:
        """Raise ValueError if they cannot fill a problem of these sizes."""
        ...

    def rows(self, sizes: Sizes, place: Place, normal: NDArray[Any]) -> NDArray[np.float32]:
        """Contents of some rows.

        Parameters
        ----------
        sizes : Sizes
            Sizes of the whole problem, which `check` accepted.
        place : Place
            The place of the rows.
        normal : (rows, heads, columns) float32
            N(0, 1) numbers of this place, from which the contents are made.

        Returns
        -------
        (rows, heads, columns) float32
        """
        ...


@dataclass(frozen=True, slots=True)
class Head:
    """Scores of one head.

    Attributes
    ----------
    sd : float
        Standard deviation of the scores if all keys have the same norm.
    log_norms : float
        Standard deviation of the logarithm of the norms of K's rows.
    rising : float
        Nats by which scores rise over the keys, from the first to the last.
    above, at : float
        Nats by which the scores of one key are higher, and its place, from 0 for the first key to 1
        for the last.
    """

    sd: float = 1.0
    log_norms: float = 0.0
    rising: float = 0.0
    above: float = 0.0
    at: float = 0.0

    @property
    def has_offsets(self) -> bool:
        """Whether scores depend on the place of a key; if so, the first column encodes it."""
        return self.rising != 0 or self.above != 0

    def offsets(self, keys: int) -> NDArray[np.float64]:
        """Nats that are added to all scores of each key: (keys,) float64."""
        nats = np.linspace(0, self.rising, keys)
        nats[int(self.at * (keys - 1))] += self.above
        return nats


@dataclass(frozen=True, slots=True)
class ScoreClass:
    """Random numbers whose scores have a given distribution.

    `heads` repeat if a problem has more heads. `sd` is that of the head of q; everything else is
    that of the head of k.
    """

    name: str
    heads: tuple[Head, ...]

    def check(self, sizes: Sizes) -> None:
        """Accept every size."""

    def rows(self, sizes: Sizes, place: Place, normal: NDArray[Any]) -> NDArray[np.float32]:
        """See `Inputs.rows`."""
        made: NDArray[np.float32] = normal
        if place.operand == "v" or self.heads == (Head(),):
            return made
        made = made.copy()
        count = len(made)
        for i in range(made.shape[1]):
            number = place.head + i
            if place.operand == "q":
                made[:, i] *= np.float32(self._head(number).sd)
                of_keys = self._head(number // (sizes.heads_q // sizes.heads_kv))
                if of_keys.has_offsets:
                    made[:, i, 0] = np.sqrt(sizes.head_dim)
                continue
            head, here = self._head(number), slice(place.row, place.row + count)
            if head.log_norms:
                rng = np.random.default_rng([place.batch, number])
                norms = np.exp(head.log_norms * rng.standard_normal(sizes.seqlen_kv))
                made[:, i] *= norms[here, None].astype(np.float32)
            if head.has_offsets:
                made[:, i, 0] = head.offsets(sizes.seqlen_kv)[here]
        return made

    def _head(self, number: int) -> Head:
        return self.heads[number % len(self.heads)]


@dataclass(frozen=True)
class FileInputs:
    """Arrays of a file.

    Attributes
    ----------
    name : str
        The path of the file.
    arrays : dict of str to array
        q, k and v, each (batch, seqlen, heads, columns).
    is_tiled : bool
        For problems of other sizes, repeat or cut the arrays along batch, rows and heads.
    """

    name: str
    arrays: Mapping[str, NDArray[Any]]
    is_tiled: bool = False

    def check(self, sizes: Sizes) -> None:
        """Raise ValueError if the arrays have other shapes or, if tiled, other columns."""
        for operand, array in self.arrays.items():
            wanted, has = sizes.shape(operand), array.shape
            if wanted == has:
                continue
            what = f"--inputs={self.name}: {operand} has the shape {has}, the problem has {wanted}"
            if not self.is_tiled:
                raise ValueError(f"{what}; --tile-inputs repeats or cuts batch, rows and heads")
            if wanted[-1] != has[-1]:
                raise ValueError(f"{what}; columns are not repeated")

    def rows(self, sizes: Sizes, place: Place, normal: NDArray[Any]) -> NDArray[np.float32]:
        """See `Inputs.rows`; each head of q keeps the head of k that it has in the file."""
        array = self.arrays[place.operand]
        batch, seqlen, heads, _ = array.shape
        count, numbers = len(normal), place.head + np.arange(normal.shape[1])
        if place.operand == "q":
            of_kv = self.arrays["k"].shape[2]
            group, in_file = sizes.heads_q // sizes.heads_kv, heads // of_kv
            numbers = numbers // group % of_kv * in_file + numbers % group % in_file
        else:
            numbers %= heads
        rows = (place.row + np.arange(count)) % seqlen
        found: NDArray[np.float32] = array[place.batch % batch][rows[:, None], numbers].astype("f4")
        return found


def read_inputs(path: Path, *, is_tiled: bool = False) -> FileInputs:
    """Read the arrays q, k and v of a .npz file.

    Each is (batch, seqlen, heads, columns) of float16, float32 or float64.

    Raises
    ------
    ValueError
        The file is no .npz file or lacks one of the arrays, or an array has another dtype, NaN or
        infinity, or a shape that does not match the others.
    OSError
        The file does not exist or cannot be read.
    """
    found = read_arrays(path)
    if missing := [name for name in "qkv" if name not in found]:
        have = ", ".join(found) or "none"
        raise ValueError(f"{path}: has no array {missing[0]}; its arrays are {have}")
    arrays = {name: found[name] for name in "qkv"}
    for name, array in arrays.items():
        if array.dtype.name not in _TYPES:
            raise ValueError(
                f"{path}: {name} is {array.dtype.name}, must be one of {', '.join(_TYPES)}"
            )
        if array.ndim != 4 or array.size == 0:
            raise ValueError(
                f"{path}: {name} has the shape {array.shape}, not (batch, seqlen, heads, columns)"
            )
        if not np.isfinite(array).all():
            raise ValueError(f"{path}: {name} holds NaN or infinity")
    q, k, v = (arrays[name].shape for name in "qkv")
    if k[:3] != v[:3]:
        raise ValueError(
            f"{path}: k and v have the shapes {k} and {v}, which differ before the last axis"
        )
    if q[0] != k[0] or q[3] != k[3] or q[2] % k[2]:
        raise ValueError(
            f"{path}: q and k have the shapes {q} and {k}: batch and columns must be the same, and "
            "heads of q a multiple of those of k"
        )
    return FileInputs(str(path), arrays, is_tiled)


def named(text: str, *, is_tiled: bool = False) -> Inputs:
    """The inputs that a command names.

    Parameters
    ----------
    text : str
        A class of CLASSES, or FILE.npz.
    is_tiled : bool
        Repeat or cut the arrays of the file to the sizes of a problem.

    Raises
    ------
    ValueError
        There is no such class, `read_inputs` refuses the file, or `is_tiled` is given with a class.
    OSError
        The file does not exist or cannot be read.
    """
    if text.endswith(".npz"):
        return read_inputs(Path(text), is_tiled=is_tiled)
    if is_tiled:
        raise ValueError(f"--tile-inputs needs --inputs FILE.npz, not --inputs={text!r}")
    if text not in CLASSES:
        raise ValueError(f"--inputs={text!r} must be FILE.npz or one of {', '.join(CLASSES)}")
    return CLASSES[text]


@functools.cache
def _numbers(operand: str) -> NDArray[np.float32]:
    # Each operand has its own: if a row of q were a row of k, its score would be unusually high.
    rng = np.random.default_rng(0)
    made = {name: rng.standard_normal(_NUMBERS, np.float32) for name in "qkv"}
    return made[operand]


def normal(operand: str, begin: int, count: int) -> NDArray[np.float32]:
    """(count,) float32 N(0, 1) numbers from element `begin` of an operand on.

    They depend on the element only, so a part of an operand has the same numbers as the whole.
    """
    numbers = _numbers(operand)
    at = begin % _NUMBERS
    if at + count <= _NUMBERS:
        return numbers[at : at + count]
    return np.resize(np.roll(numbers, -at), count)


def entry(inputs: Inputs, sizes: Sizes, operand: str, batch: int) -> NDArray[np.float32]:
    """A batch entry of "q", "k" or "v", of sizes that `check` accepted.

    Returns
    -------
    (seqlen, heads, columns) float32
    """
    shape = sizes.shape(operand)[1:]
    some = normal(operand, batch * math.prod(shape), math.prod(shape))
    return inputs.rows(sizes, Place(operand, batch), some.reshape(shape))


def _alike(**names: Head) -> dict[str, ScoreClass]:
    return {name: ScoreClass(name, (head,)) for name, head in names.items()}


NORMAL = ScoreClass("normal", (Head(),))
# No easier for a kernel than 72 heads of all-MiniLM-L6-v2 over text, by range and rise of scores
# and by time; benchmarks/model_inputs.py prints both. The last head stands for one of them, whose
# scores have a standard deviation of 16, but no tails. A problem with a single head has the first.
# There are seven, so that an XCD, which has every eighth head, has different ones.
MODEL_LIKE = ScoreClass(
    "model-like",
    (
        Head(sd=3, log_norms=0.3, above=10),
        Head(sd=2, log_norms=0.2),
        Head(sd=4, log_norms=0.3),
        Head(sd=1.5, log_norms=0.5, above=5),
        Head(sd=3.5, log_norms=0.2),
        Head(sd=2.5, log_norms=0.4, above=10),
        Head(sd=12, log_norms=0.2),
    ),
)
WORST = ScoreClass("worst", (Head(rising=100),))

CLASSES: Mapping[str, ScoreClass] = {
    **{one.name: one for one in (MODEL_LIKE, NORMAL, WORST)},
    **_alike(
        **{f"scores of sd {sd:g}": Head(sd) for sd in (1.5, 2, 4, 8, 16)},
        **{f"norms of K lognormal {sd:g}": Head(log_norms=sd) for sd in (0.25, 0.5, 1)},
        **{f"scores rising by {nats} nats": Head(rising=nats) for nats in (10, 25, 28, 50)},
        **{
            f"{key} key {nats} nats above": Head(above=nats, at=at)
            for key, nats, at in (
                *(("first", 10, 0.0), ("middle", 10, 0.5), ("middle", 25, 0.5)),
                ("last", 25, 1.0),
            )
        },
    ),
}
