"""Attention forward on an MI300X by the rows of its matrix instructions, 16 or 32, modelled.

    python -m benchmarks.attention_tile_rows [DESIGN ...] [--reading NAME ...] [--inputs NAME ...]
        [--keys 4096 8192] [--estimate KEYS] [--aiter DIR]

bfloat16, 128 columns. Designs named wide are studies, which ship in no code object: the sources of
the shipped kernels, compiled here for tiles of 32 rows. A loop is what further keys take, clk for
384 rows and 64 keys, of which 6144 are matrix instructions; a workgroup is alone on its CU, one for
each head that the inputs have (`amdattn.bench.inputs`), or as many are on every CU as it holds.
Readings are those of docs/generated/readings.md. `--estimate` is a launch of a workgroup for each
CU, or of as many as it holds, with so many keys, at the clock that `amdattn.energy` estimates.
AITER is a checkout of ROCm/aiter, whose kernel that truncates probabilities is its fastest.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

os.environ.setdefault("AMDATTN_DEVICE", "virtual:gfx942")

import amdattn
from amdattn import energy, virtual
from amdattn.arch import readings
from amdattn.bench.inputs import NORMAL, Inputs, ScoreClass, Sizes, entry, named
from amdattn.bench.kernels import Functions, Operands
from amdattn.bench.shapes import Shape
from amdattn.device import manifest, runtime
from amdattn.device.manifest import KernelSpec
from amdattn.device.profiling import LaunchProfile
from amdattn.dtypes import as_dtype
from amdattn.ops.attention import planning, select
from amdattn.ops.attention.execution import AttentionPlan
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.paths import KERNEL_DIR_VARIABLE
from benchmarks.peers.aiter import Aiter
from build_scripts import build, manifest as built_manifest

ARCH, COLUMNS, DTYPE = "gfx942", 128, "bfloat16"
ROWS, BLOCK, MATRIX_CLK = 384, 64, 6144  # that a figure is for
HEADS_KV = 8
AITER_ROWS = 256


@dataclass(frozen=True)
class Design:
    """A kernel of the build's table, or what becomes of it in tiles of other rows."""

    what: str
    kernel: str
    tile_rows: int | None = None  # of a study
    residents: int = 1  # workgroups on a CU

    @property
    def define(self) -> tuple[str, ...]:
        """Of the compiler."""
        return () if self.tile_rows is None else (f"TILE_ROWS={self.tile_rows}",)


DESIGNS = {
    "shipped384": Design("16 rows, a wave of 96 a SIMD; shipped", "attn_fwd_bf16_d128_rtne"),
    "shipped256": Design("16 rows, a wave of 64 a SIMD; shipped", "attn_fwd_bf16_d128_q256_rtne"),
    "shipped128": Design(
        "16 rows, two waves of 32 a SIMD; shipped", "attn_fwd_bf16_d128_q128_rtne", residents=2
    ),
    "wide384": Design("32 rows, a wave of 96 a SIMD", "attn_fwd_bf16_d128_rtne", 32),
    "wide256": Design("32 rows, a wave of 64 a SIMD", "attn_fwd_bf16_d128_q256_rtne", 32),
    "shipped384-softcap": Design("16 rows, softcap; shipped", "attn_fwd_bf16_d128_softcap_rtne"),
    "wide384-softcap": Design("32 rows, softcap", "attn_fwd_bf16_d128_softcap_rtne", 32),
}
NOTHING_FITTED = energy.mi300x(large_tile=1, plain_valu=1)


def studies(folder: Path, names: Mapping[str, Design]) -> dict[str, KernelSpec]:
    """Compiles designs that do not ship into a folder with a manifest; their rows by name.

    Raises
    ------
    CodeObjectError
        One spills, or the compiler takes registers that the source names.
    """
    built = []
    for name, design in names.items():
        (row,) = (k for k in build.KERNELS if (k.name, k.arch) == (design.kernel, ARCH))
        # Parts are merged by a launch of its own.
        accepts = {**row.accepts, "max_merged_parts": 0}
        changed = dataclasses.replace(
            row,
            name=f"study_{name.replace('-', '_')}",
            accepts=accepts,
            defines=(*row.defines, *design.define),
        )
        built.append(build.build(changed))
    for result in built:
        file = folder / result.kernel.file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(result.image)
    text = built_manifest.render([result.row for result in built])
    (folder / "manifest.json").write_text(text, encoding="utf-8")
    before = os.environ.get(KERNEL_DIR_VARIABLE)
    os.environ[KERNEL_DIR_VARIABLE] = str(folder)
    try:
        return dict(zip(names, manifest.kernels(), strict=True))
    finally:
        del os.environ[KERNEL_DIR_VARIABLE]
        if before is not None:
            os.environ[KERNEL_DIR_VARIABLE] = before


