"""What the calls of docs/refused.md are made of."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import amdattn
from amdattn.dtypes import as_dtype

BF16 = ml_dtypes.bfloat16


def names() -> dict[str, Any]:
    """By name: the package's functions, and small operands."""
    q, k = np.ones((1, 16, 2, 128), BF16), np.ones((1, 24, 2, 128), BF16)
    read_only = np.zeros(q.shape, BF16)
    read_only.flags.writeable = False
    halves = {
        f"{name}_float16": x.astype(np.float16) for name, x in zip("qkv", (q, k, k), strict=True)
    }
    return {
        **{name: getattr(amdattn, name) for name in amdattn.__all__},
        **halves,
        "q": q,
        "k": k,
        "v": k.copy(),
        "k_of_3_heads": np.ones((1, 24, 3, 128), BF16),
        "kv": np.ones((1, 24, 2, 2, 128), BF16),
        "rows": np.ones((16, 2, 128), BF16),
        "sums": np.array([0, 16], np.int32),
        "table": np.zeros((1, 1), np.int32),
        "pages": np.ones((3, 16, 2, 128), BF16),
        "lse": np.zeros((1, 2, 16), np.float32),
        "slopes": np.ones(2, np.float32),
        "read_only": read_only,
        "x": np.ones((4, 64), BF16),
        "e4m3": as_dtype(amdattn.device_props().architecture.fp8).numpy(),
        "w": np.ones((32, 64), BF16),
        "gfx90a": amdattn.DeviceProps("gfx90a", "AMD Instinct MI250X", 104, 1, 65536, 2**36),
    }
