"""The shipped kernels: rows of hsaco/manifest.json, and the choice of one for a problem."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from amdattn import paths
from amdattn.arch.props import KNOWN_DEVICES, DeviceProps
from amdattn.arrays.dtypes import as_dtype
from amdattn.errors import CorruptKernel, ManifestError, UnsupportedDeviceError, UnsupportedProblem
from amdattn.op.mismatch import Mismatch, Span, all_allowed
from amdattn.ops.attention.problem import AttentionProblem

SCHEMA = 1
# Values of KernelSpec.op.
ATTENTION, ATTENTION_MERGE, GATHER = "attn_fwd", "attn_merge", "gather_rows"


@dataclass(frozen=True, slots=True)
class KernargSpec:
    """Layout the code object expects, to be checked against the C header of the same struct."""

    struct: str
    header: str
    size: int
    fields: tuple[tuple[str, int, int, str], ...]  # name, offset, size, C type


@dataclass(frozen=True, slots=True, repr=False)
class KernelSpec:
    """One precompiled kernel. Two rows are equal if symbol and content hash are.

    `q_tile` and `kv_tile` are rows of Q and KV a workgroup takes per step, `head_dim` and
    `head_dim_v` the columns it computes with; `lds_bytes` is per
    workgroup, register counts and `scratch_bytes` are per lane, AGPRs being among the `vgpr`;
    `constraints` says, argument by argument, what the kernel implements.
    """

    symbol: str
    sha256: str
    name: str = field(compare=False)
    path: Path = field(compare=False, repr=False)
    arch: str = field(compare=False)
    op: str = field(compare=False)
    dtype: str = field(compare=False)
    head_dim: int = field(compare=False)
    head_dim_v: int = field(compare=False)
    workgroup: tuple[int, int, int] = field(compare=False)
    q_tile: int = field(compare=False)
    kv_tile: int = field(compare=False)
    vgpr: int = field(compare=False)
    agpr: int = field(compare=False)
    sgpr: int = field(compare=False)
    lds_bytes: int = field(compare=False)
    scratch_bytes: int = field(compare=False)
    kernarg: KernargSpec = field(compare=False, repr=False)
    grid: str = field(compare=False, repr=False)
    constraints: Mapping[str, Any] = field(compare=False, repr=False)
    source: str = field(compare=False, repr=False)
    toolchain: str = field(compare=False, repr=False)
    code_object_version: int = field(compare=False, repr=False)

    def __repr__(self) -> str:
        return f"<KernelSpec {self.name} {self.arch} sha256 {self.sha256[:16]}>"

    def constraint(self, key: str) -> Any:
        """The value of one constraint; a missing one is an error, nothing is assumed."""
        try:
            return self.constraints[key]
        except KeyError:
            raise ManifestError(f"kernel {self.name} states no constraint {key!r}") from None

    def column_groups(self, problem: AttentionProblem) -> int:
        """Workgroups that share the columns of a row of O: each computes `head_dim_v` of them."""
        return -(-problem.head_dim_v // self.head_dim_v)

    def tile_heads(self, problem: AttentionProblem) -> int:
        """Q heads of a tile, which share a kv head; of more than one, parts are of heads."""
        group = problem.num_heads_q // problem.num_heads_kv
        return math.gcd(group, self.constraint("max_tile_heads"))

    def read_code_object(self) -> bytes:
        """The code object's bytes, verified against the recorded sha256."""
        try:
            image = self.path.read_bytes()
        except OSError as error:
            raise CorruptKernel(f"kernel {self.name}: cannot read {self.path}: {error}") from None
        digest = hashlib.sha256(image).hexdigest()
        if digest != self.sha256:
            raise CorruptKernel(
                f"{self.path} has sha256 {digest}, but the manifest records {self.sha256}; "
                "reinstall amdattn"
            )
        return image


def kernels() -> tuple[KernelSpec, ...]:
    """Every shipped kernel, in manifest order."""
    return _of_override(os.environ.get(paths.KERNEL_DIR_VARIABLE))