def kernels(folder: Path, names: Mapping[str, Design]) -> dict[str, KernelSpec]:
    """Of every design, those that ship and those that are compiled into the folder."""
    shipped = {k.name: k for k in manifest.kernels() if k.arch == ARCH}
    wanted = {name: design for name, design in names.items() if design.define}
    compiled = studies(folder, wanted) if wanted else {}
    return {name: compiled.get(name) or shipped[each.kernel] for name, each in names.items()}


def planned(kernel: KernelSpec, problem: AttentionProblem) -> AttentionPlan:
    """The plan with this kernel, whether it ships or not."""
    others = (row for row in manifest.kernels() if row.op != select.ATTENTION)
    return AttentionPlan.of(
        planning.plan_attention(problem, amdattn.device_props(), [*others, kernel])
    )


def profiled(
    kernel: KernelSpec, heads: int, heads_kv: int, keys: int, inputs: Inputs, name: str
) -> LaunchProfile:
    """Of a launch with a workgroup for each head, modelled under a reading."""
    rows, element = kernel.tile["q"], as_dtype(DTYPE).numpy()
    sizes = Sizes(1, rows, keys, heads, heads_kv, COLUMNS, COLUMNS)
    inputs.check(sizes)

    def operand(name: str) -> NDArray[np.generic]:
        return entry(inputs, sizes, name, 0)[None].astype(element)

    problem = AttentionProblem(
        1, rows, keys, heads, heads_kv, COLUMNS, COLUMNS, dtype=DTYPE, num_splits=1,
        softcap=min(30.0, kernel.accepts["softcaps"][1]),
    )  # fmt: skip
    plan = planned(kernel, problem)
    with virtual.profile(reading=name) as profile:
        plan.run(operand("q"), operand("k"), operand("v"))
    (launch,) = profile.launches
    return launch


def ends(launch: LaunchProfile) -> list[int]:
    """Of its workgroups, in their order, from the launch on, clk."""
    return [time.end for time in sorted(launch.times, key=lambda time: time.flat_id)]


@dataclass(frozen=True)
class Loop:
    """Clk for 384 rows and 64 keys, of the slowest head and the mean of heads; those beside."""

    clk: float
    mean: float
    outside: float

    @classmethod
    def of(cls, short: list[int], long: list[int], keys: tuple[int, int], rows: int) -> Loop:
        """From the ends of workgroups with as many rows, or of all that are on CUs together."""
        blocks = (keys[1] - keys[0]) / BLOCK
        steps = [(b - a) / blocks for a, b in zip(short, long, strict=True)]
        slowest = max(range(len(steps)), key=steps.__getitem__)
        outside = short[slowest] - keys[0] / BLOCK * steps[slowest]
        return cls(steps[slowest] * ROWS / rows, sum(steps) / len(steps) * ROWS / rows, outside)


def loop(
    kernel: KernelSpec, residents: int, keys: tuple[int, int], inputs: Inputs, name: str
) -> Loop:
    """Of a kernel under a reading; `residents`: workgroups on a CU."""
    props = amdattn.device_props()
    if residents > 1:
        heads, heads_kv = residents * props.num_cus, HEADS_KV
    else:  # workgroups of one XCD are simulated
        kinds = len(inputs.heads) if isinstance(inputs, ScoreClass) else 1
        heads = heads_kv = 1 if kinds == 1 else kinds * props.num_xcds
    short, long = (ends(profiled(kernel, heads, heads_kv, n, inputs, name)) for n in keys)
    if residents > 1:
        short, long = [max(short)], [max(long)]
    return Loop.of(short, long, keys, residents * kernel.tile["q"])


