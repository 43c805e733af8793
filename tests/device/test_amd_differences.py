"""The tables of docs/real-gpu.md about AMD's HIP runtime are those that the tests have.

Whoever changes an answer sees it here, and lists it with

    python -m tests.device.test_amd_differences
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from build_scripts import amd_runtime
from tests.support import amd_differences, amd_tests
from tests.support.paths import ROOT, TESTS

PAGE = ROOT / "docs" / "real-gpu.md"
BEGIN, END = "<!-- differences -->\n", "<!-- end of differences -->\n"
HIP = ROOT / "virtual_device" / "hip"
# Of virtual_device/hip/symbols.txt: those that libamdhip64 7.2.4 does not export.
NOT_IN_7_2 = (Path(__file__).with_name("not_in_amds_7_2.txt")).read_text().split()


def answers(text: str) -> str:
    """Names as code; words as they are."""
    return re.sub(r"hip[A-Z]\w+", r"`\g<0>`", text)


def tables() -> Iterator[str]:
    """Lines of the page: what differs, then what AMD's lacks."""
    yield "| call | AMD's 7.2.4 | the virtual device's own | why |"
    yield "|---|---|---|---|"
    for row in amd_differences.DIFFERENCES:
        yield f"| {row.call} | {answers(row.amd)} | {answers(row.ours)} | {row.why} |"
    refused = set(re.findall(r"UNSUPPORTED\((\w+)\)", (HIP / "unsupported.cc").read_text()))
    works = [name for name in NOT_IN_7_2 if name not in refused]
    others = [name for name in NOT_IN_7_2 if name in refused]
    yield ""
    yield (
        f"Of the {len((HIP / 'symbols.txt').read_text().split())} functions of the virtual "
        f"device's own library, which are those of HIP's newest bindings, AMD's 7.2.4 has not "
        f"{len(NOT_IN_7_2)}. {len(works)} of them work: {listed(works)}. {len(others)} only say "
        f"that they are not supported: {listed(others)}. `dlsym` in AMD's library finds them all "
        "the same: the dynamic linker looks into the virtual device's behind it, too."
    )


def listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def parts() -> tuple[str, str, str]:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    table, _, after = rest.partition(END)
    return before, table, after


def test_the_page_has_them() -> None:
    assert parts()[1].splitlines() == [*tables()]


def test_every_reason_is_of_a_test() -> None:
    for name in amd_tests.ONLY_OURS | amd_tests.ONLY_AMDS:
        file, _, test = name.partition("::")
        text = (TESTS / "virtual_device" / "hip" / file).read_text()
        assert f"def {test}(" in text if test else text, name


@pytest.mark.oracles
@pytest.mark.skipif(
    not amd_runtime.is_whole(amd_runtime.TARGET), reason="AMD's HIP runtime was not brought"
)
def test_what_amds_library_lacks() -> None:
    library = amd_runtime.TARGET / "lib" / amd_runtime.LIBRARY
    script = (
        "import sys; from elftools.elf.elffile import ELFFile\n"
        "for s in ELFFile(open(sys.argv[1], 'rb')).get_section_by_name('.dynsym').iter_symbols():\n"
        "    if s.entry.st_shndx != 'SHN_UNDEF': print(s.name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(library)], capture_output=True, text=True, check=True
    )
    theirs = {name.partition("@")[0] for name in done.stdout.split()}
    ours = set((HIP / "symbols.txt").read_text().split())
    assert sorted(ours - theirs) == sorted(NOT_IN_7_2)


if __name__ == "__main__":
    first, _, last = parts()
    PAGE.write_text(first + BEGIN + "".join(f"{line}\n" for line in tables()) + END + last)