@functools.lru_cache(maxsize=4)
def _of_override(folder: str | None) -> tuple[KernelSpec, ...]:
    """The kernels while the variable has this value: looking for their folder takes a while."""
    return _load(paths.hsaco_dir())


@functools.lru_cache(maxsize=4)
def _load(folder: Path) -> tuple[KernelSpec, ...]:
    file = folder / "manifest.json"
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ManifestError(f"cannot read {file}: {error}") from None
    if document.get("schema") != SCHEMA:
        raise ManifestError(
            f"{file} has schema {document.get('schema')!r}; this amdattn reads schema {SCHEMA}"
        )
    return tuple(_parse(row, folder) for row in document["kernels"])


def _parse(row: Mapping[str, Any], folder: Path) -> KernelSpec:
    try:
        kernarg = row["kernarg"]
        return KernelSpec(
            path=folder / row["file"],
            dtype=as_dtype(row["dtype"]).name,
            workgroup=tuple(row["workgroup"]),
            kernarg=KernargSpec(
                kernarg["struct"],
                kernarg["header"],
                kernarg["size"],
                tuple((f["name"], f["offset"], f["size"], f["type"]) for f in kernarg["fields"]),
            ),
            constraints=MappingProxyType(row["constraints"]),
            **{key: row[key] for key in _PLAIN_FIELDS},
        )
    except (KeyError, TypeError, ValueError) as error:
        name = row.get("name", "?") if isinstance(row, Mapping) else "?"
        raise ManifestError(f"manifest row {name!r} is malformed: {error!r}") from None


_PLAIN_FIELDS = (
    *("symbol", "sha256", "name", "arch", "op", "head_dim", "head_dim_v", "q_tile", "kv_tile"),
    *("vgpr", "agpr", "sgpr", "lds_bytes", "scratch_bytes", "grid", "source", "toolchain"),
    "code_object_version",
)


@dataclass(frozen=True, slots=True)
class Support:
    """Answer of `supports`: true if `ok`; else why not, and the nearest arguments that work."""

    ok: bool
    reason: str
    nearest: Mapping[str, object] | None = None

    def __bool__(self) -> bool:
        return self.ok


ANY = "any"  # as a constraint: the argument is free
# Arguments of an attention problem of which a kernel lists the values that it takes, or ANY.
_LISTED = (
    *("causal", "window_size", "dropout_p", "round_mode", "return_lse", "sinks", "varlen"),
    "top_left",
)
_SIZES = {"head_dim": "head_dims", "head_dim_v": "head_dims_v"}
_LIMITED = ("batch", "seqlen_q", "seqlen_kv", "num_heads_q", "num_splits")


@dataclass(frozen=True, slots=True)
class Member:
    """An attention kernel, and by argument the values that it takes: listed, a range, or ANY.

    Of `softcap` the bounds. `num_heads_kv` is any that divides `num_heads_q`, if "gqa" is true.
    """

    kernel: str
    takes: Mapping[str, Any]


def members(rows: Sequence[KernelSpec], props: DeviceProps) -> tuple[Member, ...]:
    """Every attention kernel for a device."""
    found = []
    for row in candidates(rows, ATTENTION, props):
        takes: dict[str, Any] = {"dtype": (row.dtype,), "softcap": row.constraint("softcaps")}
        for argument, sizes in _SIZES.items():
            low, high, step = row.constraint(sizes)
            takes[argument] = range(low, high + 1, step)
        for argument in _LISTED:
            allowed = row.constraint(argument)
            takes[argument] = ANY if allowed == ANY else tuple(allowed)
        for argument in _LIMITED:
            lowest = _lowest(argument)
            takes[argument] = range(lowest, row.constraint(f"max_{argument}") + 1)
        takes["window_keys"] = range(1, row.constraint("max_window_keys") + 1)
        takes["gqa"] = row.constraint("gqa")
        found.append(Member(row.name, MappingProxyType(takes)))
    return tuple(found)


