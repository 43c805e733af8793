"""examples/jax_train: a Llama and a BERT trained by kernels both ways, beside XLA."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.oracles
MODELS = ("llama", "bert")
SMALL = {"layers": 1, "channels": 32, "inner": 64, "rows": 2, "length": 24}


@pytest.fixture(scope="module")
def example() -> Iterator[Any]:
    pytest.importorskip("jax")
    names = ("train", "compare", "computing", *MODELS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "examples" / "jax_train"))
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})


def small(example: Any, name: str) -> Any:
    return getattr(example, name).Sizes()._replace(**SMALL)


def words(seed: int, length: int) -> np.ndarray:
    """Text as bytes: words of some letters, the first far more frequent than the last."""
    rng = np.random.default_rng(seed)
    letters = np.frombuffer(b"etaoinshrdlu", np.uint8)
    known = [rng.choice(letters, n).tobytes() for n in rng.integers(1, 9, 200)]
    chosen = rng.zipf(1.3, length) % len(known)
    return np.frombuffer(b" ".join(known[i] for i in chosen), np.uint8)[:length]


@pytest.mark.parametrize("name", MODELS)
def test_fifty_steps(example: Any, name: str) -> None:
    """By kernels beside XLA in bfloat16 and float32: losses fall, and are the same but for bits."""
    task = example.train.task_of(getattr(example, name), small(example, name), 50)
    # A text of its own: how fast losses fall depends on it.
    task = task._replace(text=words(0, 40_000), held_out=words(1, 4_000))
    by = example.computing
    kept: dict[int, Any] = {}
    runs = [
        example.train.train("amdattn", by.AMDATTN, task, 0, kept),
        example.train.train("XLA bfloat16", by.XLA, task, 0),
        example.train.train("XLA float32", by.EXACT, task, 0),
    ]
    assert sorted(kept) == [0, 10, 50] and sorted(runs[0].looks) == [*range(0, 51, 10)]
    losses = np.array([run.losses for run in runs])
    assert losses.shape == (3, 50)
    # Of what is held out, which is the mean of many batches: first near a guess among 256 bytes.
    assert all(abs(run.looks[0] - np.log(256)) < 0.5 for run in runs)
    assert all(run.looks[50] < run.looks[0] - 0.15 for run in runs)
    ours, half, exact = runs
    assert 0 < example.compare.distance(ours, exact) < 0.05  # rounded, and not otherwise
    assert example.compare.distance(half, exact) < 0.05


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_as_exact_as_xla_s(example: Any, name: str) -> None:
    """All of them, of a batch, by parameters that are not small."""
    import jax

    model, sizes, by = getattr(example, name), small(example, name), example.computing
    task = example.train.task_of(model, sizes, 50)
    parameters = model.initial(sizes, 3)
    exact, ours, half = (
        example.train.gradients(parameters, task.text, jax.random.key(5), model, sizes, each)[1]
        for each in (by.EXACT, by.AMDATTN, by.XLA)
    )
    wrong = [example.compare.gradient_errors(each, exact) for each in (ours, half)]
    assert 0 < wrong[0] <= example.compare.OF_BFLOAT16 * wrong[1]
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(exact), strict=True):
        a, b = np.asarray(one, np.float64).ravel(), np.asarray(other, np.float64).ravel()
        assert a @ b >= 0.99 * np.linalg.norm(a) * np.linalg.norm(b)


@pytest.mark.parametrize("name", MODELS)
def test_only_its_own_run_has_kernels(example: Any, name: str) -> None:
    """Attention, products and RMSNorm, both ways; the others are XLA's alone."""
    import jax

    model, sizes, by = getattr(example, name), small(example, name), example.computing
    parameters = jax.eval_shape(lambda: model.initial(sizes, 0))
    text = jax.ShapeDtypeStruct((1000,), np.uint8)
    lowered = {
        each: example.train.gradients.lower(
            parameters, text, jax.random.key(0), model, sizes, each
        ).as_text()
        for each in (by.AMDATTN, by.XLA, by.EXACT)
    }
    operations = {"attention", "attention_backward", "gemm"}
    operations |= {"rms_norm", "rms_norm_backward"} if name == "llama" else set()
    for operation in operations:
        assert f"custom_call @amdattn.{operation}(" in lowered[by.AMDATTN], operation
    assert "dot_general" not in lowered[by.AMDATTN]
    assert "amdattn." not in lowered[by.XLA] and "amdattn." not in lowered[by.EXACT]


def runs_of(example: Any, ours: Any, half: float = 0.01) -> Any:
    """A run by kernels whose looks are `ours` beside float32's, and the others."""
    steps = np.arange(0, 101, 10)
    falling = np.linspace(5, 2, len(steps))
    looks = [falling + ours, falling + half, falling, falling + 0.05, falling - 0.05]
    return [
        example.compare.Run(
            str(i), falling.tolist(), dict(zip(steps.tolist(), each.tolist(), strict=True)), 1.0
        )
        for i, each in enumerate(looks)
    ]


@pytest.mark.parametrize(
    ("ours", "half", "wrong", "is_ok"),
    [
        (0.01, 0.01, 0.01, True),
        (0.03, 0.01, 0.01, False),  # more than twice as far as bfloat16
        (0.15, 0.1, 0.01, False),  # more than the spread of seeds
        (0.01, 0.01, 0.05, False),  # gradients
        (np.linspace(0, 3, 11), 3.0, 0.01, False),  # it does not fall
        (np.nan, 0.01, 0.01, False),
        (0.01, np.nan, 0.01, False),
    ],
)
def test_what_is_wrong_is_found(
    example: Any, ours: Any, half: float, wrong: float, is_ok: bool
) -> None:
    from rich.console import Console

    errors = {0: {"amdattn": wrong, "XLA bfloat16": 0.01}}
    runs = runs_of(example, ours, half)
    assert example.compare.compare(runs, errors, Console(quiet=True)) is is_ok


def test_the_picture(example: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    example.compare.picture("llama", runs_of(example, 0.01), tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_none_is_refused(example: Any, tmp_path: Path) -> None:
    bad = example.train.typer.BadParameter
    with pytest.raises(bad, match="--steps=15 must be a multiple of 10"):
        example.train.main("llama", steps=15, seed=0, out=tmp_path)
    with pytest.raises(bad, match="'gpt' must be one of llama, bert"):
        example.train.main("gpt", steps=10, seed=0, out=tmp_path)
