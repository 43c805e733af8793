"""Tables of tuned matrix products, the user's and the shipped one: kernel, parts, columns."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amdattn import paths
from amdattn.arch.props import DeviceProps
from amdattn.ops.gemm.choice import Choice
from amdattn.ops.gemm.problem import GemmProblem
from amdattn.user_files import read_json

SCHEMA = 3
VARIABLE = "AMDATTN_GEMM_TABLE"
_ABSURD = 2**31  # above any count and any time in us


@dataclass(frozen=True, slots=True)
class Key:
    """The facts that a choice is stored under; the rest of a problem hardly changes its time.

    The chip is one of them, since chips with equal numbers of CUs differ in HBM; so is the number
    of CUs, in which partitions of a chip differ.
    """

    chip: str
    num_cus: int
    dtype: str
    m: int
    n: int
    k: int
    has_factors: bool
    deterministic: bool

    @staticmethod
    def of(problem: GemmProblem, props: DeviceProps) -> Key:
        """The key of a problem with aligned rows, on a device."""
        return Key(
            *(
                props.chip or props.name,
                props.num_cus,
                problem.dtype + " mx" * problem.is_mx + " rms" * (problem.rms_eps is not None),
                problem.m,
                problem.n,
                problem.k,
            ),
            *(problem.has_factors, problem.deterministic),
        )


@dataclass(frozen=True, slots=True)
class Tuned:
    """The fastest choice, and where its time comes from.

    Attributes
    ----------
    kernel : str
        Its name in the manifest.
    splits, columns : int
        Parts along k, columns of a tile.
    us : float
    how : str
        "measured on ..." or "modelled at ...".
    """

    kernel: str
    splits: int
    columns: int
    us: float
    how: str

    @staticmethod
    def of(choice: Choice, us: float, how: str) -> Tuned:
        """A choice that was timed."""
        return Tuned(choice.kernel.name, choice.splits, choice.columns, round(us, 3), how)

    def __str__(self) -> str:
        return (
            f"{self.kernel} with {self.columns} columns, splits={self.splits}, {self.us:.2f} us "
            f"{self.how}"
        )


def shipped_path() -> Path:
    """The shipped table, which build_scripts/gemm_table.py tunes on the performance model."""
    return paths.hsaco_dir() / "gemm_nt.json"


def default_path() -> Path:
    """$AMDATTN_GEMM_TABLE, or else amdattn/gemm.json in the user's configuration.

    Raises
    ------
    ValueError
        The variable is not set and there is no home folder.
    """
    override = os.environ.get(VARIABLE)
    if override:
        return Path(override)
    path = _of_user(os.environ.get("XDG_CONFIG_HOME"), os.environ.get("HOME"))
    if path is None:
        raise ValueError(
            f"there is no folder for a table of tuned products: this user has no home folder; name "
            f"a file in {VARIABLE}"
        )
    return path


@functools.lru_cache(maxsize=4)
def _of_user(config: str | None, _home: str | None) -> Path | None:
    """The user's configuration by the XDG specification, which ignores relative paths."""
    try:
        folder = Path(config) if config and os.path.isabs(config) else Path.home() / ".config"
    except RuntimeError:  # no variable and no user database knows it
        return None
    return folder / "amdattn" / "gemm.json"


def load(path: Path) -> Mapping[Key, Tuned]:
    """The entries of a file, or none if the file does not exist.

    Raises
    ------
    ValueError
        The file is not such a table.
    """
    try:
        changed = os.stat(path).st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise _no_table(path, error) from None
    return _load(path, changed)


@functools.lru_cache(maxsize=4)
def _load(path: Path, _changed: int) -> Mapping[Key, Tuned]:
    try:
        document = read_json(path)
        if not isinstance(document, dict) or document.keys() != {"schema", "entries"}:
            raise ValueError('not an object of "schema" and "entries"')
        if document["schema"] != SCHEMA:
            raise ValueError(
                f"schema {document['schema']!r} is not {SCHEMA}: tune again, or remove the file"
            )
        if not isinstance(document["entries"], list):
            raise ValueError('"entries" is no list')
        entries: dict[Key, Tuned] = {}
        for number, entry in enumerate(document["entries"], 1):
            try:
                key, tuned = _fields(Key, entry["for"]), _fields(Tuned, entry["choice"])
                if key in entries:
                    raise ValueError("repeats an earlier one")
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"entry {number}: {type(error).__name__}: {error}") from None
            entries[key] = tuned
        return entries
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise _no_table(path, error) from None