def _lowest(argument: str) -> int:
    return 0 if argument == "num_splits" else 1


def mismatches(kernel: KernelSpec, problem: AttentionProblem) -> list[Mismatch]:
    """Everything in `problem` that `kernel` does not implement; empty if it solves it."""
    found = []

    def require(argument: str, value: object, allowed: Sequence[object]) -> None:
        if value not in allowed:
            found.append(Mismatch(argument, value, tuple(allowed)))

    require("dtype", problem.dtype, (kernel.dtype,))
    for argument, sizes in _SIZES.items():
        low, high, step = kernel.constraint(sizes)
        require(argument, getattr(problem, argument), range(low, high + 1, step))
    for argument in _LISTED:
        allowed = kernel.constraint(argument)
        if allowed == ANY or (argument == "top_left" and problem.window == (-1, -1)):
            continue
        if argument == "window_size":
            allowed = [tuple(window) for window in allowed]
        require(argument, getattr(problem, argument), allowed)
    most = kernel.constraint("max_window_keys")
    if problem.window_keys > most:
        allowed = (Span(1, most, "up to {} keys"),)
        found.append(Mismatch("window_size", problem.window_size, allowed))
    least, most = kernel.constraint("softcaps")
    if not least <= problem.softcap <= most:
        found.append(Mismatch("softcap", problem.softcap, (Span(least, most),)))
    if problem.num_heads_kv != problem.num_heads_q and not kernel.constraint("gqa"):
        require("num_heads_kv", problem.num_heads_kv, (problem.num_heads_q,))
    for argument in _LIMITED:
        limit, value = kernel.constraint(f"max_{argument}"), getattr(problem, argument)
        if value > limit:
            found.append(Mismatch(argument, value, (Span(_lowest(argument), limit),)))
    return found


def candidates_of(rows: Sequence[KernelSpec], op: str, arch: str) -> list[KernelSpec]:
    """The kernels of `op` for an architecture."""
    return [row for row in rows if row.op == op and row.arch == arch]


def candidates(rows: Sequence[KernelSpec], op: str, props: DeviceProps) -> list[KernelSpec]:
    """The same for a device; it is an error to have none."""
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


def select(rows: Sequence[KernelSpec], problem: AttentionProblem, props: DeviceProps) -> KernelSpec:
    """The kernel for `problem` on `props`: of those that solve it the one that computes least.

    Raises
    ------
    UnsupportedProblem
        No kernel does; the message names each argument in the way of the nearest kernel.
    UnsupportedDeviceError
        There are no kernels for the architecture at all.
    """
    nearest, wrong = _nearest(rows, problem, props)
    if wrong:
        reasons = "; ".join(map(str, wrong))
        raise UnsupportedProblem(f"{reasons} on {props.arch} (nearest kernel: {nearest.name})")
    return nearest


def with_other_tiles(
    rows: Sequence[KernelSpec], kernel: KernelSpec, problem: AttentionProblem
) -> list[KernelSpec]:
    """`kernel`, and those that solve `problem` as it does in tiles of fewer rows.

    None of these if the caller fixed the parts along KV: results must not depend on the batch then,
    and where the parts meet depends on the tile.
    """
    if problem.num_splits:
        return [kernel]
    return [kernel] + [
        row
        for row in _of_kind(candidates_of(rows, kernel.op, kernel.arch), problem)
        if (row.head_dim, row.head_dim_v, row.grid)
        == (kernel.head_dim, kernel.head_dim_v, kernel.grid)
        and row.q_tile < kernel.q_tile
        and not mismatches(row, problem)
    ]


def _of_kind(rows: Sequence[KernelSpec], problem: AttentionProblem) -> list[KernelSpec]:
    """Those that may solve a problem of this element type, rounding and softcap, at a glance."""
    return [
        row
        for row in rows
        if row.dtype == problem.dtype
        and problem.round_mode in row.constraint("round_mode")
        and (problem.softcap == 0) == (row.constraint("softcaps")[0] == 0)
    ]


