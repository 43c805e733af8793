"""The kernel of docs/kernels.md: built as it stands there, checked, held to float64."""

from __future__ import annotations

import ctypes
import importlib
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from build_scripts.toolchain import LLVM22, compile_hip
from tests.support.gpu import Gpu
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "kernels.md"
MAX_COLUMNS = 4096
GUARD = 64


def sources() -> dict[str, str]:
    """Of the page, by the name that stands in front of each."""
    found = re.findall(r"`(rms_norm\.\w+)`:\n\n```cpp\n(.*?)```", PAGE.read_text(), re.S)
    return dict(found)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("page")
    for name, text in sources().items():
        (folder / name).write_text(text)
    return compile_hip(folder / "rms_norm.hip", LLVM22).code_object


def rows(count: int, columns: int, stride: int) -> Any:
    rng = np.random.default_rng([count, columns])
    x = rng.standard_normal((count, stride), np.float32).astype(ml_dtypes.bfloat16)
    x[:, columns:] = np.nan  # between the rows
    return x


@pytest.mark.parametrize(
    ("count", "columns", "stride"), [(1, 8, 8), (3, 1000, 1016), (7, 4096, 4096), (2, 520, 520)]
)
def test_rms_norm(gpu: Gpu, image: bytes, count: int, columns: int, stride: int) -> None:
    module = gpu.call("hipModuleLoadData", image)
    gpu.modules.append((module, image))
    function = gpu.call("hipModuleGetFunction", module, b"rms_norm")
    x, eps = rows(count, columns, stride), 1e-3
    weight = np.linspace(-2, 2, columns).astype(ml_dtypes.bfloat16)
    poison = np.full((count * stride + GUARD,), 0xA5A5, np.uint16)
    with amdattn.virtual.check() as found:
        out = gpu.upload(poison)
        arguments = (
            *(ctypes.c_void_p(gpu.upload(operand)) for operand in (x, weight)),
            *(ctypes.c_void_p(out), ctypes.c_int64(stride)),
            *(ctypes.c_int32(columns), ctypes.c_float(eps)),
        )
        packed = _Struct(*(a.value for a in arguments))
        gpu.launch(function, count, 64, packed)
        assert gpu.finish() == 0, gpu.report
    assert not found.errors
    after = gpu.download(out, poison)
    rest = after[: count * stride].reshape(count, stride)[:, columns:]
    assert (rest == 0xA5A5).all() and (after[count * stride :] == 0xA5A5).all()
    got = after[: count * stride].reshape(count, stride)[:, :columns].view(ml_dtypes.bfloat16)
    wide = x[:, :columns].astype(np.float64)
    scale = 1 / np.sqrt((wide**2).mean(1, keepdims=True) + eps)
    exact = weight.astype(np.float64) * wide * scale
    assert (np.abs(got.astype(np.float64) - exact) <= np.abs(exact) * 2.0**-7.9).all()


class _Struct(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("x", "weight", "out")),
        ("stride", ctypes.c_int64),
        ("columns", ctypes.c_int32),
        ("eps", ctypes.c_float),
    ]


def test_the_page_has_the_whole_kernel() -> None:
    assert set(sources()) == {"rms_norm.h", "rms_norm.hip"}
    assert f"kMaxColumns == {MAX_COLUMNS}" in sources()["rms_norm.hip"]


def test_rounds_of_the_tuning_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every change that docs/tuning.md tells of applies to the page's kernel, and compiles."""
    monkeypatch.syspath_prepend(str(PAGE.parents[1] / "benchmarks"))
    example = importlib.import_module("tuning_example")
    names = [step.name for step, image in example.images() if image]
    tuning = (PAGE.parent / "tuning.md").read_text()
    assert len(names) == 6 and all(f"| {name} |" in tuning for name in names)


def test_every_tile_header_is_listed() -> None:
    listed = set(re.findall(r"^\| `(\w+\.h)` \|", PAGE.read_text(), re.M))
    folder = PAGE.parents[1] / "asm_src" / "tile"
    assert listed == {path.name for path in folder.iterdir()}
