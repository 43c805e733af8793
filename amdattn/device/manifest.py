"""The shipped kernels: rows of hsaco/manifest.json."""

from __future__ import annotations

import functools
import hashlib
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from amdattn import paths
from amdattn.arch.props import KNOWN_DEVICES, DeviceProps
from amdattn.device import packs
from amdattn.device.manifest_schema import MAX_CODE_OBJECT_BYTES, read
from amdattn.dtypes import as_dtype
from amdattn.errors import CorruptKernel, ManifestError, UnsupportedDeviceError

T = TypeVar("T", covariant=True)


@dataclass(frozen=True, slots=True)
class KernargSpec:
    """Layout the code object expects, to be checked against the C header of the same struct."""

    struct: str
    header: str
    size: int
    fields: tuple[tuple[str, int, int, str], ...]  # name, offset, size, C type

    def filled(self, values: Mapping[str, T]) -> tuple[tuple[str, T], ...]:
        """The value of every field, in the order of the struct."""
        return tuple((name, values[name]) for name, *_ in self.fields)


class Facts(Mapping[str, T]):
    """The facts of one group in a kernel's row; asking for a missing one is an error."""

    __slots__ = ("_facts", "_kernel", "_matter")

    def __init__(self, kernel: str, matter: str, facts: Mapping[str, T]) -> None:
        self._kernel, self._matter, self._facts = kernel, matter, facts

    def __getitem__(self, key: str) -> T:
        try:
            return self._facts[key]
        except KeyError:
            raise ManifestError(
                f"kernel {self._kernel} states no {key!r} in {self._matter!r}"
            ) from None

    def __contains__(self, key: object) -> bool:
        return key in self._facts

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)


@dataclass(frozen=True, slots=True, repr=False)
class KernelSpec:
    """One precompiled kernel. Two rows are equal if symbol and content hash are.

    Attributes
    ----------
    op : str
        The operation of which this is one of several kernels.
    dtype : str
        Element type of its inputs.
    params : Facts
        The values that it was compiled for, which identify it among the operation's kernels.
    tile : Facts
        The part of the result that a workgroup computes at a time.
    accepts : Facts
        The values that it implements, argument by argument.
    grid : str
        The name of the rule that gives its grid.
    workgroup : (int, int, int)
        Lanes along x, y and z.
    vgpr, agpr, sgpr, scratch_bytes : int
        Registers and bytes of a lane; `vgpr` includes AGPRs.
    lds_bytes : int
        Bytes of a workgroup.
    nbytes : int or None
        Bytes of the code object; None: the manifest does not say.
    """

    symbol: str
    sha256: str
    name: str = field(compare=False)
    path: Path = field(compare=False, repr=False)
    arch: str = field(compare=False)
    op: str = field(compare=False)
    dtype: str = field(compare=False)
    params: Facts[Any] = field(compare=False)
    tile: Facts[int] = field(compare=False)
    accepts: Facts[Any] = field(compare=False, repr=False)
    grid: str = field(compare=False, repr=False)
    workgroup: tuple[int, int, int] = field(compare=False)
    vgpr: int = field(compare=False)
    agpr: int = field(compare=False)
    sgpr: int = field(compare=False)
    lds_bytes: int = field(compare=False)
    scratch_bytes: int = field(compare=False)
    kernarg: KernargSpec = field(compare=False, repr=False)
    source: str = field(compare=False, repr=False)
    toolchain: str = field(compare=False, repr=False)
    code_object_version: int = field(compare=False, repr=False)
    nbytes: int | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        return f"<KernelSpec {self.name} {self.arch} sha256 {self.sha256[:16]}>"

    def __getattr__(self, name: str) -> Any:
        """Facts of attention kernels under their former names."""
        former = _FORMER_NAMES.get(name)
        if former is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        matter, key = former
        now = f"{matter}[{key!r}]" if key else matter
        warnings.warn(f"KernelSpec.{name} is now {now}", DeprecationWarning, stacklevel=2)
        facts: Facts[Any] = getattr(self, matter)
        return facts[key] if key else facts

    def check_grid(self, rule: str) -> None:
        """Raise ManifestError unless the grid follows this rule."""
        if self.grid != rule:
            raise ManifestError(f"kernel {self.name} has grid {self.grid!r}, not {rule!r}")

    def read_code_object(self) -> bytes:
        """The code object's bytes, verified against the recorded sha256.

        It is in a pack, or a file (`amdattn.device.packs`).

        Raises
        ------
        CorruptKernel
            The object is missing, or differs from the recorded one.
        """
        most = self.nbytes or MAX_CODE_OBJECT_BYTES
        try:
            image = packs.read(self.path, most)
        except (OSError, ValueError, MemoryError) as error:
            raise CorruptKernel(
                f"kernel {self.name}: cannot read {self.path}: {str(error) or type(error).__name__}"
            ) from None
        digest = hashlib.sha256(image).hexdigest()
        if digest != self.sha256:
            raise CorruptKernel(
                f"{self.path} has sha256 {digest}, but the manifest records {self.sha256}; "
                "reinstall amdattn"
            )
        return image


