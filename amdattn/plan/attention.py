"""Plan of an attention forward call."""

from __future__ import annotations

from collections.abc import Sequence

from amdattn.device import (
    LANES_PER_WAVE,
    SIMDS_PER_CU,
    VGPR_GRANULE,
    VGPRS_PER_SIMD_LANE,
    DeviceProps,
)
from amdattn.errors import ManifestError
from amdattn.manifest import KernelSpec, select
from amdattn.plan import Address, Argument, Launch, Plan, Stride
from amdattn.plan.workspace import WorkspaceLayout
from amdattn.problem import AttentionProblem

# The one grid rule implemented here. Head is innermost: consecutive workgroups go round robin over
# the XCDs, so all q tiles of a head meet in few L2s.
GRID_RULE = "x=num_heads_q, y=ceil(seqlen_q/q_tile), z=batch"

MAX_WAVES_PER_SIMD = 8


def plan_attention(
    problem: AttentionProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> Plan:
    """Choose a kernel and its grid. Pure: the same arguments give an equal plan.

    Raises
    ------
    UnsupportedProblem, UnsupportedDeviceError
        No kernel in `rows` solves `problem` on `props`.
    """
    kernel = select(rows, problem, props)
    if kernel.grid != GRID_RULE:
        raise ManifestError(f"kernel {kernel.name} has grid {kernel.grid!r}, not {GRID_RULE!r}")
    num_q_tiles = -(-problem.seqlen_q // kernel.q_tile)
    launch = Launch(kernel, (problem.num_heads_q, num_q_tiles, problem.batch), _arguments(problem))
    per_cu, limit = workgroups_per_cu(kernel, props)
    slots = per_cu * props.num_cus
    rounds = -(-launch.num_workgroups // slots)
    last = launch.num_workgroups - (rounds - 1) * slots
    q_rows = num_q_tiles * kernel.q_tile
    kv_rows = -(-problem.seqlen_kv // kernel.kv_tile) * kernel.kv_tile
    reasons = (
        (
            "why this kernel",
            f"first manifest row for {kernel.arch} with dtype={kernel.dtype} "
            f"head_dim={kernel.head_dim} and every option asked for",
        ),
        (
            "tiles",
            f"q {num_q_tiles} x {kernel.q_tile} rows ({problem.seqlen_q / q_rows:.1%} used), "
            f"kv {kv_rows // kernel.kv_tile} x {kernel.kv_tile} rows "
            f"({problem.seqlen_kv / kv_rows:.1%} used)",
        ),
        ("workgroups per CU", f"{per_cu}, limited by {limit}"),
        (
            "rounds",
            f"ceil({launch.num_workgroups} / ({per_cu} x {props.num_cus} CUs)) = {rounds}; "
            f"the last one fills {last} of {slots} slots ({last / slots:.1%})",
        ),
        ("KV split", "1 part: this kernel walks the whole KV range of its q tile"),
        ("work", f"{problem.flops:.4g} floating point operations"),
    )
    return Plan(problem, props, (launch,), WorkspaceLayout(), reasons)


def _arguments(problem: AttentionProblem) -> tuple[tuple[str, Argument], ...]:
    args: dict[str, Argument] = {name: Address(name) for name in ("q", "k", "v", "o", "lse")}
    for operand in ("q", "k", "v", "o"):
        for axis in ("batch", "seq", "head"):
            args[f"{operand}_stride_{axis}"] = Stride(operand, axis)
    for name in ("batch", "num_heads_q", "num_heads_kv", "seqlen_q", "seqlen_kv"):
        args[name] = getattr(problem, name)
    args["softmax_scale_log2"] = problem.softmax_scale_log2
    return tuple(args.items())


def workgroups_per_cu(kernel: KernelSpec, props: DeviceProps) -> tuple[int, str]:
    """How many workgroups of `kernel` fit a CU at once, and what limits it."""
    x, y, z = kernel.workgroup
    num_waves = -(-x * y * z // LANES_PER_WAVE)
    # CDNA3 and CDNA4 allocate VGPRs and AGPRs of a wave from one file; AGPRs start on a granule.
    registers = sum(-(-n // VGPR_GRANULE) * VGPR_GRANULE for n in (kernel.vgpr, kernel.agpr))
    waves_per_simd = min(MAX_WAVES_PER_SIMD, VGPRS_PER_SIMD_LANE // max(registers, 1))
    limits = {
        f"registers ({registers} VGPRs + AGPRs per lane)": waves_per_simd
        * SIMDS_PER_CU
        // num_waves
    }
    if kernel.lds_bytes:
        limits[f"LDS ({kernel.lds_bytes} of {props.lds_bytes} bytes)"] = (
            props.lds_bytes // kernel.lds_bytes
        )
    limit = min(limits, key=lambda name: limits[name])
    if limits[limit] < 1:
        raise ManifestError(f"kernel {kernel.name} cannot run on {props.name}: too many {limit}")
    return limits[limit], limit
