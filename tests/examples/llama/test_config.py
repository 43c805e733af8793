"""examples/llama/config.py: what it takes of config.json, and what it refuses by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.llama.config import parse, read
from examples.llama.small_models import CONFIGS, config_of

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize("name", CONFIGS)
def test_families(name: str) -> None:
    config = parse(config_of(name))
    assert config.family == CONFIGS[name]["architectures"][0]
    assert config.qk_norm == (name == "qwen3")
    assert config.qkv_bias == (name in ("qwen2", "llama_bias"))
    assert config.o_bias == config.mlp_bias == (name == "llama_bias")
    windows = {"mistral": (7, 7), "qwen2": (None, 9)}
    assert config.windows == windows.get(name, (None, None))
    assert config.positions == {"llama_bias": 256, "dynamic": 36}.get(name, 64)


def test_what_is_left_out_is_as_the_family_has_it() -> None:
    given = config_of("llama2")
    del given["num_key_value_heads"], given["max_position_embeddings"], given["eos_token_id"]
    config = parse(given)
    assert (config.heads_kv, config.head_dim, config.positions) == (4, 16, 2048)
    assert config.rope.theta == 10000 and config.ends == () and not config.is_tied
    without = {**config_of("mistral"), "sliding_window": None}
    assert parse(without).windows == (None, None)
    del without["sliding_window"]
    assert parse(without).windows == (4096, 4096)
    by_type = config_of("qwen2")
    del by_type["architectures"]
    assert parse(by_type).family == "Qwen2ForCausalLM"


def test_layer_types() -> None:
    given = {**config_of("qwen2"), "layer_types": ["sliding_attention", "full_attention"]}
    assert parse(given).windows == (9, None)


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"architectures": ["GemmaForCausalLM"]},
        r"architectures=\['GemmaForCausalLM'\] .* one of Lla",
    ),
    ({"quantization_config": {"bits": 4}}, "config.json has quantization_config=.*--ignore-field"),
    ({"attn_logit_softcapping": 50.0}, "config.json has attn_logit_softcapping=50.0"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
    ({"hidden_act": "gelu"}, "hidden_act='gelu' of config.json must be"),
    ({"hidden_size": None}, "config.json has no hidden_size"),
    ({"rms_norm_eps": None}, "config.json has no rms_norm_eps"),
    ({"vocab_size": 0}, "vocab_size=0 of config.json must be a positive integer"),
    ({"num_key_value_heads": 3}, "num_key_value_heads=3 .* must divide num_attention_heads=4"),
    ({"head_dim": 24}, "head_dim=24 of config.json must be a multiple of 16 up to 256"),
    ({"sliding_window": 8}, "sliding_window=8 of config.json is of no Llama"),
    ({"layer_types": ["sliding_attention"] * 2}, "layer_types .* disagrees"),
    ({"layer_types": ["chunked_attention"] * 2}, "layer_types=.* must be one of full_attention"),
    ({"rope_scaling": {"rope_type": "longrope"}}, "rope_type='longrope' .* must be one of default"),
    ({"rope_scaling": {"type": "linear"}}, "rope_type='linear' of config.json needs factor"),
    ({"rope_scaling": {"type": "linear", "factor": 0.5}}, "factor=0.5 .* must be at least 1"),
    ({"rope_scaling": {"type": "linear", "factor": "2"}}, "factor='2' .* must be a number"),
    ({"rope_scaling": {"type": "linear", "factor": 2, "mscale": 1}}, "an unknown mscale=1"),
    ({"rope_scaling": {**LLAMA3, "high_freq_factor": None}}, "needs high_freq_factor"),
]


@pytest.mark.parametrize(("change", "text"), REFUSED, ids=[next(iter(x)) for x, _ in REFUSED])
def test_refusals(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse({**config_of("llama2"), **change})


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("qwen2", {"attention_bias": False}, "attention_bias=False .* must be True of Qwen2"),
        ("mistral", {"mlp_bias": True}, "mlp_bias=True .* must be False of Mistral"),
        ("mistral", {"num_key_value_heads": None}, "config.json has no num_key_value_heads"),
    ],
)
def test_refusals_of_families(name: str, change: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse({**config_of(name), **change})


def test_fields_that_a_user_knows_better() -> None:
    given = {**config_of("llama2"), "brand_new": 1}
    with pytest.raises(ValueError, match=r"config.json has brand_new=1"):
        parse(given)
    assert parse(given, ignored=["brand_new"]) == parse(config_of("llama2"))


def test_tokens_that_end_come_from_the_generation_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config_of("llama2")))
    assert read(tmp_path).ends == (2,)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    assert read(tmp_path).ends == (5, 6)


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "has no config.json"), ("{", "is not JSON"), ("[]", "must hold an object")],
)
def test_files(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        read(tmp_path)


def test_laws_of_angles() -> None:
    """By what each law means. The oracle of transformers has every number."""

    def turns(name: str, **change: Any) -> Any:
        config = parse({**config_of(name), **change})
        cos, sin = config.rope.tables(30)
        return np.hypot(cos, sin)[:, 0], np.unwrap(np.arctan2(sin, cos), axis=0)

    length, plain = turns("llama2")
    np.testing.assert_allclose(length, 1)
    np.testing.assert_allclose(plain[:, 0], np.arange(30))
    _, linear = turns("llama2", rope_scaling={"type": "linear", "factor": 4.0})
    np.testing.assert_allclose(linear, plain / 4, atol=1e-12)
    _, dynamic = turns("dynamic")
    np.testing.assert_allclose(dynamic[:12], plain[:12], atol=1e-12)
    assert (dynamic[13:, 1:] < plain[13:, 1:]).all()
    scaling = {**LLAMA3, "original_max_position_embeddings": 64}
    _, llama3 = turns("llama2", rope_scaling=scaling)
    np.testing.assert_allclose(llama3[:, 0], plain[:, 0], atol=1e-12)  # 10 waves in 64 positions
    np.testing.assert_allclose(llama3[:, -1], plain[:, -1] / 8, atol=1e-12)
    length, _ = turns("qwen2")
    np.testing.assert_allclose(length, 0.1 * np.log(4) + 1)