_FORMER_NAMES = {
    "head_dim": ("params", "head_dim"),
    "head_dim_v": ("params", "head_dim_v"),
    "q_tile": ("tile", "q"),
    "kv_tile": ("tile", "kv"),
    "constraints": ("accepts", ""),
}


def kernels() -> tuple[KernelSpec, ...]:
    """Every shipped kernel, in manifest order."""
    return _of_override(os.environ.get(paths.KERNEL_DIR_VARIABLE))


@functools.lru_cache(maxsize=4)
def _of_override(folder: str | None) -> tuple[KernelSpec, ...]:
    """The kernels while the variable has this value, cached since finding their folder is slow."""
    return _load(paths.hsaco_dir())


@functools.lru_cache(maxsize=4)
def _load(folder: Path) -> tuple[KernelSpec, ...]:
    document = read(folder / "manifest.json")
    kernargs = {
        struct: KernargSpec(
            struct, of["header"], of["size"], tuple((n, o, s, t) for n, o, s, t in of["fields"])
        )
        for struct, of in document["kernargs"].items()
    }
    return tuple(_spec(row, folder, kernargs) for row in document["kernels"])


def _spec(row: Mapping[str, Any], folder: Path, kernargs: Mapping[str, KernargSpec]) -> KernelSpec:
    """The kernel of a checked row."""
    name = row["name"]
    return KernelSpec(
        path=folder / row["file"],
        dtype=as_dtype(row["dtype"]).name,
        params=Facts(name, "params", row["params"]),
        tile=Facts(name, "tile", row["tile"]),
        accepts=Facts(name, "accepts", row["accepts"]),
        workgroup=tuple(row["workgroup"]),
        kernarg=kernargs[row["kernarg"]],
        nbytes=row.get("bytes"),
        **{key: row[key] for key in _PLAIN_FIELDS},
    )


_PLAIN_FIELDS = (
    *("symbol", "sha256", "name", "arch", "op", "vgpr", "agpr", "sgpr", "lds_bytes"),
    *("scratch_bytes", "grid", "source", "toolchain", "code_object_version"),
)


def candidates_of(rows: Sequence[KernelSpec], op: str, arch: str) -> list[KernelSpec]:
    """The kernels of `op` for an architecture."""
    of_rows, found = _candidates.get((id(rows), op, arch), ((), ()))
    if of_rows is not rows:
        found = tuple(row for row in rows if row.op == op and row.arch == arch)
        if isinstance(rows, tuple):  # a list may change
            if len(_candidates) >= _MAX_CANDIDATES:
                _candidates.clear()
            _candidates[id(rows), op, arch] = rows, found
    return list(found)


# By the identity of a manifest, since searching all of it is slow.
_candidates: dict[tuple[int, str, str], tuple[Sequence[KernelSpec], tuple[KernelSpec, ...]]] = {}
_MAX_CANDIDATES = 256


def candidates(rows: Sequence[KernelSpec], op: str, props: DeviceProps) -> list[KernelSpec]:
    """The kernels of `op` for a device; raises if there are none."""
    fitting = candidates_of(rows, op, props.arch)
    if not fitting:
        have = []
        for arch in sorted({row.arch for row in rows if row.op == op}):
            models = [name for name, known in KNOWN_DEVICES.items() if known.arch == arch]
            have.append(f"{arch} ({', '.join(models)})")
        raise UnsupportedDeviceError(
            f"the device is {props.target} ({props.name}); amdattn has {op} kernels for "
            f"{' and '.join(have) or 'no device'}. No fallback is attempted."
        )
    return fitting
