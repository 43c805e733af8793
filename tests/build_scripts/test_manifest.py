"""The shipped code objects are what the manifest, the C headers and the sources say."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import re
import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from amdattn.arch.architectures import ARCHITECTURES
from amdattn.ops.gemm import grids
from amdattn.ops.gemm.problem import MAX_ALIGNED_STRIDE, by_k
from build_scripts import build, manifest, toolchain, verify
from tests.support.code_objects import code_object, code_objects

ROOT = build.ROOT
ROWS: list[dict[str, Any]] = [*manifest.read_rows(build.HSACO).values()]

REGISTERS = 512  # of a lane that has its SIMD alone
LDS_BYTES = {"gfx942": 64 * 1024, "gfx950": 160 * 1024}  # of a CU

# Of the few files that all kernels share.
layout_of = functools.cache(manifest.struct_layout)


@functools.cache
def hash_of(source: str) -> str:
    return manifest.source_sha256(ROOT / source)


def test_rows_and_files_and_build_table_agree() -> None:
    files = {f"{arch}/{name}" for arch in ARCHITECTURES for name in code_objects(arch)}
    assert files == {row["file"] for row in ROWS} == {k.file for k in build.KERNELS}
    assert {*code_objects("micro")} == {f"amdattn_micro_{arch}.hsaco" for arch in ARCHITECTURES}


def bytes_and_hashes_are_recorded(row: dict[str, Any], _code: manifest.CodeObject) -> None:
    image = code_object(row["file"])
    assert (len(image), manifest.sha256(image)) == (row["bytes"], row["sha256"])
    for name, digest in row["source_sha256"].items():
        assert hash_of(name) == digest, f"{name} changed: rebuild"


def code_object_loads_widely(row: dict[str, Any], code: manifest.CodeObject) -> None:
    assert code.version == row["code_object_version"] == 5
    # A feature suffix (":xnack-", ":sramecc+") would tie the object to one setting of the GPU.
    assert code.target == row["target"] == f"amdgcn-amd-amdhsa--{row['arch']}"
    assert code.kernels == (row["symbol"],)
    # AMD's HIP runtime refuses an image without the one; debuggers and profilers read the other.
    elf = ELFFile(io.BytesIO(code_object(row["file"])))
    assert elf.get_section_by_name(".strtab") and elf.get_section_by_name(".symtab")


def resources_are_recorded_and_within_budget(
    row: dict[str, Any], code: manifest.CodeObject
) -> None:
    resources = code.resources(row["symbol"])
    recorded = {name: row[name] for name in ("vgpr", "agpr", "sgpr", "lds_bytes", "scratch_bytes")}
    assert recorded == {name: getattr(resources, name) for name in recorded}
    assert resources.scratch_bytes == resources.vgpr_spills == resources.sgpr_spills == 0
    assert resources.vgpr <= REGISTERS
    assert resources.lds_bytes <= LDS_BYTES[row["arch"]]
    assert row["workgroup"] == [resources.max_workgroup, 1, 1]


def kernarg_struct_is_the_whole_kernarg_block(
    row: dict[str, Any], code: manifest.CodeObject
) -> None:
    told = row["kernarg"]
    header = ROOT / "asm_src" / "args" / told["header"]
    assert layout_of(header, told["struct"]) == (told["size"], told["fields"])
    args = code.args(row["symbol"])
    assert {arg[".value_kind"] for arg in args} == {"by_value"}
    whole, each = [(0, told["size"])], [(f[1], f[2]) for f in told["fields"]]
    # Arguments of their own can be preloaded into SGPRs.
    assert [(arg[".offset"], arg[".size"]) for arg in args] in (each, whole)
    assert code.resources(row["symbol"]).kernarg_bytes == told["size"]
    ends = [offset + size for _, offset, size, _ in told["fields"]]
    assert [0, *ends[:-1]] == [field[1] for field in told["fields"]], "padding"
    assert ends[-1] == told["size"]


def tiles_and_limits_follow_the_code_object(row: dict[str, Any], code: manifest.CodeObject) -> None:
    q_tile, kv_tile = struct.unpack("<2i", code.data(f"{row['symbol']}_tiles", 8))
    assert list(row["tile"].values()) == [q_tile, kv_tile][: len(row["tile"])]
    if row["op"] == "attn_fwd":  # row + diagonal + window in 32 bits; lanes of a grid in 32 bits
        assert row["accepts"]["max_seqlen_q"] == 2**30
        assert row["accepts"]["max_workgroups"] == (2**32 - 1) // row["workgroup"][0]
    elif row["op"] == "gemm_nt" and row["grid"] == grids.WINDOWS:
        # By k a row of memory has all of m or n, and is not longer than what lies between rows.
        most = [MAX_ALIGNED_STRIDE if one else 2**30 for one in by_k(row["accepts"]["layout"])]
        assert [row["accepts"]["max_m"], row["accepts"]["max_n"]] == most
        assert row["accepts"]["max_workgroups"] == (2**32 - 1) // row["workgroup"][0]
    elif row["op"] == "gemm_nt":  # the last index of a tile in 32 bits
        assert row["accepts"]["max_m"] == ARCHITECTURES[row["arch"]].grid_yz * q_tile
        assert row["accepts"]["max_n"] + kv_tile < 2**31
    elif row["op"] == "attn_merge":
        (tile_rows,) = row["accepts"]["tile_rows"]
        assert tile_rows % q_tile == 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("op", sorted({row["op"] for row in ROWS}))
def test_what_is_recorded_of_kernels(op: str, arch: str) -> None:
    """Of an operation; each code object is read once."""
    wrong = []
    for row in (row for row in ROWS if (row["op"], row["arch"]) == (op, arch)):
        code = manifest.CodeObject(code_object(row["file"]))
        for holds in (
            bytes_and_hashes_are_recorded,
            code_object_loads_widely,
            resources_are_recorded_and_within_budget,
            kernarg_struct_is_the_whole_kernarg_block,
            tiles_and_limits_follow_the_code_object,
        ):
            try:
                holds(row, code)
            except AssertionError as error:
                wrong.append(f"{row['symbol']}: {holds.__name__}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "row", {row["kernarg"]["struct"]: row for row in ROWS}.values(), ids=lambda row: row["op"]
)
def test_kernarg_offsets_are_those_the_kernel_reads(row: dict[str, Any]) -> None:
    """The device compiler lays the struct out as the host parser did (it is asked, not assumed)."""
    told = row["kernarg"]
    lines = [f'#include "isa/device.h"\n#include "args/{told["header"]}"']
    lines += [
        f"static_assert(__builtin_offsetof({told['struct']}, {name}) == {offset}"
        f" && sizeof({told['struct']}::{name}) == {size});"
        for name, offset, size, _ in told["fields"]
    ]
    lines += [f"static_assert(sizeof({told['struct']}) == {told['size']});"]
    compile_text("\n".join(lines))


def code_bytes(row: dict[str, Any]) -> int:
    elf = ELFFile(io.BytesIO(code_object(row["file"])))
    return int(elf.get_section_by_name(".text").data_size)


def test_products_fit_the_instruction_cache() -> None:
    # What is beyond it comes from memory in every launch.
    cache_bytes = 64 * 1024
    sizes = {row["symbol"]: code_bytes(row) for row in ROWS if row["op"] == "gemm_nt"}
    assert sizes and {name: size for name, size in sizes.items() if size > cache_bytes} == {}


def test_raw_assembly_only_in_instruction_wrappers() -> None:
    sources = [*(ROOT / "asm_src").rglob("*.h"), *(ROOT / "asm_src").rglob("*.hip")]
    outside = [path for path in sources if path.parent.name != "isa"]
    assert outside
    for path in outside:
        assert not re.search(r"\basm\b", path.read_text()), path


def test_compiler_errors_are_shown() -> None:
    with pytest.raises(toolchain.ToolchainError, match="undeclared identifier 'nowhere'"):
        compile_text("int f() { return nowhere; }")


def test_warnings_are_errors() -> None:
    with pytest.raises(toolchain.ToolchainError, match="unused"):
        compile_text("static int unused() { return 1; }")


def test_verify_reports_each_kind_of_difference(tmp_path: Path) -> None:
    shipped, rebuilt = tmp_path / "shipped", tmp_path / "rebuilt"
    for folder in (shipped, rebuilt):
        shutil.copytree(build.HSACO, folder)
    assert verify.differences(shipped, rebuilt) == []
    file = ROWS[0]["file"]
    image = bytearray(code_object(file))
    image[0x123] ^= 1
    (rebuilt / file).write_bytes(image)
    (rebuilt / "manifest.json").write_text('{"schema": 2}\n')
    (shipped / "gfx942" / "old.hsaco").write_bytes(b"")
    (rebuilt / "gfx942" / "new.hsaco").write_bytes(b"")
    texts = "\n".join(verify.differences(shipped, rebuilt))
    assert f"{file}: {len(image)} bytes shipped" in texts
    assert "1 of the common bytes differ, the first at 0x123" in texts
    assert '+{"schema": 2}' in texts
    assert "old.hsaco: shipped, but no kernel" in texts
    assert "new.hsaco: built, but not shipped" in texts


def test_verify_of_a_share_reports_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = manifest.read_rows(build.HSACO)
    edits: dict[str, Any] = {}

    def rebuilt(kernel: build.KernelBuild) -> build.Built:
        image = code_object(kernel.file) + edits.get("image", b"")
        return build.Built(kernel, image, {**rows[kernel.symbol], **edits.get("row", {})})

    monkeypatch.setattr(verify, "build", rebuilt)
    count, found = verify.differences_of_share(build.HSACO, 100)
    assert len(ROWS) // 100 <= count <= len(ROWS) // 100 + 1 and found == []
    edits |= {"image": b"x", "row": {"vgpr": 1}}
    texts = verify.differences_of_share(build.HSACO, 100)[1]
    assert len(texts) == 2 * count
    assert sum("vgpr=" in text for text in texts) == sum("0 of the common" in t for t in texts)


@pytest.mark.slow
def test_rebuild_is_byte_identical(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["verify"])
    assert verify.main() == 0


@pytest.mark.slow
@pytest.mark.parametrize("kernel", build.KERNELS, ids=lambda kernel: kernel.symbol)
def test_no_other_toolchain_does_better(kernel: build.KernelBuild) -> None:
    def spills(chosen: toolchain.Toolchain) -> tuple[int, int, int]:
        source = toolchain.ASM_SRC / kernel.source
        compiled = toolchain.compile_hip(
            source, chosen, kernel.arch, kernel.all_defines, kernel.flags
        )
        found = manifest.CodeObject(compiled.code_object).resources(kernel.symbol)
        return (found.scratch_bytes, found.vgpr_spills, found.sgpr_spills)

    ours = spills(kernel.toolchain)
    for other in toolchain.TOOLCHAINS:
        # LLVM 21 makes code of some that its own assembler refuses.
        with contextlib.suppress(toolchain.ToolchainError):
            assert ours <= spills(other)


@pytest.mark.slow
def test_output_does_not_depend_on_the_checkout_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "some where" / "asm_src"
    shutil.copytree(ROOT / "asm_src", copy)
    monkeypatch.setattr(toolchain, "ASM_SRC", copy)
    one_of_each = {(kernel.source, kernel.arch): kernel for kernel in build.KERNELS}
    for kernel in one_of_each.values():
        compiled = toolchain.compile_hip(
            copy / kernel.source, kernel.toolchain, kernel.arch, kernel.all_defines, kernel.flags
        )
        assert compiled.code_object == code_object(kernel.file)
        assert copy / "isa" / "device.h" in compiled.sources


def compile_text(text: str) -> None:
    """Compile a HIP source given as text."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "text.hip"
        source.write_text(text + "\n")
        toolchain.compile_hip(source, toolchain.LLVM22)


