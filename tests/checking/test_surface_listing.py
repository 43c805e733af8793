"""Source lines of code objects with debug info, and the annotated disassembly."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from amdattn.checking.findings import Finding
from amdattn.checking.listing import annotate
from amdattn.checking.sources import SourceLines
from amdattn.device.virtual_library import Instruction
from build_scripts.toolchain import LLVM22

SOURCE = """\
extern "C" __attribute__((global, amdgpu_flat_work_group_size(64, 64)))
void twice(const int* in, int* out) {
  int lane = __builtin_amdgcn_workitem_id_x();
  out[lane] =
      2 * in[lane];
}
"""


def with_debug_info(folder: Path, *flags: str) -> tuple[Path, bytes]:
    """A source of the folder, and what it compiles to."""
    source, obj, linked = (folder / f"twice.{end}" for end in ("hip", "o", "hsaco"))
    source.write_text(SOURCE)
    zig = str(LLVM22.executable())
    for command in (
        [
            *(zig, "clang", "-x", "hip", "--offload-arch=gfx942", "--cuda-device-only"),
            *("-nogpulib", "-nogpuinc", "-nostdinc", "-O1", *flags),
            *("-mcode-object-version=5", "-S", str(source), "-o", f"{obj}.s"),
        ],
        [
            *(zig, "clang", "-target", "amdgcn-amd-amdhsa", "-mcpu=gfx942"),
            *("-mcode-object-version=5", "-x", "assembler", "-c", f"{obj}.s", "-o", str(obj)),
        ],
        [zig, "ld.lld", "-shared", str(obj), "-o", str(linked)],
    ):
        subprocess.run(command, check=True, capture_output=True)
    return source, linked.read_bytes()


@pytest.mark.parametrize("version", ["-gdwarf-5", "-gdwarf-4"])
def test_lines_are_those_of_the_source(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, image = with_debug_info(tmp_path, "-gline-tables-only", version)
    lines = SourceLines(image)
    assert lines
    monkeypatch.chdir("/")
    import io

    from elftools.elf.elffile import ELFFile

    text = ELFFile(io.BytesIO(image)).get_section_by_name(".text")
    first, last = text["sh_addr"], text["sh_addr"] + text["sh_size"]
    seen = {lines.at(pc) for pc in range(first, last, 4)} - {None}
    assert {Path(file) for file, _ in seen} == {source}
    assert {3, 4, 5} <= {line for _, line in seen} <= {2, 3, 4, 5, 6}
    assert lines.at(first - 4) is None and lines.at(last + 4096) is None and lines.at(None) is None
    monkeypatch.chdir(tmp_path)
    assert lines.text(first).startswith("twice.hip:")


def test_no_debug_info_and_broken_debug_info(tmp_path: Path) -> None:
    assert not SourceLines(None) and not SourceLines(b"no ELF")
    _, bare = with_debug_info(tmp_path)
    assert not SourceLines(bare) and SourceLines(bare).text(0x1600) is None
    _, image = with_debug_info(tmp_path, "-g")
    for at in range(0, len(image), 97):  # whatever it gives, it gives no exception
        SourceLines(image[:at])
        SourceLines(image[:at] + b"\xff" * 8 + image[at + 8 :]).at(0x1600)


INSTRUCTIONS = [
    Instruction(0x1600, "c0020102", "s_load_dword s4, s[2:3], 0x0"),
    Instruction(0x1608, "bf8cc07f", "s_waitcnt lgkmcnt(0)"),
    Instruction(0x160C, "7e000204", "v_mov_b32_e32 v0, s4"),
]


def test_findings_stand_below_their_instructions() -> None:
    race = Finding(
        *("lds_race", "error", "not ordered", "k", 0x160C, 0xC, "v_mov_b32_e32 v0, s4"),
        producer_pc=0x1600,
        producer_text="s_load_dword s4, s[2:3], 0x0",
        where="s4",
        count=3,
    )
    advice = Finding("over_wait", "advice", "lgkmcnt(1) would do", "k", 0x1608, 8, where="lgkmcnt")
    lines = [
        (line.role, line.text) for line in annotate(INSTRUCTIONS, [race, advice], SourceLines(None))
    ]
    assert lines == [
        ("instruction", "    0x1600 +0x0     s_load_dword s4, s[2:3], 0x0"),
        ("producer", "            > producer of lds_race at 0x160c"),
        ("instruction", "    0x1608 +0x8     s_waitcnt lgkmcnt(0)"),
        ("note", "            ^ over_wait: lgkmcnt(1) would do"),
        ("note", "              workgroup (0, 0, 0), wave 0: lgkmcnt"),
        ("instruction", "    0x160c +0xc     v_mov_b32_e32 v0, s4"),
        ("error", "            ^ lds_race (3x): not ordered"),
        ("error", "              workgroup (0, 0, 0), wave 0: s4"),
        ("error", "              producer 0x1600: s_load_dword s4, s[2:3], 0x0"),
    ]


def test_source_lines_are_interleaved(tmp_path: Path) -> None:
    class Sources(SourceLines):
        def __init__(self) -> None:
            super().__init__(None)

        def at(self, pc: int | None) -> tuple[str, int] | None:
            return {0x1600: (str(tmp_path / "a.hip"), 2), 0x1608: (str(tmp_path / "a.hip"), 2)}.get(
                pc or 0
            )

    (tmp_path / "a.hip").write_text("// one\n  x = load(y);\n")
    lines = [line.text for line in annotate(INSTRUCTIONS, [], Sources())]
    assert lines[0] == f"; {tmp_path / 'a.hip'}:2  x = load(y);" and len(lines) == 4
