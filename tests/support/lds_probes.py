"""Probes of the modelled LDS of gfx950, in the manner of those that HipKittens ran on an MI355X.

`python -m tests.support.lds_probes` plays an MI355X and prints what it finds, as JSON: a process
plays one product.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tests.support.paths import ROOT

ARCH = "gfx950"
FORMS = {
    "ds_read_b32": "ds_read_b32 v20, v4",
    "ds_read_b64": "ds_read_b64 v[20:21], v4",
    "ds_read_b96": "ds_read_b96 v[20:22], v4",
    "ds_read_b128": "ds_read_b128 v[20:23], v4",
    "ds_read_b64_tr_b16": "ds_read_b64_tr_b16 v[20:21], v4",
    "ds_read_b64_tr_b8": "ds_read_b64_tr_b8 v[20:21], v4",
    "ds_read_b64_tr_b4": "ds_read_b64_tr_b4 v[20:21], v4",
    "ds_read_b96_tr_b6": "ds_read_b96_tr_b6 v[20:22], v4",
    "ds_write_b32": "ds_write_b32 v4, v8",
    "ds_write_b64": "ds_write_b64 v4, v[8:9]",
    "ds_write_b128": "ds_write_b128 v4, v[8:11]",
}
PROBED = ("ds_read_b64", "ds_read_b96", "ds_read_b128", "ds_write_b64")
LDS = {"measured": "default", "published": "lds-256"}  # readings
MFMA = "v_mfma_f32_4x4x4_16b_f16 a[0:3], v[8:9], v[10:11], a[0:3]"  # 8 clk
READ = "ds_read_b128 v[20:23], v3"


def pitch(name: str) -> int:
    """Bytes from a lane to the next; loads to LDS of 12 bytes leave them 16 apart, too."""
    return 16 if "b96" in name else int(name.split("_")[2].removeprefix("b")) // 8


def found() -> dict[str, Any]:
    """What a process that plays an MI355X prints."""
    command = [sys.executable, "-m", "tests.support.lds_probes"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    probes: dict[str, Any] = json.loads(done.stdout)
    return probes


def main() -> None:
    import tests.conftest  # noqa: F401  (chooses the virtual device)

    os.environ["AMDATTN_DEVICE"] = f"virtual:{ARCH}"
    from benchmarks.performance_model.micro_kernel import clk_per, profile

    def clk(
        name: str, address: Callable[[int], int], lanes: int = 2**64 - 1, lds: str = "measured"
    ) -> tuple[int, int]:
        """Of a port for data and addresses, and of that by conflicts."""
        body = f"  s_mov_b64 exec, s[20:21]\n  {FORMS[name]}\n  s_waitcnt lgkmcnt(0)"
        table = [address(lane) for lane in range(64)]
        found = profile(body, table=table, mask=lanes, reading=LDS[lds]).clk
        return int(found["lds"] + found["lds_address"]), int(found["lds_conflict"])

    def conflict(name: str, first: int, second: int, dwords: int) -> int:
        """Of two lanes at so many dwords from each other."""
        pair = 1 << first | 1 << second
        return clk(name, lambda lane: 4 * dwords * (lane == second), pair)[1]

    def groups(name: str) -> list[list[int]]:
        """Lanes of which any two conflict in a bank, at 64 dwords as there."""
        groups: list[list[int]] = []
        for lane in range(64):
            for group in groups:
                if conflict(name, group[0], lane, 64):
                    group.append(lane)
                    break
            else:
                groups.append([lane])
        return groups

    probes = {
        "groups": {name: groups(name) for name in PROBED},
        "banks": {
            name: [n for n in range(4, 129, 4) if conflict(name, 0, 1, n)] for name in PROBED
        },
        "pair": {name: conflict(name, 0, 1, 64) for name in PROBED},
        "one_bank": {name: clk(name, lambda lane: 256 * lane)[1] for name in FORMS},
        "service": {
            lds: {name: clk(name, lambda i, n=name: i * pitch(n), lds=lds) for name in FORMS}
            for lds in LDS
        },
        "readings": [profile("s_nop 0", reading=r).reading for r in (*LDS.values(), None)],
        "one_wave": {lds: clk_per(READ, reading=r) for lds, r in LDS.items()},
        "eight_waves": {lds: clk_per(READ, waves=8, reading=r) for lds, r in LDS.items()},
        "behind_mfma": clk_per(f"{MFMA}\nds_read_b32 v20, v2"),
        "before_mfma": clk_per("v_add_f32 v20, v8, v9\nds_read_b32 v20, v2"),
        "nops": [clk_per(f"s_nop {n}") for n in (0, 3, 15)],
        "valu_beside_loads": {
            load: clk_per(
                "v_add_f32 v20, v8, v9\n" * 40 + load, 4, waves=8, before="s_mov_b32 m0, 0"
            )
            for load in (
                "global_load_lds_dwordx4 v3, s[22:23]",
                "global_load_dwordx4 v[24:27], v3, s[22:23]",
            )
        },
    }
    json.dump(probes, sys.stdout)


if __name__ == "__main__":
    main()
