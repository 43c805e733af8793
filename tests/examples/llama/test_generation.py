"""examples/llama on the device: each family beside float64, graphs, batches."""

from __future__ import annotations

import dataclasses
import gc
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hip import hip
from numpy.typing import NDArray

import amdattn
from amdattn import virtual
from examples.llama import small_models
from examples.llama.batch import Batch, Generation, common_prefix
from examples.llama.checkpoint import Checkpoint
from examples.llama.comparison import Comparison, Oracle
from examples.llama.config import Config, parse
from examples.llama.device import upload
from examples.llama.model import Decoder
from examples.llama.sampling import Sampling
from examples.llama.weights import Weights, load

TOKENS = 6


@dataclass
class Loaded:
    """A checkpoint on the device, and what it computes in float64."""

    config: Config
    weights: Weights
    oracle: Oracle

    def decoder(self, context: int = 48, **options: Any) -> Decoder:
        # Small pages and chunks, so that sequences have several.
        given = {"page": 16, "chunk": 20, **options}
        return Decoder(self.config, self.weights, context=context, **given)

    def check(
        self, generation: Generation, logits: Sequence[NDArray[np.float32]] = ()
    ) -> Comparison:
        """Tokens are those of float64, except where its two best logits are too close."""
        found = self.oracle.compare(generation, logits)
        print(found)
        assert found.is_ok, found
        # Closeness explains a token or two, never a text.
        assert found.others <= 1, found
        return found


def loaded(
    folder: Path,
    config: dict[str, Any],
    dtype: Any = ml_dtypes.bfloat16,
    *,
    in_8_bits: bool = False,
    folds: bool = True,
) -> Loaded:
    small_models.write(folder, config, small_models.tensors_of(config, dtype))
    checkpoint, parsed = Checkpoint(folder), parse(config)
    weights = load(checkpoint, parsed, in_8_bits=in_8_bits, folds=folds and not in_8_bits)
    return Loaded(parsed, weights, Oracle(checkpoint, parsed, weights))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """One for tests that are not about families: windows in one of two layers, biases, YaRN."""
    folder = tmp_path_factory.mktemp("llama")
    return loaded(folder, small_models.config_of("qwen2"))


def prompt(count: int, seed: int = 1) -> list[int]:
    return np.random.default_rng(seed).integers(4, 96, count).tolist()


def generate(
    decoder: Decoder, ids: list[int], tokens: int = TOKENS
) -> tuple[Generation, list[NDArray[np.float32]]]:
    """A sequence alone, and the logits that its tokens were chosen by."""
    sequences = Batch(decoder, keeps_logits=True)
    generation = sequences.add(ids, tokens)
    sequences.run()
    return generation, generation.logits


@pytest.mark.parametrize("name", small_models.CONFIGS)
def test_family(tmp_path: Path, name: str) -> None:
    model = loaded(tmp_path, small_models.config_of(name))
    # Beyond the positions that the model was trained with, where its angles are stretched.
    decoder = model.decoder(context=32)
    found = generate(decoder, prompt(9 if name == "dynamic" else 23))
    decoder.close()
    model.check(*found)


def test_norms_apart(tmp_path: Path) -> None:
    """The checkpoint's own weights, with two launches of a layer more."""
    config = small_models.config_of("llama2")
    model = loaded(tmp_path, config, folds=False)
    decoder = model.decoder()
    model.check(*generate(decoder, prompt(5), 3))
    assert decoder.launches == 2 * 7 + 4
    decoder.close()
    tensors = small_models.tensors_of(config, ml_dtypes.bfloat16)
    own = model.weights.layers[1].mlp_norm.numpy()
    assert (own == tensors["model.layers.1.post_attention_layernorm.weight"]).all()


