"""examples/llama on the device: each family beside float64, graphs, batches."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from examples.llama import batch as batches
from examples.llama.batch import Batch, Generation
from examples.llama.checkpoint import Checkpoint
from examples.llama.config import Config, parse
from examples.llama.model import Decoder
from examples.llama.reference import Array, Reference
from examples.llama.weights import Weights, load
from tests.support import llama_checkpoints

ALLOWED = 2.0  # largest error of a logit, of that of a pass that rounds as memory of 16 bits does
TOKENS = 6


def as_bfloat16(x: Array) -> Array:
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


def as_float16(x: Array) -> Array:
    return x.astype(np.float16).astype(np.float64)


@dataclass
class Loaded:
    """A checkpoint on the device, and what it computes in float64."""

    config: Config
    weights: Weights
    exact: Reference
    rounded: Reference

    def decoder(self, context: int = 48, **options: Any) -> Decoder:
        # Small pages and chunks, so that sequences have several.
        given = {"page": 16, "chunk": 20, **options}
        return Decoder(self.config, self.weights, context=context, **given)

    def check(self, generation: Generation, logits: Sequence[NDArray[np.float32]]) -> None:
        """Tokens are those of float64, except where its two best are closer than the error."""
        ids, first = generation.ids, len(generation.prompt) - 1
        exact, rounded = (x.logits(ids[:-1])[first:] for x in (self.exact, self.rounded))
        allowed = ALLOWED * np.abs(rounded - exact).max()
        if logits:
            error = np.abs(np.array(logits) - exact).max()
            print(f"largest error of a logit {error:.4f}, allowed {allowed:.4f}")
            assert error <= allowed
        best = exact.max(axis=1)
        lost = best - np.take_along_axis(exact, np.array(generation.made)[:, None], 1)[:, 0]
        # Both logits may be off by as much.
        assert (lost <= 2 * allowed).all(), (lost, allowed)
        # The tolerance explains a token or two, never a text.
        assert (lost > 0).sum() <= 2


def loaded(folder: Path, config: dict[str, Any], dtype: Any = ml_dtypes.bfloat16) -> Loaded:
    llama_checkpoints.write(folder, config, llama_checkpoints.tensors_of(config, dtype))
    checkpoint, parsed = Checkpoint(folder), parse(config)
    keep = as_float16 if dtype == np.float16 else as_bfloat16
    references = (Reference(checkpoint, parsed, *x) for x in ((), (keep,)))
    return Loaded(parsed, load(checkpoint, parsed), *references)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """One for tests that are not about families: windows in one of two layers, biases, YaRN."""
    folder = tmp_path_factory.mktemp("llama")
    return loaded(folder, llama_checkpoints.config_of("qwen2"))


@pytest.fixture
def logits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[NDArray[np.float32]]]:
    """Of which tokens were chosen, in their order."""
    found: list[NDArray[np.float32]] = []
    choose = batches.greedy

    def greedy(row: NDArray[np.float32]) -> int:
        found.append(row.copy())
        return choose(row)

    monkeypatch.setattr(batches, "greedy", greedy)
    yield found


def prompt(count: int, seed: int = 1) -> list[int]:
    return np.random.default_rng(seed).integers(4, 96, count).tolist()


def generate(decoder: Decoder, ids: list[int], tokens: int = TOKENS) -> Generation:
    sequences = Batch(decoder)
    generation = sequences.add(ids, tokens)
    sequences.run()
    return generation


@pytest.mark.parametrize("name", llama_checkpoints.CONFIGS)
def test_family(tmp_path: Path, name: str, logits: list[NDArray[np.float32]]) -> None:
    model = loaded(tmp_path, llama_checkpoints.config_of(name))
    # Beyond the positions that the model was trained with, where its angles are stretched.
    decoder = model.decoder(context=32)
    generation = generate(decoder, prompt(9 if name == "dynamic" else 23))
    decoder.close()
    model.check(generation, logits)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_other_types_of_a_checkpoint(
    tmp_path: Path, dtype: Any, logits: list[NDArray[np.float32]]
) -> None:
    """float16 stays it; float32 is rounded to bfloat16, as the weights of the reference are."""
    config = llama_checkpoints.config_of("llama2")
    tensors = llama_checkpoints.tensors_of(config, ml_dtypes.bfloat16)
    if dtype == np.float32:
        llama_checkpoints.write(tmp_path, config, {n: x.astype(dtype) for n, x in tensors.items()})
        weights = load(Checkpoint(tmp_path), parse(config))
        assert weights.dtype == ml_dtypes.bfloat16
        assert weights.head.numpy().tobytes() == tensors["lm_head.weight"].tobytes()
        return
    model = loaded(tmp_path, config, dtype)
    assert model.weights.dtype == np.float16
    decoder = model.decoder()
    model.check(generate(decoder, prompt(5), 3), logits)
    decoder.close()


def test_shards(tmp_path: Path, llama: Loaded) -> None:
    config = llama_checkpoints.config_of("qwen2")
    llama_checkpoints.write(tmp_path, config, shards=3)
    weights = load(Checkpoint(tmp_path), parse(config))
    for found, expected in zip(weights.layers, llama.weights.layers, strict=True):
        for name in ("qkv", "qkv_bias", "gate_up", "down"):
            assert (
                getattr(found, name).numpy().tobytes() == getattr(expected, name).numpy().tobytes()
            )


def test_a_graph_is_its_launches(llama: Loaded, logits: list[NDArray[np.float32]]) -> None:
    """To the bit, with a prompt of one token, too."""
    for use_graphs in (True, False):
        decoder = llama.decoder(use_graphs=use_graphs)
        generation = generate(decoder, prompt(1))
        assert decoder.use_graphs == use_graphs
        decoder.close()
    half = len(logits) // 2
    assert np.array(logits[:half]).tobytes() == np.array(logits[half:]).tobytes()
    llama.check(generation, logits[half:])


def test_a_step_is_one_graph(llama: Loaded, launches: list[Any], allocations: list[int]) -> None:
    """Once replays are trusted nothing is launched singly, and nothing allocated."""
    decoder = llama.decoder()
    sequences = Batch(decoder)
    sequences.add(prompt(3), TOKENS)
    seen = []
    for _ in range(TOKENS - 1):
        launches.clear()
        allocations.clear()
        sequences.step()
        seen.append((len(launches), len(allocations)))
    kernels = decoder.launches
    assert kernels == 2 * 7 + 2  # of each layer, and the two that make logits
    # The first step is compared with launches and is captured, the second is compared.
    assert seen[1][0] == kernels and seen[2:] == [(0, 0)] * (TOKENS - 3)
    decoder.close()


def test_a_corrupt_replay_is_found(llama: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs go off, the user is told, and tokens are the right ones."""
    decoder = llama.decoder()
    replayed, count = Decoder._replayed, 0

    def corrupt(self: Decoder, *given: Any) -> NDArray[np.float32]:
        nonlocal count
        count += 1
        found = replayed(self, *given)
        if count == 2:
            found[0, 5] += 1
        return found

    monkeypatch.setattr(Decoder, "_replayed", corrupt)
    with pytest.warns(RuntimeWarning, match="a replayed graph gave other logits"):
        generation = generate(decoder, prompt(4))
    assert not decoder.use_graphs and count == 2
    decoder.close()
    llama.check(generation, [])


