"""What the build refuses to ship: each guard with an object that violates it alone."""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest

import amdattn
from amdattn.arch.architectures import ARCHITECTURES
from amdattn.device import manifest as runtime_manifest
from amdattn.ops.attention.select import GATHER_GRID, WORK_GRID
from build_scripts import build, manifest, toolchain
from tests.support.code_objects import code_object

GATHER = next(kernel for kernel in build.KERNELS if kernel.name == "gather_rows")
NAMES_ACC = next(kernel for kernel in build.KERNELS if kernel.names_acc)
ROWS = {row.symbol: row for row in runtime_manifest.kernels()}
TAKES_HIDDEN = """
extern "C" __global__ void takes_hidden(int* out) {
  const auto* hidden = (const int*)__builtin_amdgcn_implicitarg_ptr();
  *out = hidden[0];
}
"""


def shipped(kernel: build.KernelBuild) -> bytes:
    return code_object(kernel.file)


def descriptor_offset(image: bytes, kernel: build.KernelBuild) -> int:
    """Of the kernel descriptor in the file."""
    code = manifest.CodeObject(image)
    found = code.data(f"{kernel.symbol}.kd", 64)
    assert image.count(found) == 1
    return image.index(found)


def patched(image: bytes, at: int, layout: str, value: int) -> bytes:
    changed = bytearray(image)
    struct.pack_into(layout, changed, at, value)
    return bytes(changed)


# -- descriptor and metadata -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "change"), [(0, 512), (0, -512), (4, 16), (8, 8), (8, -8)], ids=str
)
def test_sizes_of_the_descriptor(offset: int, change: int) -> None:
    """LDS, scratch, kernarg: the descriptor is what the hardware gets."""
    kernel = next(k for k in build.KERNELS if ROWS[k.symbol].lds_bytes)
    image = shipped(kernel)
    at = descriptor_offset(image, kernel) + offset
    (value,) = struct.unpack_from("<I", image, at)
    changed = manifest.CodeObject(patched(image, at, "<I", value + change))
    with pytest.raises(manifest.CodeObjectError, match="descriptor has"):
        changed.resources(kernel.symbol)


