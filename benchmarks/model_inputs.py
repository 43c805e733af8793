"""Q, K and V of a model over this repository's text, a file for `amdattn bench --inputs`.

    python benchmarks/model_inputs.py [FILE.npz] [--model NAME] [--keys 4096] [--head-dim 128]
                                      [--layer N ...]

"minilm" is all-MiniLM-L6-v2, which needs what examples/minilm does and sees texts of 256 tokens;
"llama" the causal decoder of examples/jax_train, which is trained first, a minute in float32 by
XLA, and sees texts of 64 bytes that were held out. The keys and queries of several texts are
joined. Columns are embedded in the head size by an orthogonal map, and scaled so that scores,
q . k / sqrt(columns), stay what they are. All heads of the layers are heads of the file.
Prints of the scores, in nats and without a file too: standard deviation within a row, range (a
row's greatest above its mean), rise (above the greatest of its first 64 keys), and the standard
deviation of the logarithm of K's norms: what sevenths of the heads have at most, and the seven
heads of the class "model-like" in the same order.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from amdattn.bench.inputs import MODEL_LIKE, Sizes, entry

ROOT = Path(__file__).resolve().parent.parent
Array = Any
FIGURES = ("sd", "range", "rise", "log norms")
_PARTS = len(MODEL_LIKE.heads)
_STEPS = 1000  # of training
_ENOUGH = 1800  # characters of a text that has 256 tokens, seldom fewer
_FIRST, _EVERY = 64, 8  # keys that a rise is beyond; rows that stand for all of them


def texts() -> Iterator[str]:
    """Paragraphs of the documentation, as many as make a text."""
    text = ""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for paragraph in re.split(r"\n\n+", page.read_text(encoding="utf-8")):
            text += paragraph + "\n"
            if len(text) >= _ENOUGH:
                yield text
                text = ""


def of_minilm(keys: int) -> list[list[Array]]:
    """q, k and v of each layer: (keys, heads, 32)."""
    sys.path.append(str(ROOT / "examples" / "minilm"))
    from minilm import MiniLM, attention_numpy

    model = MiniLM(np.float32)
    some: list[str] = []
    tokens = longest = 0
    for text in texts():
        length = len(model.tokenize([text]).ids)
        longest = max(longest, length)
        if length == longest:  # all alike: the model is asked for each layer once
            some.append(text)
            tokens += length
        if tokens >= keys:
            break
    if tokens < keys:
        raise SystemExit(f"--keys={keys} is more than the {tokens} that the text has")
    found: list[list[Array]] = []

    def attention(q: Array, k: Array, v: Array, scale: float) -> Array:
        found.append([x.reshape(-1, *x.shape[2:])[:keys] for x in (q, k, v)])
        return attention_numpy(q, k, v, scale)

    model.embed(some, attention)
    return found


def of_llama(keys: int) -> list[list[Array]]:
    """Likewise, (keys, heads, 16): keys as they are turned, once for each head of q."""
    sys.path.append(str(ROOT / "examples" / "jax_train"))
    import llama
    import train
    from computing import EXACT

    task = train.task_of(llama, llama.Sizes(), _STEPS)
    kept: dict[int, Any] = {}
    print(f"trained: {train.train('llama', EXACT, task, 0, kept).looks[_STEPS]:.4f} nats a byte")
    length = task.sizes.length
    if keys > len(task.held_out) or keys % length:
        raise SystemExit(f"--keys={keys} must be a multiple of {length} up to the text's end")
    found: list[list[Array]] = []

    def attention(q: Array, k: Array, v: Array, **options: Any) -> Array:
        group = q.shape[2] // k.shape[2]
        each = (q, *(np.repeat(x, group, axis=2) for x in (k, v)))
        found.append([np.asarray(x).reshape(-1, *x.shape[2:]) for x in each])
        return EXACT.attention(q, k, v, **options)

    ids = task.held_out[:keys].reshape(-1, length).astype(np.int32)
    llama.logits(kept[_STEPS], ids, task.sizes, EXACT._replace(attention=attention))
    return found


MODELS = {"minilm": ("all-MiniLM-L6-v2", of_minilm), "llama": ("trained Llama", of_llama)}


def of_layers(found: Sequence[Sequence[Array]], layers: Sequence[int]) -> list[Array]:
    """Q, k and v of these layers, or of all, whose heads are one beside the other."""
    if bad := [layer for layer in layers if layer not in range(len(found))]:
        raise SystemExit(f"--layer={bad[0]} must be in 0..{len(found) - 1}")
    taken = [found[layer] for layer in layers or range(len(found))]
    return [np.concatenate(parts, axis=1) for parts in zip(*taken, strict=True)]


def embedded(q: Array, k: Array, v: Array, columns: int) -> list[Array]:
    """The same with so many columns, turned: scores are what they were, up to rounding."""
    of_model = q.shape[-1]
    if columns < of_model:
        raise SystemExit(f"--head-dim={columns} must be at least the model's {of_model}")
    rng = np.random.default_rng(0)
    maps = [np.linalg.qr(rng.standard_normal((columns, of_model)))[0].T for _ in range(2)]
    scale = (columns / of_model) ** 0.25  # of q and of k: scores are divided by sqrt(columns)
    made = [scale * q @ maps[0], scale * k @ maps[0], v @ maps[1]]
    return [x.astype(np.float32) for x in made]


def scores(q: Array, k: Array) -> Array:
    """(rows, keys), of some rows of one head."""
    return q[::_EVERY].astype(np.float64) @ k.T / np.sqrt(q.shape[-1])


def figures(q: Array, k: Array) -> list[float]:
    """FIGURES of one head, means over rows."""
    found, norms = scores(q, k), np.linalg.norm(k, axis=-1)
    top = found.max(axis=1)
    return [
        float(found.std(axis=1).mean()),
        float((top - found.mean(axis=1)).mean()),
        float((top - found[:, :_FIRST].max(axis=1)).mean()),
        float(np.log(norms).std()),
    ]


def of_heads(q: Array, k: Array) -> list[list[float]]:
    """Of q and k, (rows, heads, columns)."""
    return [figures(q[:, h], k[:, h]) for h in range(q.shape[1])]


def of_class(keys: int, columns: int) -> list[list[float]]:
    """Of the heads of MODEL_LIKE."""
    sizes = Sizes(1, keys, keys, _PARTS, _PARTS, columns, columns)
    q, k = (entry(MODEL_LIKE, sizes, name, 0) for name in "qk")
    return of_heads(q, k)


def sevenths(heads: Sequence[Sequence[float]], name: str) -> list[float]:
    """What so many sevenths of the heads have at most."""
    ordered = sorted(head[FIGURES.index(name)] for head in heads)
    return [ordered[(n + 1) * len(ordered) // _PARTS - 1] for n in range(_PARTS)]


def table(model: str, heads: Sequence[Sequence[float]], own: Sequence[Sequence[float]]) -> str:
    """Sevenths of the model's heads and of MODEL_LIKE."""
    lines = ["| | " + " | ".join(f"{i + 1}/{_PARTS}" for i in range(_PARTS)) + " |"]
    lines.append("|---|" + "--:|" * _PARTS)
    for name in FIGURES:
        for whose, of in ((model, heads), ("model-like", own)):
            cells = " | ".join(f"{x:.2f}" for x in sevenths(of, name))
            lines.append(f"| {name}, {whose} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", help="to write, FILE.npz")
    parser.add_argument("--model", choices=MODELS, default="minilm")
    parser.add_argument("--keys", type=int, default=4096)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--layer", type=int, nargs="+", default=[], help="default: all")
    options = parser.parse_args()
    name, of_model = MODELS[options.model]
    q, k, v = of_layers(of_model(options.keys), options.layer)
    wide = embedded(q, k, v, options.head_dim)
    moved = max(
        float(np.abs(scores(q[:, h], k[:, h]) - scores(wide[0][:, h], wide[1][:, h])).max())
        for h in range(0, q.shape[1], 5)
    )
    print(
        f"{q.shape[1]} heads, {options.keys} keys; embedding changes scores by at most {moved:.1e}"
    )
    print(table(name, of_heads(q, k), of_class(options.keys, options.head_dim)))
    if options.file:
        np.savez(options.file, **dict(zip("qkv", (x[None] for x in wide), strict=True)))
        print(f"{options.file}: {options.file.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