def test_sequences_join_and_leave(llama: Loaded) -> None:
    """More than the batch has rows, of unequal lengths: each is as it is alone."""
    decoder = llama.decoder(batch=3)
    sequences = Batch(decoder)
    lengths = (3, 17, 1, 22, 9)
    generations = [sequences.add(prompt(n, seed=n), 2 + i % 3 * 3) for i, n in enumerate(lengths)]
    sequences.run()
    assert len(sequences._pages) == decoder.pages
    assert [g.joins for g in generations] == [1] * 5
    decoder.close()
    for generation in generations:
        assert len(generation.made) == generation.most
        llama.check(generation, [])


def test_sequences_leave_for_want_of_pages_and_join_again(llama: Loaded) -> None:
    decoder = llama.decoder(batch=2, pages=3)
    sequences = Batch(decoder)
    generations = [sequences.add(prompt(14, seed=n), 8) for n in (1, 2)]
    sequences.run()
    assert len(sequences._pages) == 3
    assert [g.joins for g in generations] == [1, 2]
    decoder.close()
    for generation in generations:
        llama.check(generation, [])


def test_tokens_that_end(llama: Loaded) -> None:
    decoder = llama.decoder()
    made = generate(decoder, prompt(4)).made
    sequences = Batch(decoder, ends=[made[2]])
    generation = sequences.add(prompt(4), TOKENS)
    sequences.run()
    decoder.close()
    end = made.index(made[2])
    assert generation.is_ended and generation.made == made[: end + 1]


@pytest.mark.parametrize(
    ("ids", "tokens", "text"),
    [
        ([], 1, "the prompt has no tokens"),
        ([3, 96], 1, "token 96 must be in 0..95"),
        ([3] * 40, 9, "40 tokens of the prompt and 9 to generate are more than the context of 48"),
        ([3] * 30, 3, "33 tokens need 3 pages; the cache has 2"),
    ],
)
def test_what_a_batch_refuses(llama: Loaded, ids: list[int], tokens: int, text: str) -> None:
    decoder = llama.decoder(pages=2)
    with pytest.raises(ValueError, match=text):
        Batch(decoder).add(ids, tokens)
    decoder.close()


def test_too_little_memory(llama: Loaded) -> None:
    with pytest.raises(ValueError, match=r"a cache of \d+ keys needs [\d.]+ GiB; [\d.]+ GiB are"):
        llama.decoder(pages=1 << 26)


def test_no_warning_without_a_cause(llama: Loaded) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decoder = llama.decoder()
        generate(decoder, prompt(4), 3)
        decoder.close()
