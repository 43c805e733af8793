"""With `num_splits` a row's bits depend on its q, on k and v, and on sizes and options alone."""

from __future__ import annotations

import pytest

from amdattn.arch.architectures import ARCHITECTURES
from tests.support import shipped
from tests.support.attention.independence import Trial
from tests.support.fake_rocm import run

OTHERS = [name for name in ARCHITECTURES if name != shipped.props().arch]
FEW, MANY = 3, 192


@pytest.mark.parametrize("seed", range(FEW))
def test_a_row_does_not_depend_on_others(seed: int) -> None:
    assert not list(Trial(seed).differences())


@pytest.mark.slow
def test_many_rows() -> None:
    found = {seed: list(Trial(seed).differences()) for seed in range(FEW, MANY)}
    assert not {seed: names for seed, names in found.items() if names}


CODE = "import sys; from tests.support.attention.independence import main; sys.argv[1:] = ['{}']"


@pytest.mark.parametrize("arch", OTHERS)
@pytest.mark.parametrize("trials", [2, pytest.param(MANY, marks=pytest.mark.slow)])
def test_elsewhere(arch: str, trials: int) -> None:
    code = f"{CODE.format(trials)}; main()"
    status, lines, errors = run(code, AMDATTN_DEVICE=f"virtual:{arch}")
    assert (status, lines) == (0, []), errors
