"""Compiled programs: across processes, threads and devices, and what they say when they fail."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import amdattn
import amdattn.jax as aj
from amdattn import virtual
from amdattn.arch.props import KNOWN_DEVICES
from amdattn.errors import UnsupportedDeviceError
from tests.support.paths import ROOT

TARGETS = [export.DisabledSafetyCheck.custom_call("amdattn.attention")]


def normal(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape, jnp.bfloat16)


Q, K, V = normal(0, 1, 65, 4, 64), normal(1, 1, 300, 2, 64), normal(2, 1, 300, 2, 64)


def attend(q: Any, k: Any, v: Any) -> Any:
    # In parts, with a workspace and two launches.
    return aj.flash_attn_func(q, k, v, causal=True, num_splits=2)


def fresh() -> Any:
    """The same, of which JAX has no trace."""
    return functools.partial(attend)


def python(code: str, **environment: str) -> str:
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


_INPUTS = """
import jax, jax.numpy as jnp, numpy as np, amdattn.jax as aj
def normal(seed, *shape): return jax.random.normal(jax.random.key(seed), shape, jnp.bfloat16)
arrays = normal(0, 1, 65, 4, 64), normal(1, 1, 300, 2, 64), normal(2, 1, 300, 2, 64)
def attend(q, k, v): return aj.flash_attn_func(q, k, v, causal=True, num_splits=2)
def digest(x): return int(np.asarray(x).view(np.uint16).astype(np.int64).sum())
"""


def digest(x: Any) -> int:
    return int(np.asarray(x).view(np.uint16).astype(np.int64).sum())


def test_exported_programs_run_in_another_process(tmp_path: Path) -> None:
    pytest.importorskip("flatbuffers")
    exported = export.export(jax.jit(attend), disabled_checks=TARGETS)(Q, K, V)
    file = tmp_path / "program"
    file.write_bytes(exported.serialize())
    found = python(
        _INPUTS
        + f"""
from jax import export
exported = export.deserialize(open({str(file)!r}, "rb").read())
print(digest(exported.call(*arrays)), digest(jax.jit(exported.call)(*arrays)))
"""
    )
    assert found.split() == [str(digest(attend(Q, K, V)))] * 2


def test_the_compilation_cache_works_across_processes(tmp_path: Path) -> None:
    """Nothing in a program is of its process: the second one finds it, and is right."""
    code = (
        _INPUTS
        + """
