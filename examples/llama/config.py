"""config.json of a checkpoint: what this example takes from it, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import rope
from .errors import ModelError


@dataclass(frozen=True)
class Family:
    """What models of an architecture have whatever their config.json says.

    Attributes
    ----------
    bias : bool or None
        Of q, k and v; None: config.json says it, then of the product behind attention, too.
    mlp_bias : bool
        Whether config.json may ask for one in the MLP.
    windows : str
        Which layers have a sliding window: "" none, "all" or "by layer".
    """

    bias: bool | None
    mlp_bias: bool
    qk_norm: bool
    windows: str
    positions: int  # of a config.json that does not say
    head_dim: int | None = None  # the same; None: hidden_size / num_attention_heads


FAMILIES = {
    "LlamaForCausalLM": Family(None, True, False, "", 2048),
    "MistralForCausalLM": Family(False, False, False, "all", 131072),
    "Qwen2ForCausalLM": Family(True, False, False, "by layer", 32768),
    "Qwen3ForCausalLM": Family(None, False, True, "by layer", 32768, head_dim=128),
}
_BY_TYPE = {name.removesuffix("ForCausalLM").lower(): name for name in FAMILIES}
_SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings"),
)
_READ = {
    *_SIZES,
    *("architectures", "model_type", "rms_norm_eps", "hidden_act", "tie_word_embeddings"),
    *("attention_bias", "mlp_bias", "eos_token_id", "rope_theta", "rope_scaling"),
    *("rope_parameters", "sliding_window", "use_sliding_window", "max_window_layers"),
    *("layer_types", "partial_rotary_factor"),
}
# They say nothing of a model's arithmetic, or only of its training.
_WITHOUT_EFFECT = {
    *("_name_or_path", "_attn_implementation", "attention_dropout", "attn_implementation"),
    *("bos_token_id", "dtype", "id2label", "initializer_range", "label2id", "output_attentions"),
    *("output_hidden_states", "pad_token_id", "pretraining_tp", "problem_type", "return_dict"),
    *("torch_dtype", "transformers_version", "use_cache", "chunk_size_feed_forward"),
    *("is_encoder_decoder", "return_dict_in_generate", "unk_token_id", "use_return_dict"),
}
MOST_HEAD_DIM, HEAD_DIM_STEP = 256, 16  # of attention's kernels, whose rotary loads are whole


@dataclass(frozen=True)
class Config:
    """A decoder: its sizes, and which parts it has."""

    family: str
    vocabulary: int
    hidden: int
    inner: int
    layers: int
    heads: int
    heads_kv: int
    head_dim: int
    positions: int  # no sequence is longer
    epsilon: float  # of normalisation
    rope: rope.Rope
    windows: tuple[int | None, ...]  # of each layer: keys that a query sees, its own among them
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    is_tied: bool  # the embedding makes logits, too
    ends: tuple[int, ...]  # tokens after which nothing comes


def read(folder: Path, ignored: Collection[str] = ()) -> Config:
    """The model of a folder; `ignored` are fields of config.json that its user knows better."""
    given = load_json(folder / "config.json")
    ends = given.get("eos_token_id")
    if (folder / "generation_config.json").is_file():
        # Of chat models this one has all tokens that end an answer.
        generation = load_json(folder / "generation_config.json")
        ends = generation.get("eos_token_id") or ends
    return parse({**given, "eos_token_id": ends}, ignored)


def load_json(path: Path) -> dict[str, Any]:
    """An object of a file.

    Raises
    ------
    ModelError
        There is none.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path.parent} has no {path.name}") from None
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ModelError(f"{path} must hold an object")
    return found


def parse(given: Mapping[str, Any], ignored: Collection[str] = ()) -> Config:
    """What config.json holds, checked.

    Raises
    ------
    ModelError
        The architecture or a field is unknown, missing or has a value that no kernel here takes.
    """
    name, family = _family(given)
    _refuse_unknown(given, ignored)
    sizes = _sizes(given, family)
    activation = given.get("hidden_act", "silu")
    if activation != "silu":
        raise ModelError(f'hidden_act={activation!r} of config.json must be "silu"')
    bias = bool(given.get("attention_bias", False))
    if family.bias is not None and given.get("attention_bias") not in (None, family.bias):
        raise ModelError(f"attention_bias={bias} of config.json must be {family.bias} of {name}")
    mlp_bias = bool(given.get("mlp_bias", False))
    if mlp_bias and not family.mlp_bias:
        raise ModelError(f"mlp_bias=True of config.json must be False of {name}")
    ends = given.get("eos_token_id")
    turned = _rope(given, sizes)
    return Config(
        family=name,
        vocabulary=sizes["vocab_size"],
        hidden=sizes["hidden_size"],
        inner=sizes["intermediate_size"],
        layers=sizes["num_hidden_layers"],
        heads=sizes["num_attention_heads"],
        heads_kv=sizes["num_key_value_heads"],
        head_dim=sizes["head_dim"],
        positions=turned.longest(sizes["max_position_embeddings"]),
        epsilon=_epsilon(given),
        rope=turned,
        windows=_windows(given, family, sizes["num_hidden_layers"]),
        qkv_bias=bias if family.bias is None else family.bias,
        o_bias=bias and family.bias is None,
        mlp_bias=mlp_bias,
        qk_norm=family.qk_norm,
        is_tied=bool(given.get("tie_word_embeddings", False)),
        ends=tuple(ends) if isinstance(ends, list) else () if ends is None else (int(ends),),
    )


