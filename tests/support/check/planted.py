"""The planted defects: which kernel has which, what checked mode has to say, how to launch it."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_char_p, c_int, c_uint64
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from build_scripts.toolchain import LLVM22, compile_hip
from tests.support.gpu import Gpu
from tests.support.paths import TESTS
from tests.support.vdev_library import DEFAULT_CPU, open_library

WORDS = 1024  # of `in`, `out` and `spare`; planted/memory.hip relies on it
FLAGS = 64


@dataclass(frozen=True, slots=True)
class Planted:
    """One kernel with one defect.

    Attributes
    ----------
    group, kernel : str
        planted/<group>.hip and the kernel in it.
    kind : str
        Of the one finding.
    defect : str
        For people: what is wrong.
    place : str or None
        The role of the symbol (use.<kernel>) at the instruction that the finding names; None: the
        finding names no instruction.
    producer : str or None
        The same for the finding's producer; None: not looked at.
    where : str or None
        The register, or the beginning of the place, that the finding names.
    severity : str
        "error" or "counted".
    fails : bool
        The defect ends the launch with an error.
    workgroups, lanes, dynamic_lds : int
        Shape of the launch.
    options : dict
        Of the virtual device.
    arch : str
        Whose code it is.
    """

    group: str
    kernel: str
    kind: str
    defect: str
    place: str | None = "use"
    producer: str | None = None
    where: str | None = None
    severity: str = "error"
    fails: bool = False
    workgroups: int = 1
    lanes: int = 64
    dynamic_lds: int = 0
    options: dict[str, int] = field(default_factory=dict)
    arch: str = DEFAULT_CPU


def waits(kernel: str, where: str, defect: str, **more: Any) -> Planted:
    kind = more.pop("kind", "use_before_wait")
    return Planted("waits", kernel, kind, defect, producer="producer", where=where, **more)


def hazard(kernel: str, where: str, defect: str) -> Planted:
    return Planted("hazards", kernel, "hazard", defect, producer="producer", where=where)


def clause(kernel: str, where: str, defect: str) -> Planted:
    return Planted("hazards", kernel, "clause_overwrite", defect, producer="producer", where=where)


def race(kernel: str, kind: str, defect: str, **more: Any) -> Planted:
    shape = {"lanes": 128} if "lds" in kernel or "waves" in kernel else {"workgroups": 2}
    more = {"producer": "producer"} | shape | more
    return Planted("races", kernel, kind, defect, **more)


def memory(kernel: str, kind: str, defect: str, **more: Any) -> Planted:
    return Planted("memory", kernel, kind, defect, **more)


def control(kernel: str, kind: str, defect: str, **more: Any) -> Planted:
    return Planted("control", kernel, kind, defect, **more)


PLANTED = [
    waits("vgpr_before_vmcnt", "v10", "VGPR used before vmcnt"),
    waits("vmcnt_too_weak", "v11", "vmcnt(1) where vmcnt(0) is needed"),
    waits("sgpr_before_lgkmcnt", "s40", "SGPR used before lgkmcnt"),
    waits("lds_read_before_lgkmcnt", "v11", "LDS read used before lgkmcnt"),
    waits("buffer_lds_dma_before_vmcnt", "lds", "LDS read before the buffer load to it arrived"),
    waits("global_lds_dma_before_vmcnt", "lds", "LDS read before the global load to it arrived"),
    waits(
        "overwrite_pending_load",
        "v10",
        "destination of a pending load overwritten",
        kind="overwrite_before_wait",
    ),
    waits("smem_out_of_order", "s40", "lgkmcnt(1) with two scalar loads under way"),
    waits("smem_and_lds_share_a_counter", "v11", "lgkmcnt(1) over an LDS and a scalar load"),
    waits("flat_needs_both_counters", "v10", "FLAT load used after vmcnt(0) alone"),
    waits(
        "lds_write_before_barrier",
        "lds",
        "s_barrier while an LDS write is under way",
        kind="lds_race",
        lanes=128,
    ),
    waits(
        "lds_dma_before_barrier",
        "lds",
        "s_barrier while a load to LDS is under way",
        kind="lds_race",
        lanes=128,
    ),
    waits(
        "lds_dma_over_pending_read",
        "lds",
        "load to LDS over what another wave's read may not have",
        kind="lds_race",
        lanes=128,
    ),
    waits(
        "lgkmcnt_saturated",
        "v26",
        "lgkmcnt(15) with 16 reads under way",
        kind="counter_saturated",
    ),
    waits("vmcnt_saturated", "v10", "vmcnt(63) with 64 loads under way", kind="counter_saturated"),
    hazard("mfma_then_valu", "v20", "MFMA result -> VALU"),
    hazard("mfma_then_store", "v20", "MFMA result -> VMEM data"),
    hazard("mfma_then_lds", "v20", "MFMA result -> LDS data"),
    hazard("mfma_then_mfma_operand", "v[20:21]", "MFMA result -> SrcA of MFMA"),
    hazard(
        "mfma_then_overlapping_accumulator", "v[22:23]", "MFMA result -> overlapping SrcC of MFMA"
    ),
    hazard("valu_then_mfma", "v10", "VALU result -> MFMA operand"),
    hazard("valu_overwrites_mfma_accumulator", "v20", "MFMA SrcC -> VALU write"),
    hazard("trans_then_valu", "v11", "transcendental result -> VALU"),
    hazard("valu_sgpr_then_vmem", "s40", "VALU SGPR -> VMEM offset"),
    hazard("valu_sgpr_then_lane_select", "s40", "VALU SGPR -> lane select of v_readlane"),
    hazard("valu_sgpr_then_valu", "s40", "VALU SGPR -> VALU constant"),
    hazard("valu_then_readlane", "v10", "VALU result -> v_readlane"),
    hazard("vcc_then_div_fmas", "vcc", "VALU VCC -> v_div_fmas"),
    hazard("valu_exec_then_dpp", "", "VALU EXEC -> DPP"),
    hazard("valu_then_dpp", "v10", "VALU result -> DPP operand"),
    hazard("sdwa_then_valu", "v10", "SDWA half register -> VALU"),
    hazard("m0_then_lds_dma", "", "SALU M0 -> load to LDS"),
    hazard("setreg_then_getreg", "", "s_setreg -> s_getreg of one register"),
    hazard("wide_store_then_valu", "v12", "data of a wide store -> VALU write"),
    clause("vector_clause", "v10", "address of a load overwritten in its clause"),
    clause("vector_clause_of_itself", "v10", "a load of a clause overwrites its own address"),
    clause("scalar_clause", "s40", "address of a scalar load overwritten in its clause"),
    race("lds_read_after_write", "lds_race", "LDS read without a barrier after the write"),
    race("lds_write_after_read", "lds_race", "LDS write without a barrier after the read"),
    race("lds_write_after_write", "lds_race", "two LDS writes without a barrier"),
    race("global_between_waves", "global_race", "two waves of a workgroup, no barrier"),
    race(
        "global_write_write", "global_race", "two workgroups write the same words", producer="use"
    ),
    race("lds_same_value", "same_value_race", "two waves, one value", severity="counted"),
    race(
        "lds_dma_same_value",
        "same_value_race",
        "two waves load the same words to one place",
        severity="counted",
    ),
    race(
        "lds_dma_same_value_under_way",
        "same_value_race",
        "two waves load the same words to one place, neither of which has arrived",
        severity="counted",
    ),
    race("lds_store_over_dma", "lds_race", "store of another value over a load under way"),
    race("lds_dma_other_value", "lds_race", "two waves load other words to one place"),
    race("waves_same_value", "same_value_race", "two waves, one value", severity="counted"),
    race(
        "workgroups_same_value",
        "same_value_race",
        "two workgroups, one value",
        producer="use",
        severity="counted",
    ),
    race("lds_write_after_atomic", "lds_race", "store of what an atomic left"),
    race("zero_over_late_store", "global_race", "zero over zeros that a late store changes"),
    race("read_without_acquire", "stale_read", "read without buffer_inv after the flag"),
    race("write_without_release", "stale_read", "flag raised without buffer_wbl2"),
    race(
        "stale_flag",
        "stale_read",
        "flag polled from the XCD's own L2",
        place="poll",
        producer="raise",
    ),
    memory("out_of_bounds", "illegal_address", "store behind the allocation", fails=True),
    memory("use_after_free", "use_after_free", "load from freed memory", fails=True),
    memory("range_swallowed", "range_swallowed", "num_records too small", severity="counted"),
    memory("empty_with_soffset", "ambiguous_range", "num_records 0, soffset not", where="soffset"),
    memory("soffset_beyond_the_end", "ambiguous_range", "outside only by soffset", where="soffset"),
    memory("misaligned_format", "misaligned", "formatted load at 2 mod 4"),
    memory("misaligned_atomic", "misaligned", "atomic at 2 mod 4", fails=True),
    memory("uninitialised_vgpr", "uninitialised_store", "VGPR never written", where="v10"),
    memory("uninitialised_lane", "uninitialised_store", "one lane never written", where="v10"),
    memory("uninitialised_sgpr", "uninitialised_store", "SGPR never written"),
    memory("uninitialised_agpr", "uninitialised_store", "AGPR never written"),
    memory("uninitialised_lds", "uninitialised_store", "LDS never written"),
    memory("uninitialised_device_memory", "uninitialised_store", "device memory that nobody wrote"),
    memory("uninitialised_address", "uninitialised_address", "address from a VGPR never written"),
    memory("uninitialised_branch", "uninitialised_branch", "branch on an SGPR never written"),
    memory("unwritten_output", "unwritten_output", "output of one lane is missing", place=None),
    memory("read_only_write", "read_only_write", "write to a const operand"),
    memory("kernarg_overread", "kernarg_overread", "kernarg bytes behind the last argument"),
    control("barrier_mismatch", "barrier_mismatch", "one wave is one barrier short", lanes=128),
    control("no_active_lane", "no_active_lane", "v_readfirstlane with EXEC = 0"),
    control(
        "infinite_loop",
        "runaway",
        "loop without an end",
        place="loop",
        fails=True,
        options={"max_instructions": 200_000},
    ),
    control(
        "spin_wait_deadlock",
        "deadlock",
        "waits for a workgroup that cannot start",
        place="loop",
        fails=True,
        workgroups=2,
        options={"resident_workgroups": 1},
    ),
    control("dirty_semaphore", "dirty_memory", "semaphore left raised", place=None),
    control(
        "scratch_beyond_declaration", "scratch_bounds", "scratch beyond the descriptor", fails=True
    ),
    control(
        "dynamic_lds_beyond_launch",
        "lds_bounds",
        "LDS beyond the launch",
        fails=True,
        dynamic_lds=256,
    ),
    control("jump_outside_text", "outside_kernel", "jump outside the code object", fails=True),
    control("jump_into_data", "outside_kernel", "jump into .rodata", fails=True),
    control("store_into_code", "read_only_write", "store into .text"),
    control("illegal_instruction", "illegal_instruction", "undefined encoding", fails=True),
    control("trap", "trap", "s_trap", fails=True),
    control("debug_trap", "trap", "s_trap of the debugger, which is not there"),
]
# No finding of a single run: the output differs between schedules.
ORDER = [
    Planted("order", "slot_by_arrival", "order", "slot by order of arrival", workgroups=16),
    Planted("order", "float_sum_by_arrival", "order", "float sum by arrival", workgroups=16),
]
SCHEDULES = 8
SOURCES = TESTS / "virtual_device" / "check" / "planted"


@functools.cache
def code_object(group: str, repaired: bool, arch: str = DEFAULT_CPU) -> bytes:
    defines = ("REPAIRED",) if repaired else ()
    source = SOURCES / f"{group}.hip"
    return compile_hip(source, LLVM22, arch, defines=defines).code_object


@functools.cache
def symbols(group: str, repaired: bool, arch: str = DEFAULT_CPU) -> dict[str, int]:
    """ELF virtual addresses of the exported symbols, marked places included."""
    from elftools.elf.elffile import ELFFile

    table = ELFFile(io.BytesIO(code_object(group, repaired, arch))).get_section_by_name(".dynsym")
    return {symbol.name: int(symbol["st_value"]) for symbol in table.iter_symbols()}


def places(planted: Planted, role: str, repaired: bool = False) -> range:
    """Addresses that a finding may name: one, or those of a marked loop."""
    table = symbols(planted.group, repaired, planted.arch)
    if role == "loop":
        return range(table[f"use.{planted.kernel}"], table[f"producer.{planted.kernel}"] + 1)
    at = table[f"{role}.{planted.kernel}"]
    return range(at, at + 1)


@contextmanager
def checked(gpu: Gpu, **options: int) -> Iterator[Any]:
    """Checked mode; gives the library, for findings and declarations."""
    library = open_library(
        amdattn_vdev_take_findings=(c_char_p, []),
        amdattn_vdev_declare=(c_int, [c_char_p, c_uint64, c_uint64, c_char_p]),
    )
    # One worker runs workgroups in order, so that the direction of a race is always the same.
    chosen = {"check": 1, "threads": 1, **options}
    defaults = {"check": 0, "threads": 0, "seed": 0, "max_instructions": 1 << 30}
    defaults["resident_workgroups"] = 0
    try:
        for key, value in chosen.items():
            gpu.option(key, value)
        yield library
    finally:
        for key, value in defaults.items():
            gpu.option(key, value)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one launch gave: HIP's error code, all findings, and `out` if there was no error."""

    error: int
    findings: list[dict[str, Any]]
    out: npt.NDArray[np.uint32] | None