import os
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
found = jax.jit(attend)(*arrays)
print(digest(found), sum("cache_hits" in name for name in hits))
"""
    )
    first, second = (
        python(code, JAX_COMPILATION_CACHE_DIR=str(tmp_path)).split() for _ in range(2)
    )
    assert first[0] == second[0] == str(digest(attend(Q, K, V)))
    assert first[1] == "0" and int(second[1]) > 0


def test_lowered_for_a_gpu_without_one() -> None:
    with aj.lowering_for("MI300X"):
        exported = export.export(jax.jit(fresh()), platforms=["rocm"], disabled_checks=TARGETS)(
            Q, K, V
        )
    text = exported.mlir_module()
    assert exported.platforms == ("rocm",) and "amdattn.attention" in text
    with aj.lowering_for("MI308X"):  # another plan
        other = export.export(jax.jit(fresh()), platforms=["rocm"], disabled_checks=TARGETS)(
            Q, K, V
        )
    assert "amdattn.attention" in other.mlir_module()


def test_lowered_for_another_architecture() -> None:
    """With the kernels of its own; a program of one does not run on a device of the other."""
    texts = {}
    for device in ("MI300X", "MI355X"):
        with aj.lowering_for(device):
            exported = export.export(jax.jit(fresh()), platforms=["rocm"], disabled_checks=TARGETS)
            texts[device] = exported(Q, K, V).mlir_module()
    assert texts["MI300X"] != texts["MI355X"]
    bound = amdattn.device_props().arch
    other = next(name for name in texts if KNOWN_DEVICES[name].arch != bound)
    with aj.lowering_for(other):
        lowered = jax.jit(fresh()).lower(Q, K, V)
    text = rf"kernel \w+ is for {KNOWN_DEVICES[other].arch}, but .* \({bound}\) is bound"
    with pytest.raises(Exception, match=text):
        lowered.compile()


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_other_platforms_are_refused(platform: str) -> None:
    with pytest.raises(UnsupportedDeviceError, match=f"lowered for {platform}.*cpu and rocm"):
        export.export(jax.jit(fresh()), platforms=[platform])(Q, K, V)


def test_no_address_is_in_a_program() -> None:
    """Lowered twice, with other allocations in between, the text is the same."""
    texts = []
    for _ in range(2):
        texts.append(jax.jit(fresh()).lower(Q, K, V).as_text())
        kept = [np.zeros(1 << 16) for _ in range(10)]
        del kept
    assert texts[0] == texts[1] and "amdattn.attention" in texts[0]


def test_the_program_says_what_it_runs() -> None:
    text = jax.jit(attend).lower(Q, K, V).as_text()
    assert "attention: bfloat16 b1 sq65 skv300 h4/2 d64 causal" in text


def test_a_fault_is_an_error_with_the_report() -> None:
    """Sums of lengths beyond the tensors, which nobody can check in a program."""
    sums = jnp.array([0, 1 << 24], jnp.int32)
    with pytest.raises(Exception, match=r"amdattn: attention: .*error 7") as raised:
        found = jax.jit(
            lambda sums: aj.flash_attn_varlen_func(Q[0], K[0], V[0], sums, sums, 1 << 24, 1 << 24)
        )(sums)
        jax.block_until_ready(found)
    assert "attn_fwd" in str(raised.value)  # what faulted, and where
    np.testing.assert_array_equal(attend(Q, K, V), attend(Q, K, V))  # and all goes on


def test_counters_are_clear_after_other_programs() -> None:
    """Workspaces are memory that XLA has used for something else."""
    a, b = normal(3, 8, 4096), normal(4, 256, 4096)

    @jax.jit
    def f(a: Any, b: Any, noise: Any) -> Any:
        first = aj.gemm_nt(a, b, split_k=4)
        return first, aj.gemm_nt(a + 0 * noise.sum().astype(a.dtype), b, split_k=4), noise * 3

    expected = amdattn.gemm_nt(np.asarray(a), np.asarray(b), split_k=4)
    for seed in range(5):
        first, second, _ = f(a, b, normal(seed, 1 << 20))
        np.testing.assert_array_equal(first, expected)
        np.testing.assert_array_equal(second, expected)


def test_programs_on_two_devices_at_once() -> None:
    programs = []
    for i, device in enumerate(jax.devices("cpu")[:2]):
        arrays = [jax.device_put(x * (i + 1), device) for x in (Q, K, V)]
        programs.append((arrays, attend(*arrays)))
    wrong = []

    def run(arrays: Any, expected: Any) -> None:
        for _ in range(20):
            found = attend(*arrays)
            if found.devices() != expected.devices() or not (found == expected).all():
                wrong.append(found)

    threads = [threading.Thread(target=run, args=program) for program in programs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def calls_on_threads(count: int) -> tuple[int, int]:
    """Wrong results, and growth of the process, of so many calls on four threads."""
    expected = np.asarray(aj.flash_attn_func(Q[:, :3], K[:, :9], V[:, :9]))
    wrong: list[int] = []
    errors: list[BaseException] = []

    def run(calls: int) -> None:
        try:
            for i in range(calls):
                arrays = [jnp.array(np.asarray(x)) for x in (Q[:, :3], K[:, :9], V[:, :9])]
                if not np.array_equal(np.asarray(aj.flash_attn_func(*arrays)), expected):
                    wrong.append(i)
        except BaseException as error:
            errors.append(error)

    def four(calls: int) -> None:
        threads = [threading.Thread(target=run, args=(calls // 4,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    four(400)
    before = resident_bytes()
    four(count)
    assert not errors, errors[0]
    return len(wrong), resident_bytes() - before


@pytest.mark.parametrize(
    "count", [400, pytest.param(10_000, marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_many_calls_with_arrays_that_come_and_go(count: int) -> None:
    wrong, growth = calls_on_threads(count)
    assert wrong == 0
    assert growth < 16 << 20


def test_checked_mode_sees_programs() -> None:
    with virtual.check() as session:
        jax.block_until_ready(attend(Q, K, V))
    assert not session.errors


def test_importing_amdattn_leaves_jax_alone() -> None:
    assert python("import sys, amdattn; print('jax' in sys.modules)").split() == ["False"]


def test_without_jax_the_error_says_how_to_get_it() -> None:
    code = """
import sys
sys.modules["jax"] = None
try:
    import amdattn.jax
except ModuleNotFoundError as error:
    print(error)
"""
    assert 'pip install "amdattn[jax]"' in python(code)
