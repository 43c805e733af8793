"""The amdattn command, as a user runs it."""

import json
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import amdattn


@pytest.fixture
def command(amdattn_command):
    """The same in this process, which starts no other one."""
    return amdattn_command


def as_typed(*args, **environment):
    env = {**os.environ, "COLUMNS": "200", **environment}
    child = subprocess.run(
        [sys.executable, "-m", "amdattn.cli", *map(str, args)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    return child.returncode, child.stdout, child.stderr


def test_info():
    status, out, errors = as_typed("info", "--json")
    assert status == 0, errors
    facts = json.loads(out)
    assert facts["versions"]["amdattn"] == amdattn.__version__
    assert facts["kernels"][0]["sha256"] == amdattn.kernels()[0].sha256
    assert os.environ["AMDATTN_DEVICE"] in facts["device"]["bound"]
    assert os.path.exists(facts["device"]["library"])
    status, out, errors = as_typed("info", "--kernels")
    assert status == 0, errors
    assert amdattn.kernels()[0].name in out and facts["device"]["library"] in out


def test_info_without_a_device():
    status, out, errors = as_typed("info", "--kernels", AMDATTN_VDEV_LIBRARY="/nonexistent.so")
    assert status == 1
    assert "/nonexistent.so does not exist" in errors and amdattn.kernels()[0].name in out


def test_demo():
    status, out, errors = as_typed("demo", "-sq", 20, "-skv", 30, "--heads-q", 1, "--json")
    assert status == 0, errors
    facts = json.loads(out)
    assert facts["verdict"] == "ok"
    plan = amdattn.plan_attention(1, 20, 30, 1, 1, 128, device="MI300X")
    assert facts["launch 1"].startswith(f"{plan.launches[0].kernel.name}, grid {(1, 1, 1)} = 1")
    assert "measured on" in facts["wall time"]


def test_demo_of_two_launches(command):
    status, out, errors = command("demo", "-sq", 20, "-skv", 9000, "--heads-q", 1, "--json")
    assert status == 0, errors
    plan = amdattn.plan_attention(1, 20, 9000, 1, 1, 128, device="MI300X")
    facts = json.loads(out)
    for i, launch in enumerate(plan.launches, 1):
        assert launch.kernel.name in facts[f"launch {i}"]
        assert f"= {launch.num_workgroups} workgroups" in facts[f"launch {i}"]
    assert len(plan.launches) == 2 and "launch 3" not in facts


def test_explain(command):
    status, out, errors = command("explain", "-sq", 1000, "--heads-q", 8)
    assert status == 0, errors
    assert " workgroups" in out and "KV split" in out
    status, out, errors = command("explain", "--causal")
    assert status == 0 and "causal=True" in out
    status, out, errors = command("explain", "--head-dim", 260)
    assert status == 2
    assert "UnsupportedProblem: head_dim=260 is not built (have 8..256 in steps of 8)" in errors


@pytest.fixture
def files(tmp_path, normal):
    arrays = [normal(1, 11, 1, 128), normal(1, 13, 1, 128), normal(1, 13, 1, 128)]
    paths = [tmp_path / f"{name}.npy" for name in "qkv"]
    for array, path in zip(arrays, paths, strict=True):
        np.save(path, array)
    return arrays, paths, tmp_path / "out.npy"


def run_on(command, paths, out, *extra):
    q, k, v = paths
    return command("run", "--q", q, "--k", k, "--v", v, "-o", out, *extra)


def test_run_on_bfloat16_files(files, command):
    arrays, paths, out = files
    lse = out.with_name("lse.npy")
    status, _, errors = run_on(command, paths, out, "--lse", lse, "--softmax-scale", 0.1)
    assert status == 0, errors
    expected, expected_lse = amdattn.flash_attn_func(*arrays, softmax_scale=0.1, return_lse=True)
    np.testing.assert_array_equal(np.load(out).view(np.uint16), expected.view(np.uint16))
    np.testing.assert_array_equal(np.load(lse), expected_lse)


def test_run_rounds_float32_only_on_request(files, command):
    arrays, paths, out = files
    for array, path in zip(arrays, paths, strict=True):
        np.save(path, array.astype(np.float32))
    status, _, errors = run_on(command, paths, out)
    assert status == 2 and "float32, must be bfloat16 or float16; --cast rounds it" in errors
    assert not out.exists()
    status, _, errors = run_on(command, paths, out, "--cast")
    assert status == 0, errors
    written = np.load(out)
    assert written.dtype == np.float32
    np.testing.assert_array_equal(
        written.astype(ml_dtypes.bfloat16).view(np.uint16),
        amdattn.flash_attn_func(*arrays).view(np.uint16),
    )


def test_run_refuses_other_files(files, command):
    _, paths, out = files
    np.save(paths[1], np.zeros(3, np.int32))
    status, _, errors = run_on(command, paths, out)
    assert status == 2 and "holds int32" in errors
    status, _, errors = run_on(command, [paths[0], "missing.npy", paths[2]], out)
    assert status == 2 and "missing.npy" in errors


def test_selftest(command):
    status, out, errors = command("selftest", "--json")
    facts = json.loads(out)
    assert status == 0, (errors, [case for case in facts["cases"] if not case["ok"]])
    assert facts["failed"] == 0 and len(facts["cases"]) > 8
