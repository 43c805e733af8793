"""The planted defects of gfx950's memory instructions.

`python -m tests.support.check.planted_cdna4` launches them on a virtual MI355X and prints what
checked mode says, as JSON: a process plays one product.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.support.check.planted import Planted, run
from tests.support.gpu import Gpu
from tests.support.paths import ROOT

ARCH = "gfx950"


def cdna4(kernel: str, kind: str, defect: str, **more: Any) -> Planted:
    return Planted("cdna4", kernel, kind, defect, arch=ARCH, **more)


CDNA4 = [
    cdna4(
        "transposing_read_before_lgkmcnt",
        "use_before_wait",
        "transposing LDS read used before lgkmcnt",
        producer="producer",
        where="v15",
    ),
    cdna4(
        "transposing_lds_read_before_barrier",
        "lds_race",
        "transposing LDS read without a barrier after the write",
        producer="producer",
        where="lds",
        lanes=128,
    ),
    cdna4(
        "transposed_uninitialised_element",
        "uninitialised_store",
        "LDS element never written, read by another lane",
        where="v14",
    ),
    cdna4(
        "dma_of_16_bytes_at_no_dword",
        "misaligned",
        "M0 of a load of 16 bytes to LDS that is no multiple of 4",
        where="m0",
    ),
    cdna4(
        "dma_of_12_bytes_skips_a_dword",
        "uninitialised_store",
        "the fourth dword of a load of 12 bytes to LDS",
        where="v14",
    ),
    cdna4(
        "buffer_dma_of_16_bytes_before_vmcnt",
        "use_before_wait",
        "LDS read before the buffer load of 16 bytes to it arrived",
        producer="producer",
        where="lds",
    ),
    cdna4(
        "global_dma_of_16_bytes_before_vmcnt",
        "use_before_wait",
        "transposing LDS read before the global load of 16 bytes to it arrived",
        producer="producer",
        where="lds",
    ),
    cdna4(
        "two_lds_dmas_overlap",
        "lds_race",
        "two waves load to LDS at 4 bytes a lane, which takes 16",
        producer="producer",
        where="lds",
        lanes=128,
    ),
    cdna4(
        "stale_dwords_in_a_load_to_lds",
        "stale_read",
        "another workgroup's data loaded to LDS, 16 bytes a lane, without acquire",
        producer="producer",
        workgroups=2,
    ),
    cdna4(
        "transposing_read_with_half_the_lanes",
        "illegal_instruction",
        "transposing LDS read with lanes that EXEC disables",
        fails=True,
    ),
    cdna4(
        "transposing_read_misaligned",
        "misaligned",
        "transposing LDS read of 96 bits at 8 mod 16",
        fails=True,
    ),
]


def found() -> dict[str, list[dict[str, Any]]]:
    """By kernel: of the defect and of its twin, HIP's error, all findings, the output."""
    command = [sys.executable, "-m", "tests.support.check.planted_cdna4"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    outcomes: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return outcomes


def main() -> None:
    import os

    import tests.conftest  # noqa: F401  (chooses the virtual device)

    os.environ["AMDATTN_DEVICE"] = f"virtual:{ARCH}"
    gpu = Gpu()
    assert gpu.runtime.props.arch == ARCH
    outcomes = {}
    for planted in CDNA4:
        both = [run(gpu, planted, repaired) for repaired in (False, True)]
        outcomes[planted.kernel] = [
            {
                "error": o.error,
                "findings": o.findings,
                "out": None if o.out is None else o.out.tolist(),
            }
            for o in both
        ]
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main()
