"""Random small checkpoints of each family, in Hugging Face's layout, to try things with.

python -m examples.llama.small_models FOLDER [--name qwen3]
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import ml_dtypes
import numpy as np
import typer
from numpy.typing import NDArray

_NAMES = {np.dtype(ml_dtypes.bfloat16): "BF16", np.dtype(np.float16): "F16"}
_NAMES[np.dtype(np.float32)] = "F32"
_SMALL = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "eos_token_id": 2,
    "torch_dtype": "bfloat16",
}
_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
# config.json by what a checkpoint shows.
CONFIGS: dict[str, dict[str, Any]] = {
    "llama2": {"architectures": ["LlamaForCausalLM"], "num_key_value_heads": 4},
    "llama3": {
        "architectures": ["LlamaForCausalLM"],
        "rope_theta": 500000.0,
        "rope_scaling": {**_LLAMA3, "original_max_position_embeddings": 32},
        "tie_word_embeddings": True,
        "eos_token_id": [2, 3],
    },
    "llama_bias": {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": True,
        "mlp_bias": True,
        "rope_scaling": {"type": "linear", "factor": 4.0},
    },
    "mistral": {"architectures": ["MistralForCausalLM"], "sliding_window": 7, "head_dim": 32},
    "qwen2": {
        "architectures": ["Qwen2ForCausalLM"],
        "use_sliding_window": True,
        "sliding_window": 9,
        "max_window_layers": 1,
        "rope_scaling": {
            "type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    },
    "qwen3": {
        "architectures": ["Qwen3ForCausalLM"],
        "head_dim": 32,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        "layer_types": ["full_attention"] * 2,
    },
    "dynamic": {
        "architectures": ["LlamaForCausalLM"],
        "max_position_embeddings": 12,
        "rope_scaling": {"type": "dynamic", "factor": 3.0},
    },
}


def config_of(name: str) -> dict[str, Any]:
    """The config.json of one of `CONFIGS`."""
    (architecture,) = CONFIGS[name]["architectures"]
    model_type = architecture.removesuffix("ForCausalLM").lower()
    return {**_SMALL, "model_type": model_type, **CONFIGS[name]}


def tensors_of(config: dict[str, Any], dtype: Any = ml_dtypes.bfloat16) -> dict[str, NDArray[Any]]:
    """Random weights by their names: products keep sizes, norms and biases are seen in results."""
    # By a list of names apart from that of weights.py, which tests hold to it.
    rng = np.random.default_rng(0)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads, heads_kv = config["num_attention_heads"], config["num_key_value_heads"]
    dim = config.get("head_dim", hidden // heads)
    (architecture,) = config["architectures"]
    has_bias = config.get("attention_bias", architecture == "Qwen2ForCausalLM")
    has_o_bias = config.get("attention_bias", False)
    has_mlp_bias = config.get("mlp_bias", False)
    found: dict[str, NDArray[Any]] = {}

    def linear(name: str, n: int, k: int, with_bias: bool) -> None:
        found[name + ".weight"] = rng.standard_normal((n, k)) * 1.4 / math.sqrt(k)
        if with_bias:
            found[name + ".bias"] = rng.standard_normal(n) / 2

    def norm(name: str, n: int) -> None:
        found[name + ".weight"] = rng.uniform(0.5, 1.5, n)

    # Small beside what layers add, so that a tied head does not just repeat the token.
    found["model.embed_tokens.weight"] = rng.standard_normal((config["vocab_size"], hidden)) * 0.3
    for i in range(config["num_hidden_layers"]):
        attention, mlp = f"model.layers.{i}.self_attn", f"model.layers.{i}.mlp"
        norm(f"model.layers.{i}.input_layernorm", hidden)
        linear(f"{attention}.q_proj", heads * dim, hidden, has_bias)
        linear(f"{attention}.k_proj", heads_kv * dim, hidden, has_bias)
        linear(f"{attention}.v_proj", heads_kv * dim, hidden, has_bias)
        linear(f"{attention}.o_proj", hidden, heads * dim, has_o_bias)
        if architecture == "Qwen3ForCausalLM":
            norm(f"{attention}.q_norm", dim)
            norm(f"{attention}.k_norm", dim)
        norm(f"model.layers.{i}.post_attention_layernorm", hidden)
        linear(f"{mlp}.gate_proj", inner, hidden, has_mlp_bias)
        linear(f"{mlp}.up_proj", inner, hidden, has_mlp_bias)
        linear(f"{mlp}.down_proj", hidden, inner, has_mlp_bias)
    norm("model.norm", hidden)
    if not config.get("tie_word_embeddings"):
        linear("lm_head", config["vocab_size"], hidden, False)
    return {name: tensor.astype(dtype) for name, tensor in found.items()}


def write_safetensors(path: Path, tensors: dict[str, NDArray[Any]]) -> None:
    """One file; tensors lie in the order of the dictionary."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        dtype, shape = _NAMES[tensor.dtype], list(tensor.shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(tensor.tobytes() for tensor in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write(
    folder: Path,
    config: dict[str, Any],
    tensors: dict[str, NDArray[Any]] | None = None,
    shards: int = 1,
) -> Path:
    """A folder as `python -m examples.llama` takes it, without a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tensors = tensors_of(config) if tensors is None else tensors
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors)
        return folder
    files: dict[str, str] = {}
    for i in range(shards):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        names = list(tensors)[i::shards]
        write_safetensors(folder / file, {name: tensors[name] for name in names})
        files |= dict.fromkeys(names, file)
    index = {"metadata": {}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return folder


def main(
    folder: Annotated[Path, typer.Argument(help="Written to; made if it is not there.")],
    name: Annotated[str, typer.Option(help=f"One of {', '.join(CONFIGS)}.")] = "qwen3",
) -> None:
    """Write a random model: its text is none, its arithmetic is a whole family's."""
    if name not in CONFIGS:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(CONFIGS)}")
    write(folder, {**config_of(name), "eos_token_id": None})


if __name__ == "__main__":
    typer.run(main)
