"""Random encodings of every row: what is accepted, LLVM's assembler must write bit by bit.

Of gfx950, rows that gfx942 has too are sampled; the slow tier has them all.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterator

import numpy as np
import pytest

from tests.support.isa.aliases import canonical, has_no_text
from tests.support.isa.assembler import assemble
from tests.support.isa.disassembler import FORMATS, Disassembler, Row
from tests.support.isa.random_words import WordGenerator

DRAWS = 300
ROUNDS = 20  # of so many draws per row and form, until KEPT are accepted
KEPT = 40
LEAST = 10  # accepted, or the row counts as never tested


def check(disassembler: Disassembler, rows: Collection[Row], seed: int) -> None:
    generator = WordGenerator(seed)
    texts: dict[str, bytes] = {}
    accepted: collections.Counter[str] = collections.Counter()
    for row in rows:
        for form in generator.forms(row):
            kept = 0
            for _ in range(ROUNDS):
                if kept >= KEPT:
                    break
                windows = generator.windows(row, form, DRAWS)
                for window, decoded in zip(windows, disassembler.decode(windows), strict=True):
                    if decoded.size == 0 or kept >= KEPT:
                        continue
                    name = decoded.text.split(" ", 1)[0]
                    assert name in {row.name, f"{row.name}_{form}"}, decoded.text
                    kept += 1
                    if not has_no_text(decoded.text, decoded.size):
                        encoding = window[: decoded.size].astype("<u4").tobytes()
                        texts[decoded.text] = canonical(encoding, decoded.text)
            accepted[row.name] += kept
    untested = [row.name for row in rows if accepted[row.name] < LEAST]
    assert not untested, f"rows that hardly any encoding reaches: {untested}"

    encodings = assemble(list(texts), disassembler.cpu)
    wrong = [
        (text, np.frombuffer(ours, np.uint8).tobytes().hex(" ", 4), llvm.hex(" ", 4))
        for (text, ours), llvm in zip(texts.items(), encodings, strict=True)
        if ours != llvm
    ]
    assert not wrong, (
        f"{len(wrong)} of {len(texts)}: text, decoded bytes, assembled bytes {wrong[:10]}"
    )


def of_format(rows: Collection[Row]) -> Iterator[tuple[int, list[Row]]]:
    """By format; without f8f6f4, of which few random encodings are any: see test_mfma_gfx950."""
    for number, name in enumerate(FORMATS):
        here = (row for row in rows if row.format == name)
        if found := [row for row in here if "f8f6f4" not in row.name]:
            yield number, found


@pytest.mark.parametrize("format_name", FORMATS)
def test_text_assembles_to_the_same_bytes(disassembler: Disassembler, format_name: str) -> None:
    rows = [row for row in disassembler.rows() if row.format == format_name]
    assert rows
    check(disassembler, rows, FORMATS.index(format_name))


@pytest.mark.parametrize("chunk", range(4))
def test_rows_that_are_new_on_gfx950(
    disassembler: Disassembler, disassembler950: Disassembler, chunk: int
) -> None:
    old = set(disassembler.rows())
    rows = [row for row in disassembler950.rows() if row not in old]
    for number, found in of_format(rows[chunk::4]):
        check(disassembler950, found, 100 + number)


def test_some_shared_rows_on_gfx950(disassembler950: Disassembler) -> None:
    for number, found in of_format(disassembler950.rows()[::40]):
        check(disassembler950, found, 200 + number)


@pytest.mark.slow
@pytest.mark.parametrize("format_name", FORMATS)
def test_all_rows_of_gfx950(disassembler950: Disassembler, format_name: str) -> None:
    rows = [row for row in disassembler950.rows() if row.format == format_name]
    for number, found in of_format(rows):
        check(disassembler950, found, 300 + number)


MEMORY_TEXTS = {
    "flat": "flat_load_dword v1, v[2:3] offset:16",
    "global": "global_load_dword v1, v2, s[4:5] offset:16",
    "scratch": "scratch_load_dword v1, v2, off offset:16",
    "buffer": "buffer_load_dword v1, v2, s[4:7], s8 offen offset:16",
    "tbuffer": "tbuffer_load_format_x v1, v2, s[4:7], s8 format:[BUF_DATA_FORMAT_32] offen",
}


@pytest.mark.parametrize("kind", MEMORY_TEXTS)
def test_cache_policies_are_read(disassembler: Disassembler, kind: str) -> None:
    """LLVM's bytes for every set of bits: of random bytes, what is refused is drawn no more."""
    sets = [[b for i, b in enumerate(("sc0", "nt", "sc1")) if n >> i & 1] for n in range(8)]
    encodings = assemble([" ".join([MEMORY_TEXTS[kind], *bits]) for bits in sets])
    words = np.stack([np.frombuffer(code, np.uint32) for code in encodings])
    decoded = disassembler.decode(words)
    assert [d.size for d in decoded] == [2] * 8
    for d, bits in zip(decoded, sets, strict=True):
        assert [word for word in d.text.split() if word in ("sc0", "nt", "sc1")] == bits
    assert assemble([d.text for d in decoded]) == encodings
