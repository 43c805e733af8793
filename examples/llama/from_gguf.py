"""A GGUF file of llama.cpp to a folder in Hugging Face's layout, which the example runs.

python -m examples.llama.from_gguf FILE.gguf FOLDER

It takes the package gguf, which reads such files and knows how their weights are quantised, and
tokenizers. Weights become bfloat16: what 4 to 8 bits stand for, rounded. Architectures are llama
and qwen2, tokenizers those of byte pairs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import ml_dtypes
import numpy as np
import typer
from numpy.typing import NDArray

from .errors import ModelError
from .small_models import write_safetensors
from .tokenizer import package

_ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}
_OF_MODEL = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_OF_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# How text is cut before pairs of bytes are merged, by what files call it: whether digits stand
# alone; and then the rule of GPT-2.
_CUTS = {"gpt-2": False, "smollm": True}
_CONTROL = 3  # type of a token that is no text


def convert(file: Path, folder: Path) -> None:
    """Write config.json, tokenizer.json, tokenizer_config.json and model.safetensors.

    Raises
    ------
    ModelError
        The file is of another architecture or has another tokenizer, or a package is missing.
    """
    reader = package("gguf").GGUFReader(file)
    facts = {name: field.contents() for name, field in reader.fields.items()}
    architecture = facts["general.architecture"]
    if architecture not in _ARCHITECTURES:
        raise ModelError(
            f"{file} is of architecture {architecture}; it must be {' or '.join(_ARCHITECTURES)}"
        )
    tensors = dict(_tensors(reader, facts, architecture))
    folder.mkdir(parents=True, exist_ok=True)
    config = _config(facts, architecture, "lm_head.weight" not in tensors)
    _write(folder / "config.json", config)
    _write_tokenizer(folder, facts)
    write_safetensors(folder / "model.safetensors", tensors)


def _config(facts: dict[str, Any], architecture: str, is_tied: bool) -> dict[str, Any]:
    def of(name: str) -> Any:
        return facts[f"{architecture}.{name}"]

    heads = of("attention.head_count")
    config = {
        "architectures": [_ARCHITECTURES[architecture]],
        "model_type": architecture,
        "vocab_size": len(facts["tokenizer.ggml.tokens"]),
        "hidden_size": of("embedding_length"),
        "intermediate_size": of("feed_forward_length"),
        "num_hidden_layers": of("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": of("attention.head_count_kv"),
        "head_dim": facts.get(f"{architecture}.attention.key_length")
        or of("embedding_length") // heads,
        "max_position_embeddings": of("context_length"),
        "rms_norm_eps": of("attention.layer_norm_rms_epsilon"),
        "rope_theta": of("rope.freq_base"),
        "hidden_act": "silu",
        "tie_word_embeddings": is_tied,
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
        "bos_token_id": facts.get("tokenizer.ggml.bos_token_id"),
        "torch_dtype": "bfloat16",
    }
    for name in ("rope.scaling.type", "expert_count"):
        if facts.get(f"{architecture}.{name}") not in (None, "none", 0):
            raise ModelError(f"{architecture}.{name} is not taken")
    return config


def _tensors(reader: Any, facts: dict[str, Any], architecture: str) -> Any:
    """Names of Hugging Face's, and weights; shapes of the file are from the fastest axis on."""
    dequantize = package("gguf.quants").dequantize
    heads = {"attn_q": "head_count", "attn_k": "head_count_kv"}
    for tensor in reader.tensors:
        values: NDArray[np.float32] = dequantize(tensor.data, tensor.tensor_type)
        shape = tuple(int(n) for n in reversed(tensor.shape))
        *block, name, kind = tensor.name.split(".")
        if architecture == "llama" and name in heads:
            count = facts[f"llama.attention.{heads[name]}"]
            values = _halves(values.reshape(shape), count)
        known = _OF_LAYER if block else _OF_MODEL
        if name not in known:
            raise ModelError(f"tensor {tensor.name} is unknown")
        path = f"model.layers.{block[1]}." if block else ""
        yield (
            f"{path}{known[name]}.{kind}",
            values.reshape(shape).astype(ml_dtypes.bfloat16),
        )


def _halves(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows of heads whose pairs are half a head apart; in the file they are neighbours."""
    rows, *rest = values.shape
    pairs = values.reshape(heads, rows // heads // 2, 2, *rest)
    return pairs.swapaxes(1, 2).reshape(values.shape)


def _write_tokenizer(folder: Path, facts: dict[str, Any]) -> None:
    tokenizers = package("tokenizers")
    kind, cut = facts["tokenizer.ggml.model"], facts.get("tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2" or cut not in _CUTS:
        raise ModelError(
            f"the tokenizer is {kind!r} with {cut!r}; it must be 'gpt2' with "
            f"{' or '.join(map(repr, _CUTS))}"
        )
    tokens = facts["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in facts["tokenizer.ggml.merges"]]
    model = tokenizers.models.BPE({token: i for i, token in enumerate(tokens)}, merges)
    made = tokenizers.Tokenizer(model)
    by_bytes = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digits = [tokenizers.pre_tokenizers.Digits(individual_digits=True)] * _CUTS[cut]
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([*digits, by_bytes])
    made.decoder = tokenizers.decoders.ByteLevel()
    types = facts["tokenizer.ggml.token_type"]
    made.add_special_tokens(
        [t for t, type_ in zip(tokens, types, strict=True) if type_ == _CONTROL]
    )
    made.save(str(folder / "tokenizer.json"))
    settings = {
        f"{name}_token": tokens[facts[f"tokenizer.ggml.{name}_token_id"]]
        for name in ("bos", "eos")
        if f"tokenizer.ggml.{name}_token_id" in facts
    }
    if "tokenizer.chat_template" in facts:
        settings["chat_template"] = facts["tokenizer.chat_template"]
    _write(folder / "tokenizer_config.json", settings)


def _write(file: Path, document: dict[str, Any]) -> None:
    file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def main(
    file: Annotated[Path, typer.Argument(help="A file of llama.cpp.")],
    folder: Annotated[Path, typer.Argument(help="To write to.")],
) -> None:
    """Convert a model; exit code 1 if it cannot be taken."""
    try:
        convert(file, folder)
    except ModelError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"wrote {folder}")


if __name__ == "__main__":
    typer.run(main)
