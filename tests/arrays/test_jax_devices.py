"""JAX with several devices: where results are, and what arrays are refused, and how."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.support.paths import ROOT

pytest.importorskip("jax")
pytestmark = pytest.mark.oracles

ARGUMENTS = {
    "flash_attn_func": "q k v sinks",
    "flash_attn_kvpacked_func": "q kv",
    "flash_attn_qkvpacked_func": "qkv",
    "flash_attn_varlen_func": "q k v cu_seqlens_q cu_seqlens_k",
    "gemm_nt": "a b bias",
    "rms_norm": "x weight residual",
    "asarray": "x",
    "from_dlpack": "x",
}
TRACED = r"is a JAX tracer \(.*use the functions of amdattn\.jax, of the same names"
SPLIT = (
    r"in shards on 8 devices.*use the functions of amdattn\.jax.*jax\.device_put\({}, "
    r"jax\.devices\(\)\[0\]\)"
)
GONE = "was deleted: it was donated .*pass an array that still exists"
FATES = {
    **{"jit": TRACED, "vmap": TRACED, "grad": TRACED, "remat": TRACED},
    **{"shards": SPLIT, "replicas": SPLIT, "deleted": GONE, "donated": GONE},
}
LENGTHS = ("sinks", "cu_seqlens_q", "cu_seqlens_k")


@pytest.fixture(scope="module")
def found() -> Any:
    """What a process says in which JAX has 8 devices."""
    command = [sys.executable, "-m", "tests.support.jax_inputs"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize(
    ("function", "argument"),
    [(function, name) for function, names in ARGUMENTS.items() for name in names.split()],
)
def test_errors_name_the_argument_and_a_way_out(
    found: Any, function: str, argument: str, fate: str
) -> None:
    if argument in LENGTHS and fate in ("shards", "grad"):
        pytest.skip("8 devices do not divide it, or integers have no gradient")
    said = found["refusals"][f"{function} {argument} {fate}"]
    text = FATES[fate].format(argument)
    assert said and re.fullmatch(rf"(Type|Value)Error: {argument} .*{text}.*", said), said


@pytest.mark.parametrize("device", [None, 0, 3, 7])
@pytest.mark.parametrize("function", [*ARGUMENTS][:-2])  # the others give a DeviceArray
def test_results_are_where_the_inputs_are(found: Any, function: str, device: int | None) -> None:
    """Committed to the device of the inputs, or to none as they are."""
    placed = found["places"][f"{function} {device}"]
    assert placed and all(one == [[device or 0], device is not None] for one in placed)


def test_results_that_are_not_committed_go_anywhere(found: Any) -> None:
    assert found["is_usable"] is True