class Peer:
    """AITER's kernel that truncates probabilities; its time depends on no input."""

    def __init__(self, directory: Path) -> None:
        self._kernel = Aiter(directory, "rtz")
        self._functions = Functions()

    def profiled(self, heads: int, keys: int, name: str) -> LaunchProfile:
        """Of a launch with a workgroup for each head."""
        shape = Shape(1, heads, min(heads, HEADS_KV), AITER_ROWS, keys, COLUMNS)
        with Operands(shape) as operands:
            walk = self._kernel.walk(shape)
            operands.fill_for(shape, walk, np.arange(len(walk.kv_rows)))
            launch = self._kernel.launch(shape, operands)
            with virtual.profile(reading=name) as profile:
                launch.enqueue(self._functions)
                runtime.synchronize()
        return profile.launches[0]

    def loop(self, keys: tuple[int, int], name: str) -> Loop:
        """As of ours."""
        short, long = (ends(self.profiled(1, n, name)) for n in keys)
        return Loop.of(short, long, keys, AITER_ROWS)


def estimated(launch: LaunchProfile, rows: int, keys: int) -> str:
    """Of the device, for 384 rows and 64 keys of a CU: clk; the clock and the time by `energy`.

    As it is fitted, and with the same energy for an operation of every matrix instruction.
    """
    blocks = rows / ROWS * keys / BLOCK
    activity = energy.Activity.of(launch)
    times = []
    for name, energies in {"fitted": energy.mi300x(), "nothing fitted": NOTHING_FITTED}.items():
        of = energy.estimate(activity, energies)
        times.append(f"{name} {of.clock_ghz:.3f} GHz, {of.seconds * 1e6 / blocks:.3f} us")
    return f"{launch.cycles / blocks:8.0f} clk, estimates: {'; '.join(times)}"


def compared(
    specs: Mapping[str, KernelSpec], peer: Peer | None, given: argparse.Namespace, name: str
) -> None:
    """Prints the loops under a reading."""
    keys = (given.keys[0], given.keys[1])
    print(f"{name}, modelled; loop of {MATRIX_CLK}, clk", flush=True)
    theirs = None if peer is None else peer.loop(keys, name)
    if theirs is not None:
        print(f"  aiter rtz          {theirs.clk:8.0f}, outside {theirs.outside:6.0f}", flush=True)
    for design, spec in specs.items():
        for inputs in map(named, given.inputs):
            found = loop(spec, DESIGNS[design].residents, keys, inputs, name)
            ratio = "" if theirs is None else f", aiter / this {theirs.clk / found.clk:.3f}"
            print(
                f"  {design:18} {found.clk:8.0f}, outside {found.outside:6.0f}, "
                f"{MATRIX_CLK / found.clk:.1%} matrix{ratio}; {inputs.name}, "
                f"mean of heads {found.mean:.0f}",
                flush=True,
            )


def timed(
    specs: Mapping[str, KernelSpec], peer: Peer | None, given: argparse.Namespace, name: str
) -> None:
    """Prints whole launches under a reading."""
    cus, keys, inputs = amdattn.device_props().num_cus, given.estimate, named(given.inputs[0])
    if peer is not None:
        print(f"  aiter rtz          {estimated(peer.profiled(cus, keys, name), AITER_ROWS, keys)}")
    for design, spec in specs.items():
        residents = DESIGNS[design].residents
        launch = profiled(spec, residents * cus, HEADS_KV, keys, inputs, name)
        text = estimated(launch, residents * spec.tile["q"], keys)
        print(f"  {design:18} {text}; {inputs.name}", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("designs", nargs="*", help=", ".join(DESIGNS))
    parser.add_argument("--reading", nargs="+", default=["all"], metavar="NAME")
    parser.add_argument("--inputs", nargs="+", default=[NORMAL.name], metavar="NAME")
    parser.add_argument("--keys", nargs=2, type=int, default=[4096, 8192])
    parser.add_argument("--estimate", type=int, metavar="KEYS")
    parser.add_argument("--aiter", type=Path, metavar="DIR")
    given = parser.parse_args()
    peer = None if given.aiter is None else Peer(given.aiter)
    with tempfile.TemporaryDirectory(prefix="amdattn-study-") as folder:
        chosen = {name: DESIGNS[name] for name in given.designs or DESIGNS}
        specs = kernels(Path(folder), chosen)
        for name in readings.chosen(given.reading, ARCH):
            compared(specs, peer, given, name)
            if given.estimate is not None:
                timed(specs, peer, given, name)


if __name__ == "__main__":
    main()
