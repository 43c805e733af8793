"""Inputs of benchmarks: distributions, files, and that parts are those of the whole."""

from __future__ import annotations

import dataclasses
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.bench import cache_inputs, inputs
from amdattn.bench.inputs import CLASSES, MODEL_LIKE, Inputs, Place, Sizes
from amdattn.bench.kernels import Operands
from amdattn.bench.shapes import Shape
from amdattn.device import runtime
from amdattn.ops import registry
from amdattn.ops.cache_attention.layouts import LAYOUTS
from tests.support.cli_command import Command

SIZES = Sizes(2, 384, 2048, 8, 8, 64, 64)


def scores(of: Inputs, sizes: Sizes, head: int) -> Any:
    q, k = (inputs.entry(of, sizes, name, 0)[:, head] for name in "qk")
    return q.astype(float) @ k.T / np.sqrt(sizes.head_dim)


def test_scores_of_heads() -> None:
    for head, of in enumerate(MODEL_LIKE.heads):
        found = scores(MODEL_LIKE, SIZES, head) - of.offsets(SIZES.seqlen_kv)
        expected = of.sd * np.exp(of.log_norms**2)  # the norms' mean square
        assert found.std() == pytest.approx(expected, rel=0.06), head
        k = inputs.entry(MODEL_LIKE, SIZES, "k", 1)[:, head, 1:]
        norms = np.log(np.linalg.norm(k, axis=1))
        of_length = 1 / np.sqrt(2 * k.shape[1])  # of the logarithm, where all are normal
        assert norms.std() == pytest.approx(np.hypot(of.log_norms, of_length), rel=0.06)


@pytest.mark.parametrize("name", ["worst", "middle key 25 nats above"])
def test_offsets_are_of_keys(name: str) -> None:
    expected = CLASSES[name].heads[0].offsets(SIZES.seqlen_kv)
    assert np.ptp(expected) == {"worst": 100, "middle key 25 nats above": 25}[name]
    assert scores(CLASSES[name], SIZES, 3).mean(axis=0) == pytest.approx(expected, abs=0.3)


def test_heads_of_q_read_their_head_of_k() -> None:
    """Offsets are those of the keys' head, whatever the class says of q's own."""
    sizes = dataclasses.replace(SIZES, heads_kv=2)
    q, k = (inputs.entry(MODEL_LIKE, sizes, name, 0) for name in "qk")
    assert (q[:, :4, 0] == np.sqrt(np.float32(64))).all() and k[0, 0, 0] == 10
    assert np.ptp(q[:, 4:, 0], axis=0).min() > 0 and k[0, 1, 0] != 0
    assert q[:, 4:].std(axis=(0, 2)) == pytest.approx([3.5, 2.5, 12, 3], rel=0.03)


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_parts_are_of_the_whole(layout: str) -> None:
    """What a sample reads is what the whole problem has there, up to which numbers are drawn."""
    shape = Shape(2, 4, 2, 300, 500, 64, layout=layout)
    worst = CLASSES["worst"]
    with Operands(shape, worst) as operands:
        operands.fill_all()
        k = np.empty(shape.sizes.shape("k"), operands.dtype)
        if layout == "bhsd":
            k = k.transpose(0, 2, 1, 3).copy()
        runtime.get().download(k.ctypes.data, operands.addresses["k"], k.nbytes)
        runtime.synchronize()
    if layout == "bhsd":
        k = k.transpose(0, 2, 1, 3)
    nats = np.linspace(0, 100, 500, dtype=np.float32).astype(operands.dtype)
    assert (k[..., 0] == nats[:, None]).all()
    part = worst.rows(shape.sizes, Place("k", 1, 200), np.zeros((50, 2, 64), np.float32))
    assert (part[:, 1, 0].astype(operands.dtype) == nats[200:250]).all()


