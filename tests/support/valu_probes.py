"""Issue slots of gfx950's vector instructions under the performance model.

`python -m tests.support.valu_probes` plays an MI355X and prints clk by instruction, as JSON: a
process plays one product.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.support.paths import ROOT

ARCH = "gfx950"
PROBED = (
    "v_add_f32 v20, v8, v9",
    "v_cvt_pk_bf16_f32 v20, v8, v9",
    "v_cvt_pk_f16_f32 v20, v8, v9",
    "v_permlane16_swap_b32 v20, v8",
    "v_permlane32_swap_b32 v20, v8",
    "v_bitop3_b32 v20, v8, v9, v10 bitop3:0x96",
    "v_exp_f32 v20, v8",
)


def found() -> dict[str, float]:
    """What a process that plays an MI355X prints."""
    command = [sys.executable, "-m", "tests.support.valu_probes"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    clk: dict[str, float] = json.loads(done.stdout)
    return clk


def main() -> None:
    import tests.conftest  # noqa: F401  (chooses the virtual device)

    os.environ["AMDATTN_DEVICE"] = f"virtual:{ARCH}"
    from benchmarks.performance_model.micro_kernel import clk_per

    json.dump({text: clk_per(text, copies=8) for text in PROBED}, sys.stdout)


if __name__ == "__main__":
    main()
