"""The defects of docs/studies/found.md: objects, places, and how each shows; see found.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.support.peers.found_kernels import (
    Problem,
    dq_convert,
    fp8_attention,
    i8gemm,
    mla_decode,
    paged_decode,
    split_k,
    topk_decode,
)
from tests.support.peers.peer_device import Buffers


@dataclass(frozen=True)
class Defect:
    """One published code object, and what is wrong with it.

    Attributes
    ----------
    sha256 : str
        The first 16 digits, of the object that was read.
    kind, places
        Findings that checked mode must give, and their ELF addresses.
    shows : str
        What it does to the result: the name of a function of found.py.
    tolerance : float
        Of the greatest value: what errs by more is wrong.
    """

    name: str
    object: str
    sha256: str
    kind: str
    places: tuple[int, ...]
    prepare: Callable[[Path, Buffers], Problem]
    shows: str
    tolerance: float = 0.02


# Head dimension, rounding, object, the first of its stores of what LDS has not yet returned.
_DQ_CONVERT = (
    (64, "bf16_rtna", "cdf8c427ffb4c13d", 0x2470),
    (64, "bf16_rtna_group", "019de996540bfa4e", 0x24A4),
    (64, "bf16_rtne", "9fc5939b740e3d3b", 0x2498),
    (64, "bf16_rtne_group", "67649b88baa6c5dd", 0x24CC),
    (64, "bf16_rtz", "b828df437461203b", 0x2410),
    (64, "bf16_rtz_group", "46daeee69e9103d5", 0x2444),
    (64, "fp16", "de4138f157690689", 0x2410),
    (64, "fp16_group", "dd3c8d75aaed41af", 0x2444),
    (128, "bf16_rtna", "89093b168d145668", 0x2434),
    (128, "bf16_rtna_group", "2aea173b4ca7af85", 0x2488),
    (128, "bf16_rtne", "73b299e22bd157cb", 0x245C),
    (128, "bf16_rtne_group", "47d51581c9b97073", 0x24B0),
    (128, "bf16_rtz", "320ad2372ed8537f", 0x23D4),
    (128, "bf16_rtz_group", "a6dc191ab815ad8b", 0x2428),
    (128, "fp16", "e8fc0f249d38daa2", 0x23D4),
    (128, "fp16_group", "0f659a880d7f7941", 0x2428),
    (192, "bf16_rtna", "f0c907919489d700", 0x245C),
    (192, "bf16_rtna_group", "0e4f6fbde35cfa92", 0x2490),
    (192, "bf16_rtne", "f4507d92bdd6fcb3", 0x2484),
    (192, "bf16_rtne_group", "99aafe935676eec4", 0x24B8),
    (192, "bf16_rtz", "514a9841a38f375a", 0x23FC),
    (192, "bf16_rtz_group", "40d3d34f11e4b281", 0x2430),
    (192, "fp16", "a9d0f11fafe6c926", 0x23FC),
    (192, "fp16_group", "8310954bd1d60e0e", 0x2430),
)
# Type, heads, object, uses of the page table before it has arrived.
_PAGED = (
    ("bf16", 8, "7533107346eee4eb", 0x3930, 0x4538, 0x5150, 0x5D58),
    ("bf16", 16, "35ddb30948b3d00a", 0x39FC, 0x46C8, 0x53A4, 0x6070),
    ("fp16", 8, "d1e1ead6d64d9e2c", 0x3880, 0x43D8, 0x4F40, 0x5A98),
    ("fp16", 16, "f3a74bed72988863", 0x389C, 0x4408, 0x4F84, 0x5AF0),
)
# Type, that of K and V, object, the first matrix instruction on what LDS has not yet returned.
_PAGED_8_BITS = (
    ("bf16", "Fp8", "67dcecd08df33399", 0x69B0),
    ("bf16", "Int8", "7e69cb0f561364cd", 0x6E60),
    ("fp16", "Fp8", "a6eb414543bf4d5d", 0x69D0),
    ("fp16", "Int8", "c38f0b622c7b913e", 0x6E80),
)

# What `benchmarks/flydsl_hgemm.py AITER DIR 128,2880 --tiles-m 1` writes, with FlyDSL 0.4.2.
FLYDSL = Defect(
    "flydsl_split_k",
    "n128_k2880_hgemm_bf16_16x64x64x5_SPK9_W1x2x1_BLDS1_TN_AS1_0.hsaco",
    *("2b4551fa87c52d02", "", (), split_k, "late_stores", 0.1),
)
DEFECTS = (
    Defect(
        *("fp8_causal", "fmha_v3_fwd/MI300/fwd_hd128_fp8_causal.co", "90c0d4bb363435de"),
        *("", (), partial(fp8_attention, descale=1.0), "second_tile"),
    ),
    Defect(
        *("i8gemm", "i8gemm/I8gemm_bf16_perTokenI8_BpreShuffle_112x256.co", "f14d68d90a0bad3e"),
        *("lds_race", (0x28C8, 0x298C), i8gemm, "schedules"),
    ),
    Defect(
        *("mla_qseqlen1", "mla/mla_a8w8_qh16_qseqlen1_gqaratio16.co", "1eb98ac3229ed565"),
        *("lds_race", (0x3944, 0x4DAC), partial(mla_decode, tokens=1), "right", 0.3),
    ),
    Defect(
        *("mla_qseqlen2", "mla/mla_a8w8_qh16_qseqlen2_gqaratio16.co", "9fc2d000404b231c"),
        *("lds_race", (0x26EC, 0x3EC8, 0x5AC0, 0x5BE8, 0x6A00)),
        *(partial(mla_decode, tokens=2), "schedules", 0.3),
    ),
    Defect(
        *("mla_qseqlen4", "mla/mla_a8w8_qh16_qseqlen4_gqaratio16.co", "06c54bfd5cc20d18"),
        *("use_before_wait", (0x32B8, 0x32D8, 0x331C, 0x333C)),
        *(partial(mla_decode, tokens=4), "late_data", 0.3),
    ),
    Defect(
        *("mla_m16x4", "mla/mla_a16w16_qh16_m16x4_n16x1_coex0_mask1.co", "33a81be144f764f1"),
        *("use_before_wait", (0x37C4, 0x4AF4), partial(mla_decode, tokens=4), "late_data"),
    ),
    Defect(
        *("mla_subq16", "mla/mla_dec_stage1_bf16_a16w16_subQ16_mqa16.co", "8c615201a6687d97"),
        *("lds_race", (0x5018,), partial(mla_decode, tokens=1), "right"),
    ),
    Defect(
        *("mla_subq128", "mla/mla_dec_stage1_bf16_a16w16_subQ128_mqa128.co", "c3d895ee710bce45"),
        *("use_before_wait", (0x2FC4, 0x51B4)),
        *(partial(mla_decode, tokens=1, heads=128), "late_data"),
    ),
    Defect(
        *("topk_decode", "topk_per_row_decode/asm_top_k_per_row_decode.co", "a05e6bbf2fa5c736"),
        *("barrier_mismatch", (0x7C64,), topk_decode, "right"),
    ),
    *(
        Defect(
            f"dq_convert_{head_dim}_{rounding}",
            f"fmha_v3_bwd/bwd_hd{head_dim}_dq_convert_{rounding}.co",
            *(sha256, "use_before_wait", (place,), dq_convert, "late_data"),
        )
        for head_dim, rounding, sha256, place in _DQ_CONVERT
    ),
    *(
        Defect(
            f"pa_{dtype}_{heads}",
            f"pa/pa_{dtype}_noquant_gqa{heads}_1tg_4w.co",
            *(sha256, "use_before_wait", tuple(places), paged_decode, "late_data"),
        )
        for dtype, heads, sha256, *places in _PAGED
    ),
    *(
        Defect(
            f"pa_{dtype}_{of_kv.lower()}_16",
            f"pa/pa_{dtype}_pertoken{of_kv}_gqa16_2tg_4w.co",
            *(sha256, "use_before_wait", (place,), paged_decode, "late_data", 0.1),
        )
        for dtype, of_kv, sha256, place in _PAGED_8_BITS
    ),
)
