"""The worked example of docs/tuning.md: the kernel of docs/kernels.md, changed round by round.

`python benchmarks/tuning_example.py` prints its table: modelled clk of a launch, what was predicted
before each round was run, and the stalls.
"""

from __future__ import annotations

import ctypes
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import amdattn
from amdattn.device import runtime
from build_scripts.toolchain import LLVM22, compile_hip

ROOT = Path(__file__).resolve().parents[1]
ROWS, COLUMNS, CLOCK_MHZ = 304, 4096, 2100
_REASONS = ("vector", "waitcnt", "barrier", "vmem")


@dataclass(frozen=True)
class Round:
    """One change of the source: pairs of texts, old and new, and the predicted difference in clk.

    `waves` are those of a workgroup.
    """

    name: str
    predicted: int
    changes: tuple[tuple[str, str], ...]
    waves: int = 1
    preloads: int = 0  # dwords of the arguments in SGPRs, which are parameters of their own then


_FOUR_WAVES = (
    ("constexpr int kSteps = 8,", "constexpr int kWaves = 4, kSteps = 2,"),
    (
        "kStepColumns = kWaveLanes * kLaneColumns",
        "kStepColumns = kWaves * kWaveLanes * kLaneColumns",
    ),
    ("Lane::in_wave() * kLaneColumns)", "Lane::in_workgroup() * kLaneColumns)"),
    ('#include "isa/buffer.h"', '#include "isa/buffer.h"\n#include "isa/wait.h"'),
    ("WORKGROUP(kWaveLanes, 4)", "WORKGROUP(kWaves * kWaveLanes, 4)"),
    (
        "  const float mean = sum_over_wave(squares) / float(args.columns);",
        "  __shared__ float of_wave[kWaves];\n"
        "  of_wave[Lane::wave()] = sum_over_wave(squares);\n"
        "  s_barrier();\n"
        "  float sum = 0;\n"
        "  for (float one : of_wave) sum += one;\n"
        "  const float mean = sum / float(args.columns);",
    ),
)
ROUNDS = (
    Round("the kernel of docs/kernels.md", 0, ()),
    Round(
        "1 sum of squares by fused multiply-adds",
        -256,
        (
            (
                "squares += x.at(s, i) * x.at(s, i);",
                "squares = __builtin_fmaf(x.at(s, i), x.at(s, i), squares);",
            ),
        ),
    ),
    Round("2 four waves a row, sums through LDS", -1650, _FOUR_WAVES, 4),
    Round(
        "3 rounding without a case for NaN payloads",
        -190,
        (("round_pair<Element::kBf16", "round_numbers<Element::kBf16"),),
        4,
    ),
    Round(
        "4 arguments in SGPRs",
        -750,
        (
            (
                "rms_norm(RmsNormArgs args) {",
                "rms_norm(uint64_t of_x, uint64_t of_weight, uint64_t of_out, int64_t stride, "
                "int columns, float eps) {\n"
                "  const RmsNormArgs args{of_x, of_weight, of_out, stride, columns, eps};",
            ),
        ),
        4,
        10,
    ),
    Round(
        "5 two waves a row",
        -450,
        (("kWaves = 4, kSteps = 2", "kWaves = 2, kSteps = 4"),),
        2,
        10,
    ),
)


def sources() -> dict[str, str]:
    """Of docs/kernels.md."""
    page = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
    return dict(re.findall(r"`(rms_norm\.\w+)`:\n\n```cpp\n(.*?)```", page, re.S))


def images() -> Iterator[tuple[Round, bytes]]:
    """Each round with its code object; a round starts from the one before."""
    text = sources()
    for step in ROUNDS:
        for old, new in step.changes:
            if old not in text["rms_norm.hip"]:
                raise ValueError(f"round {step.name!r} changes {old!r}, which is not there")
            text["rms_norm.hip"] = text["rms_norm.hip"].replace(old, new)
        with tempfile.TemporaryDirectory() as folder:
            for name, content in text.items():
                (Path(folder) / name).write_text(content, encoding="utf-8")
            preload = ("-mllvm", f"-amdgpu-kernarg-preload-count={step.preloads}")
            source = Path(folder) / "rms_norm.hip"
            yield step, compile_hip(source, LLVM22, flags=preload).code_object


class _Arguments(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("x", "weight", "out")),
        ("stride", ctypes.c_int64),
        ("columns", ctypes.c_int32),
        ("eps", ctypes.c_float),
    ]


def profile(step: Round, image: bytes) -> Any:
    """The launch, modelled."""
    from amdattn.device.runtime.hip_python import import_hip_python

    hip: Any = import_hip_python().hip

    def call(name: str, *given: Any) -> Any:
        error, *results = getattr(hip, name)(*given)
        if int(error):
            raise RuntimeError(f"{name}: {error!r}")
        return results[0] if results else None

    x, weight = (
        amdattn.asarray(np.ones(shape, ml_dtypes.bfloat16)) for shape in ((ROWS, COLUMNS), COLUMNS)
    )
    out = amdattn.empty((ROWS, COLUMNS))
    packed = _Arguments(x.address, weight.address, out.address, COLUMNS, COLUMNS, 1e-6)
    each = tuple(kind(getattr(packed, name)) for name, kind in _Arguments._fields_)
    module = call("hipModuleLoadData", image)
    function = call("hipModuleGetFunction", module, b"rms_norm")
    runtime.synchronize()
    with amdattn.virtual.profile(clock_mhz=CLOCK_MHZ) as found:
        shape = (ROWS, 1, 1, 64 * step.waves, 1, 1)
        call(
            "hipModuleLaunchKernel",
            function,
            *shape,
            0,
            None,
            None,
            each if step.preloads else (packed,),
        )
        runtime.synchronize()
    return found.launches[0]


def main() -> None:
    """Print the table."""
    print(f"| round | predicted | clk | last start | {' | '.join(_REASONS)} | issue |")
    print("|---|--:|--:|--:|" + "--:|" * (len(_REASONS) + 1))
    before = 0
    for step, image in images():
        launch = profile(step, image)
        clk = round(launch.cycles)
        shares = [launch.stalls[reason] for reason in _REASONS]
        rest = 1 - sum(launch.stalls.values())
        predicted = f"{step.predicted:+d}" if before else ""
        change = f"{clk - before:+d} = {clk}" if before else str(clk)
        cells = " | ".join(f"{share:.0%}" for share in (*shares, rest))
        last = max(time.start for time in launch.times)
        print(f"| {step.name} | {predicted} | {change} | {last} | {cells} |")
        before = clk


if __name__ == "__main__":
    main()
