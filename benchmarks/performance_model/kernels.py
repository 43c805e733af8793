"""Launches of other projects' attention kernels under the performance model, for its validation.

Their files stay where the user has them. AITER's launch rules are those of `amdattn bench`.
MoonMath's are of moonmath-ai/amd-kernels, csrc/attention_api.cpp and csrc/attention_kernel.hip; its
code objects, moonmath_rtz.hsaco and so on, are compiled by hand: docs/studies/performance-model.md.
"""

from __future__ import annotations

import contextlib
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from amdattn import virtual
from amdattn.bench.kernels import Functions, Launch, Operands
from amdattn.bench.shapes import Shape
from amdattn.device import runtime
from amdattn.device.profiling import LaunchProfile
from benchmarks.peers.aiter import Aiter
from benchmarks.performance_model.published import COUNTERS_BATCH_HEADS

HEAD_DIM, KV_ROWS = 128, 64
ROUND_MODES = ("rtz", "rtna", "rtne")
SIMDS, PORTS = 4, 2  # of a CU
NUM_CUS, NUM_XCDS = 304, 8
AITER_Q_ROWS, MOONMATH_Q_ROWS = 256, 384

_FORWARD = (
    "_ZN12_GLOBAL__N_117attention_forwardILb1ELb0ELb0EEEvPK14__hip_bfloat16S3_S3_PS1_"
    "iifiPKsPsS6_fiPfiiPKi"
)
_TRANSPOSE = "_ZN12_GLOBAL__N_124v_transpose_kernel_16x16ILb1EEEvPK14__hip_bfloat16PS1_ii"
# The first 64 rows of K are scaled so that later ones raise a row's maximum as seldom as the
# project says of realistic inputs: its rescaling, a branch, then runs for a tenth of the tiles.
REALISTIC_SCALE, NO_RESCALING_SCALE = 1.74, 2.5


@dataclass(frozen=True)
class Loop:
    """A workgroup's cost as base + iterations * clk, from two lengths of K and V; units per SIMD.

    mfma, valu (4 clk of it per MFMA included) and lds are clk per 64 rows of KV.
    """

    base: float
    clk: float
    mfma: float
    valu: float
    lds: float
    lds_address: float
    lds_conflict: float
    l1_bytes: float
    l2_bytes: float
    mfma_flops: dict[str, float]
    packed_valu: float
    rescale_rate: float = 0.0


class MoonMath:
    """The forward kernel of one rounding mode, layout (batch, seqlen, heads, head_dim)."""

    q_rows = MOONMATH_Q_ROWS

    def __init__(
        self, directory: Path, round_mode: str, first_rows_scale: float = REALISTIC_SCALE
    ) -> None:
        self._image = (directory / f"moonmath_{round_mode}.hsaco").read_bytes()
        self._functions = Functions()
        self._first_rows_scale = first_rows_scale

    def profile(self, workgroups: int, seqlen_kv: int) -> tuple[LaunchProfile, float]:
        """The XCD's workgroups, all of one head; and how often a tile of 16 rows is rescaled."""
        heads, seqlen_q = NUM_XCDS, workgroups * self.q_rows
        rng = np.random.default_rng(0)
        q, k, v = (
            rng.standard_normal((1, s, heads, HEAD_DIM), np.float32)
            for s in (seqlen_q, seqlen_kv, seqlen_kv)
        )
        k[:, :KV_ROWS] *= self._first_rows_scale
        q, k, v = (x.astype(ml_dtypes.bfloat16) for x in (q, k, v))
        tiles = seqlen_kv // KV_ROWS
        with contextlib.ExitStack() as stack:
            device = runtime.get()

            def put(array: np.ndarray[Any, Any]) -> int:
                address = device.malloc(array.nbytes)
                stack.callback(device.free, address)
                device.upload(address, array.ctypes.data, array.nbytes)
                runtime.synchronize()
                return address

            at_q, at_k, at_v, at_o = (put(x) for x in (q, k, v, q))
            at_transposed = put(v)
            transpose = struct.pack("<QQii", at_v, at_transposed, seqlen_kv, heads)
            Launch(self._image, _TRANSPOSE, (heads * tiles, 1, 1), (256, 1, 1), transpose).enqueue(
                self._functions
            )
            runtime.synchronize()
            scale = math.log2(math.e) / HEAD_DIM**0.5
            arguments = struct.pack(
                "<QQQQiifiQQQfiQiiQ",
                *(at_q, at_k, at_transposed, at_o, seqlen_q, seqlen_kv, scale, heads),
                *(0, 0, 0, 0.0, 0, 0, 0, 0, 0),
            )
            forward = Launch(self._image, _FORWARD, (workgroups, heads, 1), (512, 1, 1), arguments)
            with virtual.profile() as profile:
                forward.enqueue(self._functions)
                runtime.synchronize()
        return profile.launches[0], _rescale_rate(q, k)