# The first of those with as many VGPRs and AGPRs; that the guard passes all, says test_manifest.py.
_OTHERS = {
    (row.arch, row.vgpr, row.agpr): row.symbol for row in reversed(runtime_manifest.kernels())
}
_FIRST = set(_OTHERS.values())


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(kernel, marks=() if kernel.symbol in _FIRST else pytest.mark.slow)
        for kernel in build.KERNELS
    ],
    ids=lambda kernel: kernel.symbol,
)
def test_registers_of_the_descriptor(kernel: build.KernelBuild) -> None:
    """As many VGPRs as are used, in eights, are enough; eight fewer are not; more are."""
    image = shipped(kernel)
    at = descriptor_offset(image, kernel) + 48
    (rsrc1,) = struct.unpack_from("<I", image, at)
    used = manifest.CodeObject(image).resources(kernel.symbol).vgpr
    enough = -(-used // 8) - 1
    for granules in {enough, rsrc1 & 63, 63}:
        fine = patched(image, at, "<I", rsrc1 & ~63 | granules)
        assert manifest.CodeObject(fine).resources(kernel.symbol).vgpr == used
    if enough:
        fewer = patched(image, at, "<I", rsrc1 & ~63 | enough - 1)
        with pytest.raises(manifest.CodeObjectError, match=f"and {enough * 8} VGPRs"):
            manifest.CodeObject(fewer).resources(kernel.symbol)


# -- arguments -------------------------------------------------------------------------------------


def header_of(kernel: build.KernelBuild) -> Path:
    return build.ASM_SRC / "args" / kernel.header


def test_hidden_arguments_are_refused(tmp_path: Path) -> None:
    """The compiler appends them by itself, to a kernel that asks for its grid."""
    source = tmp_path / "takes_hidden.hip"
    source.write_text('#include "isa/device.h"\n' + TAKES_HIDDEN)
    code = manifest.CodeObject(toolchain.compile_hip(source, toolchain.LLVM22).code_object)
    kinds = {arg[".value_kind"] for arg in code.args("takes_hidden")}
    assert any(kind.startswith("hidden_") for kind in kinds)
    header = tmp_path / "one.h"
    header.write_text("struct One { unsigned long long out; };\n")
    with pytest.raises(manifest.CodeObjectError, match=r"of kinds .*hidden_"):
        manifest.kernarg(code, "takes_hidden", header, "struct One")


def changed_args(kernel: build.KernelBuild, args: list[dict[str, Any]]) -> manifest.CodeObject:
    code = manifest.CodeObject(shipped(kernel))
    for row in code._metadata["amdhsa.kernels"]:
        row[".args"] = args
    return code


def test_arguments_that_are_not_the_structs() -> None:
    told = manifest.CodeObject(shipped(GATHER)).args(GATHER.symbol)
    size = ROWS[GATHER.symbol].kernarg.size
    hidden = {".offset": 0, ".size": size, ".value_kind": "hidden_block_count_x"}
    behind = {".offset": size, ".size": 4, ".value_kind": "hidden_block_count_x"}
    for wrong in (
        [],
        [hidden],
        [*told, behind],
        [{**told[0], ".size": told[0][".size"] - 8}, *told[1:]],
        [{**told[0], ".offset": 8}, *told[1:]],
        [{**told[0], ".value_kind": "global_buffer"}, *told[1:]],
    ):
        with pytest.raises(manifest.CodeObjectError, match="the code object takes"):
            manifest.kernarg(
                changed_args(GATHER, wrong), GATHER.symbol, header_of(GATHER), GATHER.struct
            )
    assert manifest.kernarg(
        changed_args(GATHER, told), GATHER.symbol, header_of(GATHER), GATHER.struct
    )


# -- spills and registers --------------------------------------------------------------------------


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets `build` meet a compiler's result: the shipped object with other facts or assembly."""

    of = manifest.CodeObject.resources

    def install(kernel: build.KernelBuild, assembly: str = "", **facts: int) -> None:
        made = toolchain.Compiled(shipped(kernel), assembly, (build.ASM_SRC / kernel.source,))
        monkeypatch.setattr(build, "compile_hip", lambda *_: made)
        monkeypatch.setattr(
            manifest.CodeObject,
            "resources",
            lambda code, symbol: dataclasses.replace(of(code, symbol), **facts),
        )

    return install


@pytest.mark.parametrize("spill", ["scratch_bytes", "vgpr_spills", "sgpr_spills"])
def test_a_spill_of_any_kind_is_refused(spill: str, compiled: Any) -> None:
    compiled(GATHER, **{spill: 1})
    with pytest.raises(manifest.CodeObjectError, match=rf"spills: .*{spill}=1[,)]"):
        build.build(GATHER)
    compiled(GATHER)
    assert build.build(GATHER).row["name"] == GATHER.name


@pytest.mark.parametrize("use", ["v_accvgpr_write_b32 a17, v3", "ds_read_b128 a[4:7], v2"])
def test_a_compiler_that_takes_named_registers_is_refused(use: str, compiled: Any) -> None:
    own = ";;#ASMSTART\nv_accvgpr_write_b32 a0, v1\n;;#ASMEND\n"
    compiled(NAMES_ACC, own + f"\t{use} ; spilled\n")
    with pytest.raises(manifest.CodeObjectError, match="the compiler uses AGPRs"):
        build.build(NAMES_ACC)
    compiled(NAMES_ACC, own + "\tv_mov_b32 v3, v4 ; a17\n")
    assert build.build(NAMES_ACC).row["name"] == NAMES_ACC.name


def test_metadata_of_spills_is_read() -> None:
    """From the note of the object itself."""
    code = manifest.CodeObject(shipped(GATHER))
    for field, key in (("vgpr_spills", ".vgpr_spill_count"), ("sgpr_spills", ".sgpr_spill_count")):
        for row in code._metadata["amdhsa.kernels"]:
            row[key] = 7
        assert getattr(code.resources(GATHER.symbol), field) == 7
    assert msgspec.json.encode(code.kernels)


# -- limits of the grids ---------------------------------------------------------------------------

LANES = 2**32 - 1
GRID_YZ = ARCHITECTURES["gfx942"].grid_yz
LIMITS = {
    GATHER_GRID: {
        "max_batch": GRID_YZ,
        "max_num_heads_kv": GRID_YZ,
        "max_workgroups_x": LANES // 256,
    },
    WORK_GRID: {
        "max_batch": 2**31 - 1,
        "max_seqlen_q": 2**30,
        "max_seqlen_kv": 2**30,
        "max_num_heads_q": 2**31 - 1,
    },
}


def test_limits_of_every_grid() -> None:
    kernels = {kernel.symbol: kernel for kernel in build.KERNELS}
    for symbol, row in ROWS.items():
        expected = dict(LIMITS.get(row.grid, {}))
        if row.grid != GATHER_GRID and row.op != "gemm_nt":
            expected["max_workgroups"] = LANES // row.workgroup[0]
        assert {name: row.accepts[name] for name in expected} == expected, symbol
        assert expected or row.op == "gemm_nt", symbol
        made = kernels[symbol].limits(row.workgroup[0])
        assert {name: row.accepts[name] for name in made} == made, symbol
        assert made.keys() >= expected.keys(), symbol


SIZES = {"batch": 1, "seqlen_kv": 40, "num_heads_kv": 1}


@pytest.mark.parametrize(
    ("name", "most", "head_dim"),
    [
        ("batch", GRID_YZ, 128),
        ("num_heads_kv", GRID_YZ, 128),
        # 8, 16 and 32 lanes copy a row of 64, 128 and 256 elements.
        ("seqlen_kv", LANES // 256 * 32, 64),
        ("seqlen_kv", LANES // 256 * 16, 128),
        ("seqlen_kv", LANES // 256 * 8, 256),
    ],
)
def test_limits_of_the_gather_kernel(name: str, most: int, head_dim: int) -> None:
    def plan(value: int, gather: str) -> Any:
        sizes = {**SIZES, name: value}
        heads = sizes["num_heads_kv"]
        arguments = (sizes["batch"], 1, sizes["seqlen_kv"], heads, heads, head_dim)
        support = amdattn.supports(*arguments, gather=gather, device="MI300X")
        assert bool(support) == (value <= most or not gather)
        return amdattn.plan_attention(*arguments, gather=gather, device="MI300X")

    launch = plan(most, "v").launches[0]
    lanes_of_row = head_dim // 8
    rows = {"seqlen_kv": most}.get(name, 40)
    assert launch.grid[0] == -(-rows // (256 // lanes_of_row)) <= LANES // 256
    with pytest.raises(amdattn.UnsupportedProblem, match=rf"{name}={most + 1} with .*1\.\.{most}"):
        plan(most + 1, "v")
    plan(most + 1, "")
