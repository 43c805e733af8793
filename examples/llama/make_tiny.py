"""Train a Llama of a million parameters on this repository's own text, by JAX on the CPU.

python -m examples.llama.make_tiny FOLDER
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import ml_dtypes
import numpy as np
import typer
from numpy.typing import NDArray
from rich.progress import Progress

from .config import Config, parse
from .errors import ModelError
from .small_models import write
from .weights import EMBEDDING, NORM, shapes

ROOT = Path(__file__).resolve().parents[2]
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 256,  # bytes
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "eos_token_id": None,
    "torch_dtype": "bfloat16",
}
ROWS, LENGTH = 16, 192  # of a batch, in bytes
STEPS, WARM_UP, RATE = 400, 40, 3e-3
HELD_OUT = 16  # one of so many files is not trained on
Tensors = dict[str, Any]


def main(
    folder: Annotated[Path, typer.Argument(help="Written to; made if it is not there.")],
    steps: Annotated[int, typer.Option(help="Of training.", min=1)] = STEPS,
    seed: Annotated[int, typer.Option(help="Of weights and batches.")] = 0,
) -> None:
    """Train, write, and print the loss of text that the model has not seen."""
    begin = time.perf_counter()
    loss = make(folder, steps, seed)
    seconds = time.perf_counter() - begin
    print(f"{steps} steps in {seconds:.0f} s on this CPU, held-out loss {loss:.3f} nats a byte")


def make(folder: Path, steps: int = STEPS, seed: int = 0) -> float:
    """A checkpoint with a tokenizer of bytes; the held-out loss in nats a byte.

    Raises
    ------
    ModelError
        JAX is not installed.
    """
    try:
        import jax
    except ModuleNotFoundError:
        raise ModelError(
            "a model is made by JAX, which is not installed: pip install jax, or give MODEL_DIR"
        ) from None
    with jax.default_device(jax.devices("cpu")[0]):
        seen, unseen = texts()
        tensors = _trained(jax, parse(CONFIG), seen, steps, seed)
        # What is written is what is measured.
        rounded = {name: np.asarray(x).astype(ml_dtypes.bfloat16) for name, x in tensors.items()}
        wide = {name: x.astype(np.float32) for name, x in rounded.items()}
        rows = next(batches(unseen, 64, seed=1))
        loss = float(jax.jit(lambda p, text: _loss(jax, p, text, parse(CONFIG)))(wide, rows))
    write(folder, CONFIG, rounded)
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer()), encoding="utf-8")
    return loss


def texts() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The repository's pages and modules: those to train on, and those held out."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    files += sorted((ROOT / "amdattn").rglob("*.py"))
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    for i, file in enumerate(files):
        parts[i % HELD_OUT == HELD_OUT - 1].append(file.read_bytes() + b"\n")
    seen, unseen = (np.frombuffer(b"".join(part), np.uint8) for part in parts)
    return seen, unseen


def batches(text: NDArray[np.uint8], rows: int, seed: int) -> Iterator[NDArray[np.int32]]:
    """Pieces from anywhere, (rows, LENGTH + 1): each byte, and the one behind it."""
    rng = np.random.default_rng(seed)
    while True:
        begins = rng.integers(0, len(text) - LENGTH - 1, rows)
        yield text[begins[:, None] + np.arange(LENGTH + 1)].astype(np.int32)


def _initial(config: Config, seed: int) -> Tensors:
    rng = np.random.default_rng(seed)
    found: Tensors = {}
    for name, shape in shapes(config).items():
        if len(shape) == 1:
            found[name] = np.ones(shape, np.float32)
            continue
        scale = 0.05 if name == EMBEDDING else shape[1] ** -0.5
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            scale /= math.sqrt(2 * config.layers)
        found[name] = (rng.standard_normal(shape) * scale).astype(np.float32)
    return found


def _trained(jax: Any, config: Config, text: NDArray[np.uint8], steps: int, seed: int) -> Tensors:
    """By Adam, with a rate that rises, then falls along a cosine."""
    np_like = jax.numpy
    tree = jax.tree.map

    def step(p: Tensors, m: Tensors, v: Tensors, text: Any, t: Any) -> tuple[Any, ...]:
        g = jax.grad(lambda p: _loss(jax, p, text, config))(p)
        norm = np_like.sqrt(sum((x * x).sum() for x in jax.tree.leaves(g)))
        g = tree(lambda x: x * np_like.minimum(1, 1 / norm), g)
        m = tree(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = tree(lambda v, g: 0.95 * v + 0.05 * g * g, v, g)
        fall = 0.55 + 0.45 * np_like.cos(np_like.pi * t / steps)
        rate = RATE * np_like.minimum(1, t / WARM_UP) * fall
        unbiased = 1 - 0.9**t, 1 - 0.95**t

        def moved(p: Any, m: Any, v: Any) -> Any:
            return p - rate * (m / unbiased[0]) / (np_like.sqrt(v / unbiased[1]) + 1e-8)

        return tree(moved, p, m, v), m, v

    run = jax.jit(step, donate_argnums=(0, 1, 2))
    p = _initial(config, seed)
    m, v = ({name: np.zeros_like(x) for name, x in p.items()} for _ in range(2))
    given = batches(text, ROWS, seed)
    with Progress(transient=True) as progress:
        for t in progress.track(range(1, steps + 1), description="training"):
            p, m, v = run(p, m, v, next(given), float(t))
    return p


def _loss(jax: Any, p: Tensors, text: Any, config: Config) -> Any:
    """Mean nats a byte."""
    logits = jax.nn.log_softmax(_logits(jax, p, text[:, :-1], config))
    return -jax.numpy.take_along_axis(logits, text[:, 1:, None], axis=-1).mean()


def _logits(jax: Any, p: Tensors, ids: Any, config: Config) -> Any:
    """The model as Hugging Face's names have it."""
    np_like, c = jax.numpy, config
    cos, sin = (x.astype(np.float32)[:, None] for x in c.rope.tables(LENGTH))
    seen = np.tril(np.ones((LENGTH, LENGTH), bool))

    def norm(x: Any, name: str) -> Any:
        scale = jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + c.epsilon)
        return x * scale * p[f"{name}.weight"]

    def turned(x: Any) -> Any:
        a, b = np_like.split(x, 2, axis=-1)
        return np_like.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def heads(x: Any, name: str) -> Any:
        return (x @ p[f"{name}_proj.weight"].T).reshape(*ids.shape, -1, c.head_dim)

    x = p[EMBEDDING][ids]
    for i in range(c.layers):
        prefix = f"model.layers.{i}."
        h = norm(x, prefix + "input_layernorm")
        q, k, v = (heads(h, f"{prefix}self_attn.{name}") for name in "qkv")
        q, k = turned(q), turned(k)
        k, v = (np_like.repeat(x, c.heads // c.heads_kv, axis=2) for x in (k, v))
        scores = np_like.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(c.head_dim)
        shares = jax.nn.softmax(np_like.where(seen, scores, -np_like.inf))
        mixed = np_like.einsum("bhqk,bkhd->bqhd", shares, v).reshape(*ids.shape, -1)
        x = x + mixed @ p[prefix + "self_attn.o_proj.weight"].T
        h = norm(x, prefix + "post_attention_layernorm")
        gate, up = (h @ p[f"{prefix}mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        x = x + (jax.nn.silu(gate) * up) @ p[prefix + "mlp.down_proj.weight"].T
    return norm(x, NORM.removesuffix(".weight")) @ p[EMBEDDING].T


def byte_tokenizer() -> dict[str, Any]:
    """A tokenizer.json whose tokens are bytes, each its own number.

    The format writes a byte as a character: itself where that can be seen, else one from 256 on.
    """
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    names = {byte: chr(byte) for byte in visible}
    names |= {byte: chr(256 + i) for i, byte in enumerate(hidden)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {**level, "use_regex": False},
        "decoder": {**level, "use_regex": False},
        "model": {"type": "BPE", "vocab": {names[i]: i for i in range(256)}, "merges": []},
    }


if __name__ == "__main__":
    typer.run(main)
