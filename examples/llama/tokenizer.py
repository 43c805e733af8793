"""Text to tokens and back: tokenizer.json, and the chat template that comes with it."""

from __future__ import annotations

import datetime
import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .config import load_json
from .errors import ModelError

_BROKEN = "\ufffd"  # of bytes that are no character yet


class Tokenizer:
    """The tokenizer of a folder.

    Raises
    ------
    ModelError
        The folder has none, or a package that reads it is not installed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise ModelError(f"{folder} has no tokenizer.json; --ids takes and prints numbers")
        try:
            self._tokenizer = package("tokenizers").Tokenizer.from_file(str(file))
        except ModelError:
            raise
        except Exception as error:  # the package has no class of its own for it
            raise ModelError(f"{file} is no tokenizer: {error}") from None

    def encode(self, text: str) -> list[int]:
        """With the tokens that the model wants around a text."""
        return list(self._tokenizer.encode(text).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Without tokens that stand for no text."""
        return str(self._tokenizer.decode(list(ids)))

    def chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Of a conversation, up to where the model's answer begins.

        Raises
        ------
        ModelError
            There is no chat template, or it does not take these messages.
        """
        settings = self._folder / "tokenizer_config.json"
        config = load_json(settings) if settings.is_file() else {}
        text = rendered(self._template(config), messages, _special(config))
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _template(self, config: Mapping[str, Any]) -> str:
        file = self._folder / "chat_template.jinja"
        if file.is_file():
            return file.read_text(encoding="utf-8")
        found = config.get("chat_template")
        if isinstance(found, list):  # several, by name
            found = {entry["name"]: entry["template"] for entry in found}.get("default")
        if not isinstance(found, str):
            raise ModelError(f"{self._folder} has no chat template; leave --chat out")
        return found


class Stream:
    """Text of tokens as they come; a character that is not whole yet waits for its last byte."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._begin = self._read = 0  # what stands before a token changes its text, spaces say

    def add(self, token: int, *, is_last: bool = False) -> str:
        """What the token adds to the text."""
        self._ids.append(token)
        before = self._tokenizer.decode(self._ids[self._begin : self._read])
        now = self._tokenizer.decode(self._ids[self._begin :])
        if now.endswith(_BROKEN) and not is_last:
            return ""
        self._begin, self._read = self._read, len(self._ids)
        return now[len(before) :]


def rendered(
    template: str, messages: Sequence[Mapping[str, str]], special: Mapping[str, str]
) -> str:
    """A chat template's text, in a sandbox and with what such templates call.

    Raises
    ------
    ModelError
        The template is broken, or refuses the messages.
    """
    jinja2, sandbox = package("jinja2"), package("jinja2.sandbox")

    def refuse(text: str) -> None:
        raise jinja2.TemplateError(text)

    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda text: datetime.datetime.now().strftime(text)
    # Templates put JSON into text, not into HTML.
    environment.filters["tojson"] = lambda x, **options: json.dumps(
        x, **{"ensure_ascii": False, **options}
    )
    try:
        found = environment.from_string(template).render(
            messages=messages, add_generation_prompt=True, **special
        )
    except jinja2.TemplateError as error:
        raise ModelError(f"the chat template does not take these messages: {error}") from None
    return str(found)


def _special(config: Mapping[str, Any]) -> dict[str, str]:
    """Special tokens by the names that templates have for them."""
    found = {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        token = config.get(name)
        if token is not None:
            found[name] = str(token["content"] if isinstance(token, dict) else token)
    return found


def package(name: str) -> Any:
    """A package that only some of this needs; ModelError says how to install it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        distribution = name.partition(".")[0]
        raise ModelError(
            f"the Python package {distribution} is not installed: pip install {distribution}"
        ) from None