def test_many_rows_are_normalised_before_products(
    llama: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prompt by launches of norms whose weights are ones, its steps by products alone."""
    monkeypatch.setattr("examples.llama.forward._NORMED_BY_PRODUCTS", 8)
    decoder = llama.decoder()
    llama.check(*generate(decoder, prompt(33)))
    # Two norms of each layer, and attention of many queries is two launches.
    assert decoder._chunks[20].launches == decoder.launches + 2 * 3
    decoder.close()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_other_types_of_a_checkpoint(tmp_path: Path, dtype: Any) -> None:
    """float16 stays it; float32 is rounded to bfloat16, as the weights of the reference are."""
    config = small_models.config_of("llama2")
    tensors = small_models.tensors_of(config, ml_dtypes.bfloat16)
    if dtype == np.float32:
        small_models.write(tmp_path, config, {n: x.astype(dtype) for n, x in tensors.items()})
        weights = load(Checkpoint(tmp_path), parse(config))
        assert weights.dtype == ml_dtypes.bfloat16
        assert weights.head.numpy().tobytes() == tensors["lm_head.weight"].tobytes()
        return
    model = loaded(tmp_path, config, dtype)
    assert model.weights.dtype == np.float16
    decoder = model.decoder()
    model.check(*generate(decoder, prompt(5), 3))
    decoder.close()


@pytest.mark.parametrize("name", ["llama_bias", "qwen3"])
def test_weights_in_8_bits(tmp_path: Path, name: str) -> None:
    """Within what such roundings explain; and nearer to these than to what they have lost."""
    model = loaded(tmp_path, small_models.config_of(name), in_8_bits=True)
    assert model.weights.layers[0].qkv.weight.dtype.itemsize == 1
    decoder = model.decoder()
    generation, logits = generate(decoder, prompt(23))
    decoder.close()
    found = model.oracle.compare(generation, logits)
    ids, first = generation.ids[:-1], len(generation.prompt) - 1
    exact, rounded = (x.logits(ids)[first:] for x in (model.oracle.exact, model.oracle.rounded))
    unexplained, all_of_it = (np.square(np.array(logits) - x).mean() for x in (rounded, exact))
    print(found, f"squares: {unexplained:.4f} of {all_of_it:.4f}")
    assert found.is_ok and unexplained < all_of_it / 2


def test_shards(tmp_path: Path, llama: Loaded) -> None:
    config = small_models.config_of("qwen2")
    small_models.write(tmp_path, config, shards=3)
    weights = load(Checkpoint(tmp_path), parse(config), folds=True)
    for found, expected in zip(weights.layers, llama.weights.layers, strict=True):
        for name in ("qkv", "o", "gate_up", "down"):
            made, wanted = getattr(found, name), getattr(expected, name)
            assert made.weight.numpy().tobytes() == wanted.weight.numpy().tobytes()
            assert (made.bias is None) == (wanted.bias is None)


def test_a_graph_is_its_launches(llama: Loaded) -> None:
    """To the bit, with a prompt of one token, too."""
    made = []
    for use_graphs in (True, False):
        decoder = llama.decoder(use_graphs=use_graphs)
        generation, logits = generate(decoder, prompt(1))
        assert decoder.use_graphs == use_graphs
        decoder.close()
        made.append(np.array(logits).tobytes())
    assert made[0] == made[1]
    llama.check(generation, logits)


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
    assert kernels == 1 + 2 * 5 + 3  # rows of the embedding, layers, logits and the token
    # The first step is compared with launches and is captured, the second is compared.
    assert seen[1][0] == kernels and seen[2:] == [(0, 0)] * (TOKENS - 3)
    decoder.close()


def test_draws_are_of_a_sequence(llama: Loaded) -> None:
    """The same tokens alone, among others and without graphs; others of another seed."""
    sampling = Sampling(temperature=0.8, top_k=50, top_p=0.95, seed=5)
    made = []
    for graphs, before in ((True, 0), (False, 0), (True, 2)):
        decoder = llama.decoder(
            batch=4, use_graphs=graphs, sampling=dataclasses.replace(sampling, seed=5 - before)
        )
        sequences = Batch(decoder)
        for i in range(before):
            sequences.add(prompt(4 + i, seed=9), TOKENS)
        own, other = (sequences.add(prompt(6), TOKENS) for _ in range(2))
        sequences.run()
        decoder.close()
        made.append((own.made, other.made))
    assert made[0] == made[1] == made[2] and made[0][0] != made[0][1]
    decoder = llama.decoder(sampling=Sampling(temperature=1e-6))
    llama.check(*generate(decoder, prompt(6)))
    decoder.close()


def test_repetitions_are_penalised(llama: Loaded) -> None:
    """Of the prompt's tokens and of those that were made; in a graph that is replayed, too."""
    penalty = 1.6
    decoder = llama.decoder(batch=2, sampling=Sampling(repetition_penalty=penalty))
    sequences = Batch(decoder, keeps_logits=True)
    made = [sequences.add(prompt(count, seed=count), 8) for count in (23, 5)]
    sequences.run()
    decoder.close()
    changed = 0
    for generation in made:
        for i, logits in enumerate(generation.logits):
            so_far = sorted({*generation.ids[: len(generation.prompt) + i]})
            expected = logits.copy()
            seen = expected[so_far]
            expected[so_far] = np.where(seen > 0, seen / np.float32(penalty), seen * penalty)
            assert generation.made[i] == expected.argmax()
            changed += bool(expected.argmax() != logits.argmax())
    assert changed


def test_a_corrupt_replay_is_found(llama: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs go off, the user is told, and tokens are the right ones."""
    decoder = llama.decoder()
    replayed, count = Decoder._replayed, 0

    def corrupt(self: Decoder, *given: Any) -> None:
        nonlocal count
        count += 1
        replayed(self, *given)
        if count == 2:
            found = self.read_logits(1).copy()
            found[0, 5] += 1
            upload(self.logits[:1], found)

    monkeypatch.setattr(Decoder, "_replayed", corrupt)
    with pytest.warns(RuntimeWarning, match="a replayed graph gave other logits"):
        generation, _ = generate(decoder, prompt(4))
    assert not decoder.use_graphs and count == 2
    decoder.close()
    llama.check(generation)


@pytest.mark.parametrize(
    ("plan", "bent"),
    [
        ("plan_decode", {"rotary_interleaved": True}),
        ("plan_prefill", {"rotary_interleaved": True}),
        ("plan_decode", {"window_size": (9, 0)}),
        ("plan_prefill", {"window_size": (7, 0)}),
        ("plan_rms_norm", {"eps": 1.0}),
        ("plan_gemm", {"rms_eps": 0.1}),
        ("plan_gemm", {"alpha": 1.1}),
    ],
)
def test_what_is_wrong_is_found(
    llama: Loaded, monkeypatch: pytest.MonkeyPatch, plan: str, bent: dict[str, Any]
) -> None:
    """Pairs of channels that are none, a window by one too long or short, factors."""
    original = getattr(amdattn, plan)

    def bend(*sizes: int, **options: Any) -> Any:
        changed = {name: x for name, x in bent.items() if options.get(name) != (-1, -1)}
        if "rms_eps" not in options:
            changed.pop("rms_eps", None)
        return original(*sizes, **{**options, **changed})

    monkeypatch.setattr(amdattn, plan, bend)
    decoder = llama.decoder()
    # One chunk of a prompt: of several, the last layer makes keys alone of all but the last.
    found = llama.oracle.compare(*generate(decoder, prompt(20)))
    decoder.close()
    print(found)
    assert not found.is_ok


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
        llama.check(generation)


def test_sequences_leave_for_want_of_pages_and_join_again(llama: Loaded) -> None:
    decoder = llama.decoder(batch=2, pages=3)
    sequences = Batch(decoder)
    generations = [sequences.add(prompt(14, seed=n), 8) for n in (1, 2)]
    sequences.run()
    assert len(sequences._pages) == 3
    assert [g.joins for g in generations] == [1, 2]
    decoder.close()
    for generation in generations:
        llama.check(generation)


@pytest.mark.parametrize("count", [33, 5])
def test_a_shared_prefix(tmp_path: Path, count: int) -> None:
    """Longer than a chunk and shorter than a page; behind it chunks of a few and of many."""
    model = loaded(tmp_path, small_models.config_of("qwen3"))
    decoder = model.decoder(context=64, batch=2, pages=7)
    prefix = prompt(count)
    decoder.share(prefix)
    sequences = Batch(decoder)
    prompts = [prefix + prompt(n, seed=n) for n in (1, 18, 7)]
    assert common_prefix(prompts) == prefix
    generations = [sequences.add(ids, 4) for ids in prompts]
    sequences.run()
    assert decoder.launches == 2 * 8 + 4  # a cascade is three: prefix, own keys, merge
    decoder.close()
    for generation in generations:
        model.check(generation)
    with pytest.raises(ValueError, match="the prompt must begin with the shared prefix"):
        sequences.add(prompt(40, seed=2), 1)


def test_checked_mode_finds_nothing(tmp_path: Path) -> None:
    """A shared prefix, 8 bits, pages given back; caches begin uninitialised."""
    with virtual.check() as found:
        model = loaded(tmp_path, small_models.config_of("qwen3"), in_8_bits=True)
        decoder = model.decoder(batch=2)
        decoder.share(prompt(21))
        sequences = Batch(decoder)
        for n in (1, 18, 5):
            sequences.add(prompt(21) + prompt(n, seed=n), 3)
        sequences.run()
        decoder.close()
    assert not found.errors


def test_prefixes_that_cannot_be_shared(tmp_path: Path, llama: Loaded) -> None:
    decoder = llama.decoder()
    with pytest.raises(ValueError, match="a model with sliding windows cannot share a prefix"):
        decoder.share([5])
    model = loaded(tmp_path, small_models.config_of("llama2"))
    decoder = model.decoder()
    with pytest.raises(ValueError, match="a prefix of 48 tokens leaves no room"):
        decoder.share([5] * 48)
    decoder.share([5])
    with pytest.raises(ValueError, match="is shared already"):
        decoder.share([5])
    decoder.close()


def test_tokens_that_end(llama: Loaded) -> None:
    decoder = llama.decoder()
    made = generate(decoder, prompt(4))[0].made
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


@pytest.mark.slow
def test_memory_is_flat(tmp_path: Path) -> None:
    """Of the process and of the device, from the 100th token to the 1000th."""
    config = {**small_models.config_of("llama2"), "max_position_embeddings": 1024}
    decoder = loaded(tmp_path, config).decoder(context=1024)
    sequences = Batch(decoder)
    sequences.add(prompt(8), 1000)
    before = (0, 0)
    for token in range(1, 1000):
        sequences.step()
        if token == 100:
            before = memory()
    grown = [after - x for after, x in zip(memory(), before, strict=True)]
    print(f"bytes more of the process {grown[0]}, of the device {grown[1]}")
    # The virtual device remembers what was freed, some 50 bytes of each launch, for its reports.
    assert grown[0] < 2**21 and grown[1] == 0
    decoder.close()


def memory() -> tuple[int, int]:
    """Bytes of this process, and of the device."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    _, free, total = hip.hipMemGetInfo()
    return resident, total - free
