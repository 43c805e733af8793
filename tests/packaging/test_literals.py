"""`.ci/literals`: what is known of a chip stands in the architecture tables."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.paths import ROOT

# Planted in a Python source: the line, and what is found there.
PYTHON = [
    ('ARCH = "gfx942"', "gfx942"),
    ('target = f"amdgcn--{kind}-gfx950"', "gfx950"),
    ('raise ValueError(f"{x} needs an MI325X")', "MI325X"),
    ("from chips import mi300a as chip", "mi300a"),
    ("class OnMi355x: ...", "Mi355x"),
    ("waves = 4 * 304", "304"),
    ("grid = min(n, 1216)", "1216"),
    ("fits = nbytes <= 65536", "65536"),
    ("fits = nbytes <= 64 * 1024", "64 * 1024"),
    ("fits = nbytes <= 64 << 10", "64 << 10"),
    ("fits = nbytes <= 2**16", "2**16"),
    ("fits = nbytes <= 0x10000", "0x10000"),
    ("LDS = 160 * 1024", "160 * 1024"),
    ("memory = 192 * 2**30", "192 * 2**30"),
    ("chip_id = 0x74A1", "0x74A1"),
    ("NUM_CUS, NUM_XCDS = 80, 4", "NUM_XCDS: 4"),
    ("plan(num_xcds=8)", "num_xcds: 8"),
    ("def plan(n, cus=80): ...", "cus: 80"),
    ("def plan(*, num_xcds=6): ...", "num_xcds: 6"),
    ("if props.num_xcds == 8: ...", "num_xcds: 8"),
    ("if 4 <= num_cus: ...", "num_cus: 4"),
    ("rest = num_xcds % 8", "num_xcds: 8"),
    ('facts = {"num_cus": 80}', "num_cus: 80"),
    ("peak_clock_ghz: float = 2.1", "peak_clock_ghz: 2.1"),
    ("dtype = ml_dtypes.float8_e5m2fnuz", "fnuz"),
    ('text = ".amdhsa_group_segment_fixed_size 65536"', "65536"),
    ('text = """\nline\ngfx942\n"""', "gfx942"),
]
CPP = [
    ('const char* arch = "gfx942";', "gfx942"),
    ('const char* text = R"(// gfx950 ")";', "gfx950"),
    ("extern const Arch kMi300x;", "Mi300x"),
    ("constexpr int kWide = 3'04;", "3'04"),
    ("constexpr int kWaves = 304 * 4;", "304"),
    ("if (bytes > 65536u) return;", "65536u"),
    ("if (bytes > u64{64} * 1024) return;", "64 * 1024"),
    ("if (bytes > (64u) << 10) return;", "64u << 10"),
    ("constexpr u32 kBytes = 160 * 1024;", "160 * 1024"),
    ("constexpr int kOne = 1, kXcds = 8;", "kXcds: 8"),
    ("u32 num_xcds{6};", "num_xcds: 6"),
    ("#define NUM_CUS 80", "NUM_CUS: 80"),
    ("if (8 == num_xcds) return;", "num_xcds: 8"),
    ("constexpr u16 kId = 0x74a2;", "0x74a2"),
    ("u32 lds_bytes = 16384;", "lds_bytes: 16384"),
    ("using Format = Fp8Fnuz;", "Fnuz"),
    ("if (kind == Kind::kOcp) return;", "Ocp"),
    ('print("exceeds 2147483647x65536x65536");', "2147483647x65536x65536"),
]
INNOCENT = [
    ("amdattn/a.py", '"""For gfx942, 304 CUs."""\n'),
    ("amdattn/a.py", "def f():\n    '''Of an MI300X.'''\n    return 1  # gfx942 has 304\n"),
    ("amdattn/a.py", 'X = 1\n"""Documents X: 65536 on gfx942."""\n'),
    ("amdattn/a.py", "opcode = 0x26\nnum_xcds = 1\nmask = 0xFFFF\nother = num_xcds\n"),
    ("amdattn/a.py", 'text = "s[38:39], profile, malloc pitch"\n'),
    ("virtual_device/a.cc", "// gfx942\n/* MI300X\n 304 */ int a = 0x130, b = 0xffff;\n"),
    ("virtual_device/a.cc", "hipMallocPitch(num_xcds, cus / 2, kLdsBytes / 16);\n"),
    ("amdattn/arch/a.py", 'NAME, CUS = "MI300X", 304\n'),
    ("virtual_device/arch/a.cc", 'const char* kName = "MI300X"; int num_cus = 304;\n'),
    ("docs/a.py", "num_cus = 304\n"),
]


@pytest.fixture(scope="module")
def literals() -> ModuleType:
    loader = SourceFileLoader("ci_literals", str(ROOT / ".ci" / "literals"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module  # where dataclasses look for it
    loader.exec_module(module)
    return module


def plant(root: Path, name: str, text: str, allow: str = "") -> None:
    for path, content in ((name, text), (".ci/literals.allow", allow)):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)


def run(literals: ModuleType, root: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["literals", str(root)])
    return literals.main()


@pytest.mark.slow  # `.ci/run` runs the script itself
def test_the_tree_has_none_that_is_not_allowed(literals, monkeypatch, capsys) -> None:
    assert run(literals, ROOT, monkeypatch) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "line", "literal"),
    [*(("build_scripts/a.py", *row) for row in PYTHON), *(("asm_src/a.hip", *row) for row in CPP)],
)
def test_a_planted_literal_is_found(literals, tmp_path, name, line, literal) -> None:
    plant(tmp_path, name, f"\n{line}\n")
    found = literals.findings(tmp_path)
    assert literal in {finding.literal for finding in found}
    assert all(finding.line >= 2 for finding in found)


@pytest.mark.parametrize(("name", "text"), INNOCENT)
def test_comments_docstrings_and_tables_may_name_chips(literals, tmp_path, name, text) -> None:
    plant(tmp_path, name, text)
    assert literals.findings(tmp_path) == []


def test_what_is_planted_fails_the_run_and_an_entry_allows_it(
    literals, tmp_path, monkeypatch, capsys
) -> None:
    plant(tmp_path, "virtual_device/a.h", 'int x;\nauto a = "gfx942";\n')
    assert run(literals, tmp_path, monkeypatch) == 1
    assert "virtual_device/a.h:2: architecture 'gfx942'" in capsys.readouterr().out
    plant(tmp_path, "virtual_device/a.h", 'auto a = "gfx942";\n', 'virtual_device/a.h | "gfx | x\n')
    assert run(literals, tmp_path, monkeypatch) == 0
    # The entry is of that line, not of the file.
    (tmp_path / "virtual_device" / "a.h").write_text('auto a = "gfx942";\nint b = 304;\n')
    capsys.readouterr()
    assert run(literals, tmp_path, monkeypatch) == 1
    assert "304" in capsys.readouterr().out


def test_an_entry_that_covers_nothing_fails_the_run(
    literals, tmp_path, monkeypatch, capsys
) -> None:
    plant(tmp_path, "amdattn/a.py", "x = 1\n", "# why\n\namdattn/a.py | gfx942 | a reason\n")
    assert run(literals, tmp_path, monkeypatch) == 1
    assert "amdattn/a.py | gfx942: matches nothing" in capsys.readouterr().out


@pytest.mark.parametrize(
    "allow",
    ["amdattn/a.py | gfx942\n", "amdattn/a.py | gfx942 |  \n", "a | b | c\na | b | other\n"],
)
def test_an_entry_without_a_reason_is_refused(
    literals, tmp_path, monkeypatch, capsys, allow
) -> None:
    plant(tmp_path, "amdattn/a.py", 'x = "gfx942"\n', allow)
    assert run(literals, tmp_path, monkeypatch) == 2
    assert ".ci/literals.allow:" in capsys.readouterr().err
