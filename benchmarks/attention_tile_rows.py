"""Attention forward on an MI300X by the rows of its matrix instructions, 16 or 32, modelled.

    python -m benchmarks.attention_tile_rows [DESIGN ...] [--reading NAME ...] [--inputs NAME ...]
        [--option KEY=VALUE ...] [--keys 4096 8192] [--estimate KEYS] [--aiter DIR]

bfloat16, 128 columns. Designs named wide are studies, which ship in no code object: the sources of
the shipped kernels, compiled here for tiles of 32 rows. A loop is what further keys take, clk for
384 rows and 64 keys, of which 6144 are matrix instructions; a workgroup is alone on its CU, one for
each head that the inputs have (`amdattn.bench.inputs`), or as many are on every CU as it holds.
Readings are those of docs/studies/performance-model.md; `--option` is another one, by options of
the virtual device. `--estimate` is a launch of a workgroup for each CU, or of as
many as it holds, with so many keys, at the clock that `amdattn.energy` estimates. AITER is a
checkout of ROCm/aiter, whose kernel that truncates probabilities is its fastest.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

os.environ.setdefault("AMDATTN_DEVICE", "virtual:gfx942")

import amdattn
from amdattn import energy, virtual
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
# Options of the virtual device.
READINGS: dict[str, dict[str, int]] = {
    "default": {},
    "lost-slots-0": {"mfma_lost_slots": 1},
    "lost-slots-2": {"mfma_lost_slots": 3},
    "trans-exclusive": {"trans_exclusive": 1},
}


@contextlib.contextmanager
def reading(options: Mapping[str, int]) -> Iterator[None]:
    """Options of the virtual device inside the block; 0 behind it, which is each one's default."""
    for key, value in options.items():
        virtual.set_option(key, value)
    try:
        yield
    finally:
        for key in options:
            virtual.set_option(key, 0)


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
    kernel: KernelSpec, heads: int, heads_kv: int, keys: int, inputs: Inputs
) -> LaunchProfile:
    """Of a launch with a workgroup for each head, modelled."""
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
    with virtual.profile() as profile:
        plan.run(operand("q"), operand("k"), operand("v"))
    (launch,) = profile.launches
    return launch


def last_end(launch: LaunchProfile) -> int:
    """Of its workgroups, from the launch on, clk."""
    return max(time.end for time in launch.times)


def loop(
    kernel: KernelSpec, residents: int, keys: tuple[int, int], inputs: Inputs
) -> tuple[float, float]:
    """Clk for 384 rows and 64 keys, and what a launch takes beside them."""
    props = amdattn.device_props()
    if residents > 1:
        heads, heads_kv = residents * props.num_cus, HEADS_KV
    else:  # workgroups of one XCD are simulated
        kinds = len(inputs.heads) if isinstance(inputs, ScoreClass) else 1
        heads = heads_kv = 1 if kinds == 1 else kinds * props.num_xcds
    short, long = (last_end(profiled(kernel, heads, heads_kv, n, inputs)) for n in keys)
    return _loop(short, long, keys, residents * kernel.tile["q"])


def _loop(short: float, long: float, keys: tuple[int, int], rows: int) -> tuple[float, float]:
    block = (long - short) / (keys[1] - keys[0]) * BLOCK
    return block * ROWS / rows, short - keys[0] / BLOCK * block


class Peer:
    """AITER's kernel that truncates probabilities; its time depends on no input."""

    def __init__(self, directory: Path) -> None:
        self._kernel = Aiter(directory, "rtz")
        self._functions = Functions()

    def profiled(self, heads: int, keys: int) -> LaunchProfile:
        """Of a launch with a workgroup for each head."""
        shape = Shape(1, heads, min(heads, HEADS_KV), AITER_ROWS, keys, COLUMNS)
        with Operands(shape) as operands:
            walk = self._kernel.walk(shape)
            operands.fill_for(shape, walk, np.arange(len(walk.kv_rows)))
            launch = self._kernel.launch(shape, operands)
            with virtual.profile() as profile:
                launch.enqueue(self._functions)
                runtime.synchronize()
        return profile.launches[0]

    def loop(self, keys: tuple[int, int]) -> tuple[float, float]:
        """As of ours."""
        short, long = (last_end(self.profiled(1, n)) for n in keys)
        return _loop(short, long, keys, AITER_ROWS)


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


def _readings(names: list[str], options: list[str]) -> dict[str, dict[str, int]]:
    """Those that were asked for."""
    asked = {name: READINGS[name] for name in names}
    for option in options:
        key, _, value = option.partition("=")
        asked[option] = {key: int(value)}
    return asked


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("designs", nargs="*", help=", ".join(DESIGNS))
    parser.add_argument("--reading", nargs="+", default=list(READINGS), choices=READINGS)
    parser.add_argument("--option", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--inputs", nargs="+", default=[NORMAL.name], metavar="NAME")
    parser.add_argument("--keys", nargs=2, type=int, default=[4096, 8192])
    parser.add_argument("--estimate", type=int, metavar="KEYS")
    parser.add_argument("--aiter", type=Path, metavar="DIR")
    given = parser.parse_args()
    all_inputs = [named(name) for name in given.inputs]
    readings = _readings(given.reading, given.option)
    keys = (given.keys[0], given.keys[1])
    cus = amdattn.device_props().num_cus
    peer = None if given.aiter is None else Peer(given.aiter)
    with tempfile.TemporaryDirectory(prefix="amdattn-study-") as folder:
        chosen = {name: DESIGNS[name] for name in given.designs or DESIGNS}
        specs = kernels(Path(folder), chosen)
        for name, options in readings.items():
            print(f"{name}, modelled; loop of {MATRIX_CLK}, clk", flush=True)
            with reading(options):
                theirs = None if peer is None else peer.loop(keys)
                if theirs is not None:
                    print(
                        f"  aiter rtz          {theirs[0]:8.0f}, outside {theirs[1]:6.0f}",
                        flush=True,
                    )
                for design, spec in specs.items():
                    for inputs in all_inputs:
                        clk, outside = loop(spec, chosen[design].residents, keys, inputs)
                        ratio = "" if theirs is None else f", aiter / this {theirs[0] / clk:.3f}"
                        print(
                            f"  {design:18} {clk:8.0f}, outside {outside:6.0f}, "
                            f"{MATRIX_CLK / clk:.1%} matrix{ratio}; {inputs.name}",
                            flush=True,
                        )
                if given.estimate is None:
                    continue
                if peer is not None:
                    launch = peer.profiled(cus, given.estimate)
                    print(f"  aiter rtz          {estimated(launch, AITER_ROWS, given.estimate)}")
                for design, spec in specs.items():
                    residents = chosen[design].residents
                    launch = profiled(
                        spec, residents * cus, HEADS_KV, given.estimate, all_inputs[0]
                    )
                    rows = residents * spec.tile["q"]
                    text = estimated(launch, rows, given.estimate)
                    print(f"  {design:18} {text}; {all_inputs[0].name}", flush=True)


if __name__ == "__main__":
    main()