def _rescale_rate(q: np.ndarray[Any, Any], k: np.ndarray[Any, Any]) -> float:
    """Share of (16 rows of Q, 64 rows of KV) in which a row's maximum grows, second half."""
    scores = q[0, :384, 0].astype(np.float32) @ k[0, :, 0].astype(np.float32).T
    tops = scores.reshape(24, 16, -1, KV_ROWS).max(-1)
    before = np.maximum.accumulate(tops, -1)[..., :-1]
    grows = (tops[..., 1:] > before).any(1)
    return float(grows[:, grows.shape[1] // 2 :].mean())


class AiterForward:
    """The assembled forward kernel of one rounding mode."""

    q_rows = AITER_Q_ROWS

    def __init__(self, directory: Path, round_mode: str) -> None:
        self._kernel = Aiter(directory, round_mode)
        self._functions = Functions()

    def profile(
        self, workgroups: int, seqlen_kv: int, *, causal: bool = False, warm_code: bool = True
    ) -> tuple[LaunchProfile, float]:
        """`workgroups` of the XCD. Causal: of the batch and heads of the published counters."""
        batch, heads = COUNTERS_BATCH_HEADS if causal else (1, 1)
        seqlen_q = seqlen_kv if causal else self.q_rows * NUM_XCDS * workgroups
        shape = Shape(batch, heads, heads, seqlen_q, seqlen_kv, HEAD_DIM, causal=causal)
        with Operands(shape) as operands:
            walk = self._kernel.walk(shape)
            chosen = np.arange(0, len(walk.kv_rows), NUM_XCDS)[:workgroups]
            operands.fill_for(shape, walk, chosen)
            launch = self._kernel.launch(shape, operands)
            with virtual.profile(simulated_workgroups=workgroups, warm_code=warm_code) as profile:
                launch.enqueue(self._functions)
                runtime.synchronize()
        return profile.launches[0], 0.0


def mean_clk(profile: LaunchProfile) -> float:
    """Lifetime of a workgroup."""
    return float(np.mean([time.end - time.start for time in profile.times]))


def loop(
    kernel: AiterForward | MoonMath, workgroups: int = 4, lengths: tuple[int, int] = (1024, 2048)
) -> Loop:
    """Cost of an iteration over 64 rows, the difference of two lengths."""
    (short, _), (long, rate) = (kernel.profile(workgroups, length) for length in lengths)
    iterations = (lengths[1] - lengths[0]) // KV_ROWS
    each = workgroups * iterations

    def per_iteration(unit: str, count: int) -> float:
        return (long.clk[unit] - short.clk[unit]) / each / count

    clk = (mean_clk(long) - mean_clk(short)) / iterations
    flops: dict[str, float] = {}
    packed = 0.0
    for profile, sign in ((long, 1), (short, -1)):
        for site in profile.sites:
            name = site.text.split()[0]
            if name.startswith("v_mfma"):
                shape = name.split("_")[3]
                m, n, depth = (int(x) for x in shape.split("x"))
                flops[shape] = flops.get(shape, 0) + sign * site.issued * 2 * m * n * depth / each
            packed += sign * site.issued / each * name.startswith("v_pk_")
    return Loop(
        base=mean_clk(short) - clk * lengths[0] / KV_ROWS,
        clk=clk,
        mfma=per_iteration("mfma", SIMDS),
        valu=per_iteration("valu", SIMDS),
        lds=per_iteration("lds", PORTS),
        lds_address=per_iteration("lds_address", PORTS),
        lds_conflict=per_iteration("lds_conflict", PORTS),
        l1_bytes=(long.bytes["l1"] - short.bytes["l1"]) / each,
        l2_bytes=(long.bytes["l2"] - short.bytes["l2"]) / each,
        mfma_flops=flops,
        packed_valu=packed,
        rescale_rate=rate,
    )