def saved(path: Path, **changed: Any) -> Path:
    rng = np.random.default_rng(0)
    arrays = {
        "q": rng.standard_normal((1, 96, 4, 64), np.float32),
        "k": rng.standard_normal((1, 128, 2, 64), np.float32),
        "v": rng.standard_normal((1, 128, 2, 64), np.float32).astype(np.float16),
    } | changed
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def test_arrays_of_a_file(tmp_path: Path) -> None:
    of = inputs.named(str(saved(tmp_path / "a.npz")))
    sizes = Sizes(1, 96, 128, 4, 2, 64, 64)
    of.check(sizes)
    with np.load(tmp_path / "a.npz") as arrays:
        for name in "qkv":
            assert (inputs.entry(of, sizes, name, 0) == arrays[name][0]).all()
        tiled = inputs.named(str(tmp_path / "a.npz"), is_tiled=True)
        larger = Sizes(3, 100, 500, 12, 3, 64, 64)
        tiled.check(larger)
        q, k = (inputs.entry(tiled, larger, name, 2) for name in "qk")
        assert (k == arrays["k"][0, np.arange(500) % 128][:, [0, 1, 0]]).all()
        # Four heads of q for each of k, where the file has two.
        own = [0, 1, 0, 1, 2, 3, 2, 3, 0, 1, 0, 1]
        assert (q == arrays["q"][0, np.arange(100) % 96][:, own]).all()


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"v": None}, "has no array v; its arrays are q, k"),
        ({"q": np.zeros((1, 96, 4, 64), np.int32)}, "q is int32, must be one of float16"),
        ({"k": np.zeros((128, 2, 64), np.float32)}, "k has the shape"),
        ({"k": np.zeros((1, 127, 2, 64), np.float32)}, "k and v have the shapes"),
        ({"q": np.zeros((1, 96, 3, 64), np.float32)}, "a multiple of those of k"),
        ({"v": np.full((1, 128, 2, 64), np.nan, np.float32)}, "v holds NaN or infinity"),
        ({"q": np.array([None], object)}, "is not a .npz file of numbers"),
    ],
)
def test_refused_files(tmp_path: Path, changed: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        inputs.named(str(saved(tmp_path / "a.npz", **changed)))


def test_no_such_inputs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--inputs='real' must be FILE.npz or one of model-like"):
        inputs.named("real")
    with pytest.raises(ValueError, match=r"--tile-inputs needs --inputs FILE.npz, not"):
        inputs.named("worst", is_tiled=True)
    file = tmp_path / "a.npz"
    file.write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"a.npz: is not a .npz file of numbers"):
        inputs.named(str(file))
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("q.npy", "no array")
    with pytest.raises(ValueError, match=r"a.npz: is not a .npz file of numbers"):
        inputs.named(str(file))
    of = inputs.named(str(saved(file)))
    with pytest.raises(ValueError, match=r"\(1, 96, 4, 64\), the problem has \(1, 97"):
        of.check(Sizes(1, 97, 128, 4, 2, 64, 64))
    tiled = inputs.named(str(file), is_tiled=True)
    with pytest.raises(ValueError, match="columns are not repeated"):
        tiled.check(Sizes(1, 97, 128, 4, 2, 128, 64))


def problem(name: str, **options: Any) -> Any:
    operation = registry.operation(name)
    defaults = {option.name: option.default for option in operation.options}
    sizes = {"batch": 2, "seqlen_q": 1, "seqlen_kv": 96, "heads_q": 4, "heads_kv": 2}
    made = operation.problem(**(defaults | sizes | {"head_dim": 64} | options))
    return operation.planned(made, amdattn.device_props())


@pytest.mark.parametrize("layout", ["NHD", "shuffled"])
def test_keys_lie_where_a_cache_has_them(layout: str) -> None:
    plan = problem("decode", page_size=16, kv_layout=layout)
    found = cache_inputs.operands(plan, CLASSES["worst"])
    rows = LAYOUTS[layout]["k_cache"].rows(found["k_cache"].numpy())
    table = plan.specs("")["block_table"].typical()
    keys = rows[table].reshape(2, 96, 2, 64).astype(np.float32)
    assert keys[0, :, 0, 0] == pytest.approx(np.linspace(0, 100, 96), rel=2**-8)
    assert (keys[1, :, 1, 0] == keys[0, :, 0, 0]).all()


def test_keys_go_on_behind_a_prefix_and_into_new_ones() -> None:
    plan = problem("cascade", prefix_len=100, seqlen_new=4, seqlen_kv=300)
    found = {
        name: array.numpy().astype(np.float32)
        for name, array in cache_inputs.operands(plan, CLASSES["worst"]).items()
    }
    every = [found["k_prefix"][:, 0, 0], found["k_cache"][1, :296, 0, 0], found["k"][1, :, 0, 0]]
    assert np.concatenate(every) == pytest.approx(np.linspace(0, 100, 400), rel=2**-8)


def test_command(tmp_path: Path, amdattn_command: Command) -> None:
    heads = ("-hq", 4, "-hkv", 2, "-d", 64, "--markdown", "--inputs")
    code, out, _ = amdattn_command("bench", "decode", "-b", 2, "-skv", 256, *heads, "worst")
    assert code == 0 and "amdattn worst" in out and "q, k and v: worst" in out
    sizes, file = ("-sq", 96, "-skv", 128), str(saved(tmp_path / "a.npz"))
    code, out, _ = amdattn_command("bench", "attention", *sizes, *heads, file)
    assert code == 0 and f"amdattn rtne {file}" in out
    code, _, errors = amdattn_command("bench", "attention", "-sq", 97, "-skv", 128, *heads, file)
    assert code == 2 and "q has the shape (1, 96, 4, 64)" in errors
    norm = ("bench", "rms_norm", "--rows", 8, "--columns", 64)
    code, _, errors = amdattn_command(*norm, "--inputs", "worst")
    assert code == 2 and "--inputs='worst' must be normal for rms_norm" in errors
