"""The kernel that orders the tiles of attention over sequences of several lengths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amdattn.ops.attention.scheduling import SCHEDULE, SCHEDULE_GRID
from build_scripts.toolchain import LLVM22


def schedule_members() -> Iterator[dict[str, Any]]:
    """Every kernel, as arguments of `build.KernelBuild`."""
    yield {
        "name": "attn_schedule",
        "source": "kernels/attn_schedule.hip",
        "header": "attn_schedule.h",
        "struct": "AttnScheduleArgs",
        "toolchain": LLVM22,
        "toolchain_reason": "as the kernels that read what it writes",
        "op": SCHEDULE,
        "dtype": "i32",
        "params": {},
        "tile": (),
        "grid": SCHEDULE_GRID,
        "accepts": {},
    }