def run(gpu: Gpu, planted: Planted, repaired: bool, **options: int) -> Outcome:
    """Launch a planted kernel, or its twin, in checked mode."""
    rng = np.random.default_rng(len(planted.kernel))
    data = rng.integers(1, 1 << 31, WORDS, dtype=np.uint32)
    zeros, flags = np.zeros(WORDS, np.uint32), np.zeros(FLAGS, np.uint32)
    module = gpu.call("hipModuleLoadData", code_object(planted.group, repaired, planted.arch))
    function = gpu.call("hipModuleGetFunction", module, planted.kernel.encode())
    with checked(gpu, **{**planted.options, **options}) as library:
        source, out = gpu.upload(data), gpu.upload(zeros)
        assert library.amdattn_vdev_declare(b"read_only", source, data.nbytes, b"in") == 1
        spare = int(gpu.call("hipMalloc", zeros.nbytes))
        third = spare
        if planted.kernel in ("spin_wait_deadlock", "dirty_semaphore", "slot_by_arrival") or (
            planted.group == "races"
        ):
            third = gpu.upload(flags)
        if planted.kernel == "dirty_semaphore":
            assert library.amdattn_vdev_declare(b"zero_at_end", third, flags.nbytes, b"flags") == 1
        if planted.kernel == "use_after_free":
            gpu.call("hipFree", spare)
        arguments = [c_uint64(source), c_uint64(out), c_uint64(third)]
        gpu.call(
            "hipModuleLaunchKernel",
            function,
            *(planted.workgroups, 1, 1, planted.lanes, 1, 1),
            *(planted.dynamic_lds, None, None, tuple(arguments)),
        )
        error = gpu.finish()
        if planted.kernel == "unwritten_output":
            gpu.download(spare, zeros[:64])
        result = gpu.download(out, zeros) if error == 0 else None
        found = json.loads(library.amdattn_vdev_take_findings())
        for address in {source, out, third, spare}:
            if planted.kernel != "use_after_free" or address != spare:
                gpu.call("hipFree", address)
    gpu.call("hipModuleUnload", module)
    findings = [*found["host_findings"]]
    for launch in found["launches"]:
        findings += launch["findings"]
    return Outcome(error, findings, result)


def notable(outcome: Outcome, severity: str = "error") -> list[dict[str, Any]]:
    """The findings that count: errors, and for a counted defect the counted ones too."""
    kept = {"error", severity}
    return [f for f in outcome.findings if f["severity"] in kept]


def outputs(gpu: Gpu, planted: Planted, repaired: bool) -> int:
    """How many different outputs the schedules give."""
    found = []
    for seed in range(SCHEDULES):
        outcome = run(gpu, planted, repaired, seed=seed)
        if outcome.error or notable(outcome):
            raise AssertionError(f"{planted.kernel}, seed {seed}: {outcome.findings}")
        found.append(outcome.out)
    return len(np.unique(found, axis=0))