def _family(given: Mapping[str, Any]) -> tuple[str, Family]:
    named = given.get("architectures") or [_BY_TYPE.get(given.get("model_type", ""))]
    if len(named) != 1 or named[0] not in FAMILIES:
        found = given.get("architectures") or given.get("model_type")
        raise ModelError(
            f"architectures={found!r} of config.json must be one of {', '.join(FAMILIES)}"
        )
    return named[0], FAMILIES[named[0]]


def _refuse_unknown(given: Mapping[str, Any], ignored: Collection[str]) -> None:
    for field, value in given.items():
        if field not in _READ | _WITHOUT_EFFECT and field not in ignored and value is not None:
            raise ModelError(
                f"config.json has {field}={json.dumps(value)}, which may change the arithmetic and "
                f"is not known here; --ignore-field {field} runs the model as if it were not there"
            )
    if given.get("partial_rotary_factor") not in (None, 1, 1.0):
        raise ModelError(
            f"partial_rotary_factor={given['partial_rotary_factor']} of config.json must be 1"
        )


def _sizes(given: Mapping[str, Any], family: Family) -> dict[str, int]:
    found = {name: given[name] for name in _SIZES if given.get(name) is not None}
    found.setdefault("max_position_embeddings", family.positions)
    if family is FAMILIES["LlamaForCausalLM"] and "num_attention_heads" in found:
        found.setdefault("num_key_value_heads", found["num_attention_heads"])
    for name in _SIZES:
        if name not in found and name != "head_dim":
            raise ModelError(f"config.json has no {name}")
        if name in found and (type(found[name]) is not int or found[name] < 1):
            raise ModelError(f"{name}={found[name]!r} of config.json must be a positive integer")
    heads, heads_kv = found["num_attention_heads"], found["num_key_value_heads"]
    if heads % heads_kv:
        raise ModelError(
            f"num_key_value_heads={heads_kv} of config.json must divide num_attention_heads={heads}"
        )
    found.setdefault("head_dim", family.head_dim or found["hidden_size"] // heads)
    if found["head_dim"] % HEAD_DIM_STEP or found["head_dim"] > MOST_HEAD_DIM:
        raise ModelError(
            f"head_dim={found['head_dim']} of config.json must be a multiple of {HEAD_DIM_STEP} up "
            f"to {MOST_HEAD_DIM}"
        )
    return found


def _epsilon(given: Mapping[str, Any]) -> float:
    found = given.get("rms_norm_eps")
    if found is None:
        raise ModelError("config.json has no rms_norm_eps")
    return float(found)


def _rope(given: Mapping[str, Any], sizes: Mapping[str, int]) -> rope.Rope:
    """Newer files have all in `rope_parameters`, older ones `rope_theta` and `rope_scaling`."""
    fields = dict(given.get("rope_parameters") or given.get("rope_scaling") or {})
    if fields.pop("partial_rotary_factor", 1) not in (None, 1, 1.0):
        raise ModelError("partial_rotary_factor of config.json must be 1")
    theta = fields.get("rope_theta") or given.get("rope_theta") or 10000.0
    return rope.parse(fields, float(theta), sizes["head_dim"], sizes["max_position_embeddings"])


def _windows(given: Mapping[str, Any], family: Family, layers: int) -> tuple[int | None, ...]:
    kinds = given.get("layer_types")
    # Of Mistral's files one that says nothing means 4096, as their first model had it.
    window = given.get("sliding_window", 4096)
    if family.windows == "" and given.get("sliding_window") is not None:
        raise ModelError(f"sliding_window={window} of config.json is of no Llama")
    if family.windows == "by layer":
        if not given.get("use_sliding_window", False):
            window = None
        first = given.get("max_window_layers", 28)
        wanted = ["sliding" if i >= first and window else "full" for i in range(layers)]
    else:
        wanted = ["sliding" if family.windows and window else "full"] * layers
    if kinds is not None:
        known = {"full_attention": "full", "sliding_attention": "sliding"}
        if len(kinds) != layers or not set(kinds) <= set(known):
            raise ModelError(
                f"layer_types={kinds} of config.json must be one of {', '.join(known)} for each of "
                f"{layers} layers"
            )
        found = [known[kind] for kind in kinds]
        if family.windows == "by layer" and (window or "sliding" not in found):
            wanted = found
        elif found != wanted:
            raise ModelError("layer_types of config.json disagrees with its sliding windows")
    if window is not None and (type(window) is not int or window < 1):
        raise ModelError(f"sliding_window={window!r} of config.json must be a positive integer")
    return tuple(window if kind == "sliding" else None for kind in wanted)