def _no_table(path: Path, error: Exception) -> ValueError:
    what = f"{type(error).__name__}: {error}"
    return ValueError(f"{path} is no table of `amdattn tune gemm` ({what})")


_TYPES: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
}


def _fields(kind: type[Any], values: Mapping[str, Any]) -> Any:
    if not isinstance(values, dict):
        raise TypeError(f"{values!r} is no object")
    if unknown := values.keys() - {field.name for field in dataclasses.fields(kind)}:
        raise ValueError(f"has {', '.join(sorted(unknown))}, which means nothing")
    for field in dataclasses.fields(kind):
        if type(values[field.name]) not in _TYPES[str(field.type)]:
            raise TypeError(f"{field.name} is {values[field.name]!r}, not of type {field.type}")
        if field.type in ("int", "float") and not 0 < values[field.name] < _ABSURD:
            raise ValueError(f"{field.name} is {values[field.name]!r}, not in 0..{_ABSURD}")
    return kind(**values)


def store(path: Path, found: Iterable[tuple[Key, Tuned]], keep: bool = True) -> None:
    """Add entries to a file, replacing equal keys, or replace the file, in one atomic step."""
    entries = {**(load(path) if keep else {}), **dict(found)}
    document = {
        "schema": SCHEMA,
        "entries": [
            {"for": dataclasses.asdict(key), "choice": dataclasses.asdict(tuned)}
            for key, tuned in sorted(entries.items(), key=lambda item: dataclasses.astuple(item[0]))
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=path.name) as folder:
        new = Path(folder) / path.name
        new.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        os.replace(new, path)


def lookup(problem: GemmProblem, props: DeviceProps) -> Tuned | None:
    """The choice of the user's table, or else of the shipped one, if either has this problem.

    A given `split_k` is kept, and problems with rows that are not aligned have no entry. Tables
    hold only the layout that has kernels for few rows.

    Raises
    ------
    ValueError
        $AMDATTN_GEMM_TABLE names no table, or the user's file is not one.
    """
    of_16_bits = problem.b_dtype == problem.dtype
    if problem.split_k or not problem.aligned or not of_16_bits or problem.layout != "nt":
        return None
    if problem.are_several:
        return None
    key = Key.of(problem, props)
    return _users().get(key) or _shipped().get(key)


def _users() -> Mapping[Key, Tuned]:
    """The user's table. It may be missing, unless the environment names it."""
    named = os.environ.get(VARIABLE)
    if not named:
        return _found(_of_user(os.environ.get("XDG_CONFIG_HOME"), os.environ.get("HOME")))
    path = Path(named)
    if not os.path.exists(path):
        raise ValueError(f"{VARIABLE}={named!r} names no file; `amdattn tune gemm` writes one")
    try:
        return load(path)
    except ValueError as error:
        raise ValueError(f"{VARIABLE}={named!r}: {error}") from None


def _found(path: Path | None) -> Mapping[Key, Tuned]:
    """The table of a user's configuration, as far as it can be read.

    A folder that cannot be reached is ignored. A file that cannot be read stops no product either,
    but causes a warning, since plans differ without it.
    """
    if path is None:
        return {}
    try:
        os.stat(path)
    except OSError:
        return {}
    if not os.access(path, os.R_OK):
        warnings.warn(
            f"{path} may not be read: products are planned without what was tuned for them; "
            f"{VARIABLE} names another table",
            RuntimeWarning,
            stacklevel=2,
        )
        return {}
    return load(path)


def _shipped() -> Mapping[Key, Tuned]:
    """The shipped table, which is read again only if the variable of its folder changes."""
    return _of_override(os.environ.get(paths.KERNEL_DIR_VARIABLE))


@functools.lru_cache(maxsize=4)
def _of_override(_folder: str | None) -> Mapping[Key, Tuned]:
    return load(shipped_path())
