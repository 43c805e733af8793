"""examples/jax_train: a few steps of training with amdattn's forward pass, beside XLA's."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.oracles


@pytest.fixture(scope="module")
def train() -> Iterator[Any]:
    pytest.importorskip("jax")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "examples" / "jax_train"))
        import train

        yield train


@pytest.fixture
def transformer(train: Any) -> Any:
    import transformer

    return transformer


@pytest.fixture
def small(transformer: Any) -> Any:
    return transformer.Sizes(layers=1, channels=64, heads=2, inner=128, rows=2, length=24)


def test_a_short_run(
    train: Any,
    small: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(train, "Sizes", lambda: small)
    train.main(steps=50, seed=0, out=tmp_path)
    with (tmp_path / "loss.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["step", "amdattn", "XLA"] and [int(row[0]) for row in rows] == [*range(50)]
    losses = np.array([[float(x) for x in row[1:]] for row in rows])
    # Near a guess among 256 bytes; how near depends on the text, the documentation as it is.
    assert abs(losses[0] - np.log(256)).max() < 0.2
    assert (losses[-5:].mean(axis=0) < losses[0] - 0.15).all()
    # Rounded otherwise, and not the same program twice.
    assert 0 < abs(losses[:, 0] - losses[:, 1]).max() < 0.05
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{losses[0, 0]:.4f}" in shown and "(at most 0.05): ok" in shown


def test_the_picture(train: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    falling = np.linspace(5, 2, 50).tolist()
    train.picture({"amdattn": falling, "XLA": falling[::-1]}, tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("ours", "theirs", "is_ok"),
    [
        ("falling", "falling", True),
        ("falling", "lower", False),
        ("flat", "flat", False),
        ("nan", "falling", False),
        ("falling", "nan", False),
    ],
)
def test_what_is_wrong_is_found(train: Any, ours: str, theirs: str, is_ok: bool) -> None:
    falling = np.linspace(5, 2, 50)
    curves = {
        "falling": falling,
        "lower": falling - 0.2 * (np.arange(50) > 25),
        "flat": np.full(50, 5.0),
        "nan": np.where(np.arange(50) > 40, np.nan, falling),
    }
    losses = {"amdattn": curves[ours].tolist(), "XLA": curves[theirs].tolist()}
    assert train.compare(losses, {"amdattn": 1.0, "XLA": 1.0}) is is_ok


def test_steps_are_whole_chunks(train: Any, tmp_path: Path) -> None:
    with pytest.raises(train.typer.BadParameter, match="--steps=15 must be a multiple of 10"):
        train.main(steps=15, seed=0, out=tmp_path)


def test_only_its_own_run_has_kernels(train: Any, transformer: Any, small: Any) -> None:
    """For norms, products and attention; the other one is XLA's alone."""
    import jax

    lowered = {}
    for name, kernels in train.RUNS.items():
        text = jax.ShapeDtypeStruct((small.rows, small.length + 1), np.int32)
        parameters = jax.eval_shape(lambda: transformer.initial(small, 0))
        loss = jax.value_and_grad(lambda *xs, k=kernels: transformer.loss(*xs, small, k))
        lowered[name] = jax.jit(loss).lower(parameters, text).as_text()
    for operation in ("rms_norm", "gemm", "attention"):
        assert f"custom_call @amdattn.{operation}(" in lowered["amdattn"]
    assert "amdattn." not in lowered["XLA"]


def test_gradients_point_the_same_way(train: Any, transformer: Any) -> None:
    """Of all parameters, with weights that are not small."""
    import jax

    sizes = transformer.Sizes(layers=2, channels=64, heads=2, inner=128, rows=2, length=40)
    parameters = jax.tree.map(lambda p: 8 * p if p.ndim > 1 else p, transformer.initial(sizes, 3))
    text = np.random.default_rng(1).integers(0, 256, (2, 41)).astype(np.int32)
    ours, theirs = (
        jax.jit(jax.grad(lambda p, k=kernels: transformer.loss(p, text, sizes, k)))(parameters)
        for kernels in train.RUNS.values()
    )
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(ours)]
    assert len(paths) == 3 + 6 * sizes.layers
    for path, *pair in zip(paths, jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        a, b = (np.asarray(x).ravel() for x in pair)
        lengths = np.linalg.norm(a), np.linalg.norm(b)
        assert a @ b / np.prod(lengths) > 0.999 and 0.98 < lengths[0] / lengths[1] < 1.02, path
