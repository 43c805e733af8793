"""The micro kernels that are shipped: what they are, that they are clean, and what is modelled."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amdattn import virtual
from amdattn.arch.architectures import ARCHITECTURES
from amdattn.bench import micro, micro_launch, micro_rows, micro_table as table
from amdattn.bench.micro_launch import Micro
from amdattn.bench.micro_rows import Clk, Clock, Latency, Region, Row, Stream
from amdattn.device import runtime
from amdattn.errors import CorruptKernel, ManifestError, UnsupportedDeviceError
from benchmarks.performance_model import figures, micro as model_micro
from benchmarks.performance_model.micro_kernel import clk_per
from build_scripts import micro_object
from build_scripts.build import HSACO
from build_scripts.manifest import CodeObject

FOLDER = HSACO / micro_object.FOLDER
MANIFESTS: dict[str, dict[str, Any]] = {
    arch: json.loads((FOLDER / f"{arch}.json").read_text()) for arch in ARCHITECTURES
}
# The others are held by the slow tests.
CHEAP: list[Row] = [
    *(*table.ALONE, *table.LDS, *table.LATENCIES),
    *(row for row in table.BESIDE if row.name.endswith(("_x4", "_x7"))),
]
SLOW = [*table.BESIDE, *table.OTHER_WAVE, *table.REGIONS, *table.STREAMS]


@pytest.fixture(scope="module")
def modelled() -> dict[str, micro.Figure]:
    return {figure.row.name: figure for figure in micro.figures(CHEAP)}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_object_is_what_the_table_says(arch: str) -> None:
    """Without an assembler: the text that the table gives is the text that was assembled."""
    text, manifest = micro_object.assembly(arch), MANIFESTS[arch]
    assert hashlib.sha256(text.encode()).hexdigest() == manifest["assembly_sha256"], "rebuild"
    code = CodeObject((FOLDER / manifest["file"]).read_bytes())
    assert code.version == manifest["code_object_version"] == 5
    assert code.target == f"amdgcn-amd-amdhsa--{arch}"
    assert set(code.kernels) == set(manifest["kernels"])
    size = micro_launch._ARGUMENTS.size
    for name in code.kernels:
        resources = code.resources(name)
        assert resources.kernarg_bytes == size and resources.scratch_bytes == 0
        offsets = [(arg[".offset"], arg[".size"]) for arg in code.args(name)]
        assert offsets == [
            *((0, 4), (4, 4), (8, 8), (16, 8)),
            *((24, 4), (28, 4), (32, 4), (36, 4)),
        ]


def test_assembling_gives_the_same_bytes(tmp_path: Path) -> None:
    micro_object.write(tmp_path)
    rebuilt = tmp_path / micro_object.FOLDER
    names = sorted(path.name for path in FOLDER.iterdir())
    assert sorted(path.name for path in rebuilt.iterdir()) == names
    for name in names:
        assert (rebuilt / name).read_bytes() == (FOLDER / name).read_bytes()


def test_another_object_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(FOLDER, tmp_path / "micro")
    monkeypatch.setenv("AMDATTN_KERNEL_DIR", str(tmp_path))
    arch = micro_rows.ARCH
    file = tmp_path / "micro" / MANIFESTS[arch]["file"]
    changed = bytearray(file.read_bytes())
    changed[0x2000] ^= 1
    file.write_bytes(changed)
    with pytest.raises(CorruptKernel, match="recorded sha256"):
        micro_launch.image.__wrapped__(arch)
    (tmp_path / "micro" / f"{arch}.json").write_text('{"schema": 2}')
    with pytest.raises(ManifestError, match="does not hold the micro kernels"):
        micro_launch.image.__wrapped__(arch)
    with pytest.raises(UnsupportedDeviceError, match="for gfx942 and gfx950, the device is gfx90a"):
        micro_launch.image("gfx90a")


def test_names_are_unique_and_rows_say_what_they_settle() -> None:
    assert len({row.name for row in table.ROWS}) == len(table.ROWS)
    assert all(row.settles for row in table.ROWS)
    assert [row.name for row in micro.rows("lds_read_b32, nop")] == ["nop", "lds_read_b32"]
    with pytest.raises(ValueError, match="'cache' must be part of one of"):
        micro.rows("cache")


@pytest.mark.parametrize("row", CHEAP, ids=lambda row: row.name)
def test_the_first_reading_is_the_model_s(modelled: dict[str, micro.Figure], row: Row) -> None:
    figure = modelled[row.name]
    assert figure.origin == "modelled" and figure.as_dict()["fits"] == ""
    hold(figure)


def hold(figure: micro.Figure) -> None:
    """The value is within what the row says first."""
    for reading in figure.row.readings[:1]:
        low, high = reading.value, reading.high or reading.value
        assert 0.995 * low <= figure.value <= 1.005 * high, figure


def test_the_other_reading_of_transcendentals_is_the_model_s_other_one() -> None:
    for figure in micro.figures(micro.rows("beside_exp_f32_x4"), "trans-exclusive"):
        (_, other) = figure.row.readings
        assert other.of == "exclusive" and figure.value == other.value


@pytest.mark.parametrize(
    "name", ["exp_f32", "branch", "chain_lds_b128", "lds_read_b128", "beside_dot2_f32_f16_x4"]
)
def test_same_kernels_as_in_the_document(modelled: dict[str, micro.Figure], name: str) -> None:
    """What docs/studies/performance-model.md has is made by `clk_per` from the same text."""
    (row,) = (row for row in table.CLK if row.name == name)
    clk = clk_per(row.text.replace("@", "{i}"), row.copies, waves=row.waves, before=row.before)
    assert row.value(clk) == modelled[name].value


def test_latencies_are_those_of_the_document(modelled: dict[str, micro.Figure]) -> None:
    expected = model_micro.latencies()
    for row in table.LATENCIES:
        assert modelled[row.name].value == pytest.approx(expected[row.level.upper()], abs=2)


def test_every_instruction_of_the_document_has_a_row() -> None:
    texts = {text for _, text, _ in figures.BESIDE}
    assert texts == {row.text.split("\n")[1] for row in table.BESIDE}
    names = {row.what for row in table.ROWS}
    for figure in figures.FIGURES:
        what = figure.what.split(", 2.092")[0].replace(" (triad)", "")
        assert what in names, what


def test_the_page_has_every_row(modelled: dict[str, micro.Figure]) -> None:
    """With what it settles and its readings; values as they are modelled now."""
    page = (HSACO.parent / "docs" / "real-gpu-report.md").read_text()
    lines = [line.strip("| ").split(" | ") for line in page.split("## Every row")[1].splitlines()]
    told = {cells[0]: cells for cells in lines if len(cells) == len(micro.COLUMNS)}
    for row in table.ROWS:
        if isinstance(row, Clock):
            assert row.name in page
            continue
        cells = told[row.what]
        expected = micro.cells(modelled.get(row.name) or micro.Figure(row, "modelled", 0.0))
        assert cells[:4] == [cell.strip() for cell in expected[:4]], row.name
        if row.name in modelled:
            assert cells[4] == expected[4], row.name


def launches(bench: Micro) -> dict[str, Any]:
    """Of every kernel one that is small."""
    found: dict[str, Any] = {}
    for row in table.ROWS:
        if isinstance(row, Clk):
            for copies in (row.copies, 2 * row.copies):
                found[row.symbol(copies)] = bench.of_clk(row, copies, 2)
        elif isinstance(row, Latency):
            found[row.symbol] = bench.of_latency(row)
        elif isinstance(row, Region):
            memory = bench.memory("arrays", row.nbytes)
            found[row.symbol] = bench.launch(
                row.symbol,
                3,
                micro_rows.WAVES,
                passes=1,
                memory=memory,
                apart=64,
                mask=row.nbytes - 1,
            )
        elif isinstance(row, Stream):
            nbytes = 3 * micro_rows.LOAD_BYTES * micro_rows.UNROLLED
            values = np.zeros(3 * nbytes, np.uint8)
            memory = bench.memory("streams", values.nbytes)
            runtime.get().upload(memory, values.ctypes.data, values.nbytes)
            runtime.synchronize()
            found[row.symbol] = bench.launch(
                row.symbol,
                *(3, micro_rows.WAVES),
                passes=1,
                memory=memory,
                stride=3 * micro_rows.LOAD_BYTES,
                array=nbytes,
            )
    found["amdattn_micro_fill"] = bench.launch("amdattn_micro_fill", 3, 2)
    found["amdattn_micro_add"] = bench.launch("amdattn_micro_add", 3, 2)
    found["amdattn_micro_ids"] = bench.launch("amdattn_micro_ids", 3, passes=2)
    return found


def test_every_kernel_is_clean_in_checked_mode() -> None:
    """No missing wait, hazard, race or access outside: what holds here is safe on a GPU."""
    with Micro() as bench:
        every = launches(bench)
        assert every.keys() == set(MANIFESTS[micro_rows.ARCH]["kernels"])
        with virtual.check(raise_on=None) as found:
            for launch in every.values():
                bench.enqueue(launch)
            runtime.synchronize()
    assert not found.errors, "\n".join(map(str, found.errors[:5]))
    assert found.fault is None


def test_a_copy_copies() -> None:
    """The streams move what their names say."""
    (row,) = (row for row in table.STREAMS if row.name == "hbm_copy")
    nbytes = 3 * micro_rows.LOAD_BYTES * micro_rows.UNROLLED
    data = np.random.default_rng(1).integers(0, 256, 2 * nbytes, np.uint8)
    with Micro() as bench:
        memory = bench.memory("copied", data.nbytes)
        device = runtime.get()
        device.upload(memory, data.ctypes.data, data.nbytes)
        bench.enqueue(
            bench.launch(
                row.symbol,
                *(3, micro_rows.WAVES),
                passes=1,
                memory=memory,
                stride=3 * micro_rows.LOAD_BYTES,
                array=nbytes,
            )
        )
        after = np.empty_like(data)
        device.download(after.ctypes.data, memory, after.nbytes)
        runtime.synchronize()
    np.testing.assert_array_equal(after[:nbytes], data[:nbytes])
    np.testing.assert_array_equal(after[nbytes:], data[:nbytes])


@pytest.mark.slow
def test_rates_of_memory_are_those_of_the_document() -> None:
    figures = list(micro.figures(SLOW))
    for figure in figures:
        hold(figure)
    found = {figure.row.name: figure.value for figure in figures}
    for name, reads, writes in (("read", 1, 0), ("write", 0, 1), ("copy", 1, 1), ("triad", 2, 1)):
        expected = model_micro.hbm_rate(reads, bool(writes))
        assert found[f"hbm_{name}"] == pytest.approx(expected, rel=0.01)
    assert found["mall_read"] == pytest.approx(model_micro.mall_rate(), rel=0.02)
    for row in table.REGIONS:
        per_clk = model_micro.region_rate(row.nbytes, apart=row.apart)
        assert found[row.name] == pytest.approx(per_clk * micro.PEAK_MHZ / 1e6, rel=0.01)
