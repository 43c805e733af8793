"""Tables of micro kernels beside public figures, for docs/studies/performance-model.md."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amdattn.bench.clocks import clocks
from amdattn.device.virtual_library import library_path
from benchmarks.performance_model import micro
from benchmarks.performance_model.micro_kernel import clk_per
from benchmarks.readings import TRANS

_RRZE, _MT4G = "gpu-benches", "MT4G"
_AZURE = "BabelStream, Azure's AI benchmarking guide"
_RPC, _ISA3, _MC = "rocprofiler-compute", "CDNA3 ISA", "matrix calculator"
_PEAK = clocks("gfx942").peak_ghz
_CLOSE = 0.05


@dataclass(frozen=True)
class Figure:
    """A micro kernel: what the model says, and what is public, least and greatest."""

    what: str
    unit: str
    modelled: Callable[[], float]
    published: tuple[float, ...]
    source: str

    def row(self) -> tuple[str, ...]:
        """Cells of the table."""
        value = self.modelled()
        low, high = min(self.published), max(self.published)
        off = value / high - 1 if value > high else value / low - 1 if value < low else 0.0
        verdict = "within" if off == 0 else f"{100 * off:+.0f} %"
        if abs(off) > _CLOSE:
            verdict = f"**{verdict}**"
        public = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        return self.what, f"{value:.4g}", public, self.unit, self.source, verdict


HEAD = ("micro kernel", "modelled", "published", "unit", "source", "deviation")


def _latency(level: str) -> Callable[[], float]:
    return lambda: _latencies()[level]


@functools.cache
def _latencies() -> dict[str, int]:
    return micro.latencies()


def _rate(nbytes: int, apart: int) -> float:
    """TB/s at the peak clock."""
    return micro.region_rate(nbytes, apart=apart) * _PEAK / 1000


def _per_clk(text: str, nbytes: int, waves: int = micro.WAVES) -> float:
    """Of a CU."""
    return waves * nbytes * 64 / clk_per(text, waves=waves)


FIGURES = (
    Figure("HBM, read", "TB/s", lambda: micro.hbm_rate(1, False), (4.2,), _RRZE),
    Figure("HBM, write", "TB/s", lambda: micro.hbm_rate(0, True), (4.8,), _RRZE),
    Figure("HBM, copy", "TB/s", lambda: micro.hbm_rate(1, True), (4.11,), _AZURE),
    Figure(
        "HBM, two arrays read, one written (triad)",
        "TB/s",
        lambda: micro.hbm_rate(2, True),
        (3.9, 4.09),
        f"{_RRZE}; {_AZURE}",
    ),
    Figure("MALL, read", "TB/s", micro.mall_rate, (5.9, 6.0), f"{_MT4G}; Formocast"),
    Figure(
        "L2, 2 MB read again and again",
        "TB/s",
        lambda: _rate(2 << 20, 54272),
        (15.8, 17.7, 27.5),
        f"{_MT4G}; two benchmarks of {_RRZE}",
    ),
    Figure("L1, 16 KB read again and again", "TB/s", lambda: _rate(16 << 10, 0), (38.8, 39.3),
           _RRZE),
    Figure("LDS, ds_read_b128", "B/clk/CU", lambda: _per_clk("ds_read_b128 v[20:23], v3", 16),
           (128,), _RPC),
    Figure("L1 latency", "clk", _latency("L1"), (116, 120), f"{_RRZE}; {_MT4G}"),
    Figure("L2 latency", "clk", _latency("L2"), (213, 288), f"{_RRZE}; {_MT4G}"),
    Figure("MALL latency, 2.092 GHz", "clk", _latency("MALL"), (455,), _RRZE),
    Figure("HBM latency, 2.092 GHz", "clk", _latency("HBM"), (835, 900), _RRZE),
    Figure("chain of s_load_dword", "clk",
           lambda: clk_per("s_load_dword s5, s[22:23], 0x0\ns_waitcnt lgkmcnt(0)"), (48,), _MT4G),
    Figure("chain of ds_read_b32", "clk", micro.lds_chase, (52,), _MT4G),
    Figure("chain of ds_read_b64", "clk", lambda: micro.lds_chase("ds_read_b64 v[4:5], v4"),
           (84,), "Formocast's constant"),
    Figure("chain of ds_read_b128", "clk", lambda: micro.lds_chase("ds_read_b128 v[4:7], v4"),
           (108,), "Formocast's constant"),
    Figure("v_fma_f32", "clk", lambda: clk_per("v_fma_f32 v20, v8, v9, v10"), (4,), _ISA3),
    Figure("v_pk_fma_f32", "clk",
           lambda: clk_per("v_pk_fma_f32 v[20:21], v[8:9], v[10:11], v[12:13]"), (4,),
           "CDNA3 white paper's peak"),
    Figure("v_fma_f64", "clk", lambda: clk_per("v_fma_f64 v[20:21], v[8:9], v[10:11], v[12:13]"),
           (4,), "CDNA3 white paper's peak"),
    Figure("v_exp_f32", "clk", lambda: clk_per("v_exp_f32 v20, v8"), (16,), _ISA3),
    Figure("v_cvt_f32_f16", "clk", lambda: clk_per("v_cvt_f32_f16 v20, v8"), (16,), "LLVM"),
    Figure("v_mfma_f32_32x32x8_bf16", "clk", lambda: clk_per(micro.MFMA), (32,), _MC),
    Figure("v_mfma_f32_16x16x16_bf16", "clk",
           lambda: clk_per("v_mfma_f32_16x16x16_bf16 a[0:3], v[8:9], v[10:11], a[0:3]"),
           (16,), _MC),
    Figure("v_mfma_f32_16x16x32_fp8_fp8", "clk",
           lambda: clk_per("v_mfma_f32_16x16x32_fp8_fp8 a[0:3], v[8:9], v[10:11], a[0:3]"),
           (16,), _MC),
    Figure("v_mfma_f32_32x32x2_f32", "clk",
           lambda: clk_per("v_mfma_f32_32x32x2_f32 a[0:15], v8, v9, a[0:15]"), (64,), _MC),
    Figure("s_barrier of one wave", "clk", lambda: clk_per("s_barrier"), (8,), "TensileLite"),
    Figure("taken branch", "clk", lambda: clk_per("s_branch to{i}\ns_nop 0\nto{i}:"), (24, 32),
           "TensileLite; LLVM"),
    Figure("s_nop 3", "clk", lambda: clk_per("s_nop 3"), (16,), _ISA3),
)  # fmt: skip

# Beside a v_mfma_f32_32x32x8 of 32 clk; what others say of it.
_NONE, _LLVM = "none of gfx942", "LLVM: never"
BESIDE = (
    ("v_fma_f32", "v_fma_f32 v20, v8, v9, v10", "6 on gfx950 (gluon tutorials)"),
    ("v_max3_f32", "v_max3_f32 v20, v8, v9, v10", "as v_fma_f32"),
    ("v_fma_mix_f32", "v_fma_mix_f32 v20, v8, v9, v10 op_sel_hi:[0,0,1]", _NONE),
    ("v_cvt_pkrtz_f16_f32", "v_cvt_pkrtz_f16_f32 v20, v8, v9", _NONE),
    ("v_perm_b32", "v_perm_b32 v20, v8, v9, v10", _NONE),
    ("v_cvt_f32_f16", "v_cvt_f32_f16 v20, v8", _NONE),
    ("v_pk_mul_f32", "v_pk_mul_f32 v[20:21], v[8:9], v[10:11]",
     "none: composable_kernel, hipBLASLt, LLVM; gfx950: none"),
    ("v_pk_mul_f16", "v_pk_mul_f16 v20, v8, v9", _LLVM),
    ("v_dot2_f32_f16", "v_dot2_f32_f16 v20, v8, v9, v10", "LLVM: never; gfx950: none"),
    ("v_cvt_pk_fp8_f32", "v_cvt_pk_fp8_f32 v20, v8, v9", _LLVM),
    ("v_exp_f32", "v_exp_f32 v20, v8", "gfx950: 3, of 8 clk (gluon tutorials); LLVM: never"),
)  # fmt: skip


def figures() -> list[tuple[str, ...]]:
    """Rows of the table of micro kernels."""
    return [figure.row() for figure in FIGURES]


def beside(chosen: Sequence[tuple[str, str, str]] = BESIDE) -> list[tuple[str, ...]]:
    """What an MFMA hides, under both readings of transcendentals where they differ."""
    rows: list[tuple[str, ...]] = []
    for name, text, public in chosen:
        of_text = {trans: micro.hidden(text, reading) for trans, reading in TRANS.items()}
        differ = len(set(of_text.values())) > 1
        for trans, found in of_text.items():
            if trans == "beside" or differ:
                label = f"`{name}`" + f", {trans}" * differ
                rows.append((label, str(found.count), f"{found.more:g}", public))
    return rows


def coexecution() -> Sequence[tuple[str, ...]]:
    """The model's table: architecture, instructions, what they do, clk behind, evidence."""
    library = ctypes.CDLL(str(library_path()))
    library.amdattn_vdev_coexecution.restype = ctypes.c_char_p
    lines = library.amdattn_vdev_coexecution().decode().splitlines()
    return [
        (arch, instructions.replace("*", "\\*"), does, after, evidence)
        for arch, instructions, does, after, evidence in (line.split("\t") for line in lines)
    ]