def _compared(
    rows: Sequence[KernelSpec], problem: AttentionProblem
) -> list[tuple[KernelSpec, list[Mismatch]]]:
    return [(row, mismatches(row, problem)) for row in rows]


def _nearest(
    rows: Sequence[KernelSpec], problem: AttentionProblem, props: DeviceProps
) -> tuple[KernelSpec, list[Mismatch]]:
    """The kernel with the fewest mismatches, and those, with what kernels as near take instead."""
    fitting = candidates(rows, ATTENTION, props)
    found = _compared(_of_kind(fitting, problem), problem)
    if all(wrong for _, wrong in found):
        found = _compared(fitting, problem)

    def distance(pair: tuple[KernelSpec, list[Mismatch]]) -> tuple[int, ...]:
        row, wrong = pair
        # Options are easier to change than what the arrays are.
        of_arrays = sum(m.argument in ("dtype", "head_dim", "head_dim_v") for m in wrong)
        of_dim = abs(row.head_dim - problem.head_dim)
        unused = of_dim + abs(row.head_dim_v - problem.head_dim_v)
        groups = of_dim if wrong else row.column_groups(problem)
        return len(wrong), of_arrays, groups, unused, -row.q_tile

    found.sort(key=distance)
    return found[0][0], all_allowed(found[0][1], [wrong for _, wrong in found])


def merge_kernel(rows: Sequence[KernelSpec], kernel: KernelSpec, round_mode: str) -> KernelSpec:
    """The kernel that merges the partial results of `kernel`."""
    for row in candidates_of(rows, ATTENTION_MERGE, kernel.arch):
        if (
            (row.dtype, row.head_dim_v) == (kernel.dtype, kernel.head_dim_v)
            and kernel.q_tile in row.constraint("tile_rows")
            and round_mode in row.constraint("round_mode")
        ):
            return row
    raise ManifestError(
        f"kernel {kernel.name} can split the KV range, but no {ATTENTION_MERGE} kernel has "
        f"dtype={kernel.dtype} head_dim_v={kernel.head_dim_v} tile_rows={kernel.q_tile} "
        f"round_mode={round_mode}"
    )


def gather_kernel(
    rows: Sequence[KernelSpec], problem: AttentionProblem, props: DeviceProps
) -> KernelSpec:
    """The kernel that copies rows of K and V next to each other.

    Raises
    ------
    UnsupportedProblem
        It does not take so much.
    """
    kernel = candidates(rows, GATHER, props)[0]
    batch = 1 if problem.varlen else problem.batch
    rows_at_once = kernel.workgroup[0] // (max(problem.head_dim, problem.head_dim_v) // 8)
    most_rows = kernel.constraint("max_workgroups_x") * rows_at_once
    for name, value, most in (
        ("batch", batch, kernel.constraint("max_batch")),
        ("num_heads_kv", problem.num_heads_kv, kernel.constraint("max_num_heads_kv")),
        ("seqlen_kv", problem.axes("k")["seq"], most_rows),
    ):
        if value > most:
            raise UnsupportedProblem(
                f"{name}={value} with gather={problem.gather!r}: kernel {kernel.name} takes "
                f"1..{most}"
            )
    return kernel


def support(rows: Sequence[KernelSpec], problem: AttentionProblem, props: DeviceProps) -> Support:
    """As `select`, but answers instead of raising UnsupportedProblem."""
    try:
        kernel = select(rows, problem, props)
        if problem.gather:
            gather_kernel(rows, problem, props)
    except UnsupportedProblem as error:
        _, wrong = _nearest(rows, problem, props)
        change = {mismatch.argument: mismatch.nearest for mismatch in wrong}
        return Support(False, str(error), MappingProxyType(change))
    except UnsupportedDeviceError as error:
        return Support(False, str(error))
    return Support(True, f"kernel {kernel.name}")