def test_a_struct_and_a_source_stand_once_in_the_manifest(tmp_path: Path) -> None:
    rows = [dict(row) for row in ROWS]
    text = manifest.render(rows)
    document = json.loads(text)
    assert set(document["kernargs"]) == {row["kernarg"]["struct"] for row in rows}
    sources = [tuple(source) for source in document["sources"]]
    assert set(sources) == {item for row in rows for item in row["source_sha256"].items()}
    assert len(sources) == len(set(sources))
    (tmp_path / "manifest.json").write_text(text)
    read = [*manifest.read_rows(tmp_path).values()]
    assert read == rows and manifest.render(read) == text
    rows[1] = {**rows[1], "kernarg": {**rows[1]["kernarg"], "size": 8}}
    wrong = f"{rows[1]['name']} has another {rows[1]['kernarg']['struct']} than"
    with pytest.raises(manifest.CodeObjectError, match=wrong):
        manifest.render(rows)


@pytest.mark.parametrize(
    ("text", "is_same"),
    [
        ("// Another word.\n#define A 1\n\n\nint f() { return A; }  // why\n", True),
        ('#define A 1\nint f() {/* " */return A; }\n', True),
        ("#define A 2\nint f() { return A; }\n", False),
        ('#define A "//1"\nint f() { return A; }\n', False),
        ("#define A 1\nint f() {return A; }\n", False),
    ],
)
def test_comments_of_a_source_do_not_count(tmp_path: Path, text: str, is_same: bool) -> None:
    plain, other = tmp_path / "plain.h", tmp_path / "other.h"
    plain.write_text("#define A 1\nint f() { return A; }\n")
    other.write_text(text)
    same = manifest.source_sha256(plain) == manifest.source_sha256(other)
    assert same == is_same


def test_what_looks_like_a_comment_in_quotes_counts(tmp_path: Path) -> None:
    one, two = tmp_path / "one.h", tmp_path / "two.h"
    one.write_text('const char* a = "\\"//1";\n')
    two.write_text('const char* a = "\\"//2";\n')
    assert manifest.source_sha256(one) != manifest.source_sha256(two)
