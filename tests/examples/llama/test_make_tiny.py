"""examples/llama/make_tiny.py: a model that is trained here, and what the device makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from examples.llama import make_tiny
from examples.llama.batch import Batch
from examples.llama.checkpoint import Checkpoint
from examples.llama.comparison import Oracle
from examples.llama.config import read
from examples.llama.model import Decoder
from examples.llama.tokenizer import Tokenizer
from examples.llama.weights import load, shapes

pytest.importorskip("jax")
HELD_OUT_LOSS = 1.35  # nats a byte; 1.304 where it was written


def check(folder: Path, tokens: int) -> str:
    """Greedy text of the device, held to float64."""
    config, checkpoint = read(folder), Checkpoint(folder)
    weights = load(checkpoint, config)
    decoder = Decoder(config, weights, context=16 + tokens, page=16)
    sequences = Batch(decoder)
    generation = sequences.add(list(b"The kernel"), tokens)
    sequences.run()
    decoder.close()
    assert Oracle(checkpoint, config, weights).compare(generation).is_ok
    return bytes(generation.made).decode(errors="replace")


def test_a_few_steps(tmp_path: Path) -> None:
    """The same every time; the device runs what was written."""
    losses = [make_tiny.make(tmp_path, steps=2) for _ in range(2)]
    assert losses[0] == losses[1] < 7
    assert sum(x[0] * (x[1:] or (1,))[0] for x in shapes(read(tmp_path)).values()) > 900_000
    check(tmp_path, 3)


def test_the_tokenizer_is_of_bytes(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_text(json.dumps(make_tiny.byte_tokenizer()))
    tokenizer, text = Tokenizer(tmp_path), "The kernel \u2192 na\u00efve\n\tx = 1"
    assert tokenizer.encode(text) == list(text.encode())
    assert tokenizer.decode(list(text.encode())) == text


@pytest.mark.slow
def test_the_loss_that_the_documentation_states(tmp_path: Path) -> None:
    loss = make_tiny.make(tmp_path)
    text = check(tmp_path, 48)
    print(f"{loss:.3f} nats a byte: {text!r}")
    assert loss <= HELD_OUT_LOSS
