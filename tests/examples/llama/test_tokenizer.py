"""examples/llama/tokenizer.py: bytes that come one by one, chat templates, what is missing."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from examples.llama.tokenizer import Stream, Tokenizer, rendered

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": 'Say "ä".'}]
TEMPLATE = """{{ bos_token }}{% for message in messages %}
{% if message.role == 'bot' %}{{ raise_exception('no bots') }}{% endif %}
<|{{ message['role'] }}|>{{ message['content'] }}
{% endfor %}
{% if add_generation_prompt %}<|assistant|>{% endif %}"""


class Bytes:
    """A stand-in whose tokens are bytes."""

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode("utf-8", errors="replace")


def test_a_character_comes_when_it_is_whole() -> None:
    text = "naïve → 🙂 end"
    stream = Stream(Bytes())  # type: ignore[arg-type]
    pieces = [stream.add(token) for token in text.encode()]
    assert "".join(pieces) == text and "\ufffd" not in "".join(pieces)
    assert [piece for piece in pieces if len(piece.encode()) > 1] == ["ï", "→", "🙂"]


def test_the_last_token_holds_nothing_back() -> None:
    stream = Stream(Bytes())  # type: ignore[arg-type]
    cut = "é".encode()[:1]
    assert stream.add(65) + stream.add(cut[0], is_last=True) == "A\ufffd"


def test_a_chat_template() -> None:
    pytest.importorskip("jinja2")
    found = rendered(TEMPLATE, MESSAGES, {"bos_token": "<s>"})
    assert found == '<s><|system|>Be brief.\n<|user|>Say "ä".\n<|assistant|>'
    with pytest.raises(ValueError, match="does not take these messages: no bots"):
        rendered(TEMPLATE, [{"role": "bot", "content": ""}], {"bos_token": ""})
    with pytest.raises(ValueError, match="the chat template does not take"):
        rendered("{% if %}", MESSAGES, {})
    assert rendered("{{ messages[1].content | tojson }}", MESSAGES, {}) == '"Say \\"ä\\"."'


def test_a_template_is_in_a_sandbox() -> None:
    pytest.importorskip("jinja2")
    with pytest.raises(ValueError, match="unsafe"):
        rendered("{{ messages.__class__.__base__.__subclasses__() }}", MESSAGES, {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tokenizer of words."""
    tokenizers = pytest.importorskip("tokenizers")
    words = ["<unk>", "<s>", "</s>", "<|user|>", "<|assistant|>", "hello", "there", "you"]
    model = tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, "<unk>")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(words[:5])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_a_folder(folder: Path) -> None:
    tokenizer = Tokenizer(folder)
    assert tokenizer.encode("hello there") == [1, 5, 6]
    assert tokenizer.decode([1, 5, 6, 2]) == "hello there"
    with pytest.raises(ValueError, match="has no chat template; leave --chat out"):
        tokenizer.chat(MESSAGES)
    template: Any = "{{ bos_token }}<|user|>{{ messages[-1].content }}<|assistant|>"
    given = {"bos_token": {"content": "<s>"}, "chat_template": template}
    settings = folder / "tokenizer_config.json"
    for given["chat_template"] in (template, [{"name": "default", "template": template}]):
        settings.write_text(json.dumps(given))
        # The template has written <s>; the tokenizer adds no second one.
        assert tokenizer.chat([{"role": "user", "content": "you"}]) == [1, 3, 7, 4]
    (folder / "chat_template.jinja").write_text("hello")
    assert tokenizer.chat(MESSAGES) == [5]


def test_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"has no tokenizer.json; --ids takes"):
        Tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ValueError, match="tokenizers is not installed: pip install tokenizers"):
        Tokenizer(tmp_path)


def test_no_tokenizer(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer.json is no tokenizer"):
        Tokenizer(tmp_path)
