"""Generate text with a checkpoint of Llama, Mistral or Qwen: see README.md beside this file.

python -m examples.llama MODEL_DIR "prompt"
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import amdattn
from amdattn.device import runtime

from . import config as configs, make_tiny, weights
from .batch import Batch, Generation, common_prefix
from .checkpoint import Checkpoint
from .comparison import Oracle
from .errors import ModelError
from .model import Decoder
from .sampling import Sampling
from .tokenizer import Stream, Tokenizer

_out, _err = Console(highlight=False, soft_wrap=True, markup=False), Console(stderr=True)


class Texts:
    """Prompts to tokens and tokens to text; with `as_ids` both are written as numbers."""

    def __init__(self, folder: Path, as_ids: bool, system: str | None, is_chat: bool) -> None:
        self._tokenizer = None if as_ids else Tokenizer(folder)
        self._system, self._is_chat = system, is_chat

    def encoded(self, text: str) -> list[int]:
        """Tokens of a prompt."""
        if self._tokenizer is None:
            try:
                return [int(word) for word in text.replace(",", " ").split()]
            except ValueError:
                raise ModelError(f"--ids: {text!r} is no list of numbers") from None
        if not self._is_chat:
            return self._tokenizer.encode(text)
        messages = [{"role": "user", "content": text}]
        if self._system is not None:
            messages.insert(0, {"role": "system", "content": self._system})
        return self._tokenizer.chat(messages)

    def stream(self) -> Stream | None:
        """For the text of one sequence; None: numbers are."""
        return None if self._tokenizer is None else Stream(self._tokenizer)


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="MODEL_DIR", help="Safetensors, config.json. Default: a tiny model is trained."
        ),
    ] = None,
    prompt: Annotated[str | None, typer.Argument(help="What to go on from.")] = None,
    *,
    batch: Annotated[
        Path | None, typer.Option(help="A file of prompts instead, one a line.")
    ] = None,
    tokens: Annotated[int, typer.Option(help="To generate of each prompt, at most.", min=1)] = 64,
    chat: Annotated[bool, typer.Option("--chat", help="Use the model's chat template.")] = False,
    system: Annotated[str | None, typer.Option(help="System message of --chat.")] = None,
    ids: Annotated[bool, typer.Option("--ids", help="Prompts and results are numbers.")] = False,
    slots: Annotated[int, typer.Option(help="Sequences at a time, of --batch.", min=1)] = 8,
    share: Annotated[
        bool, typer.Option("--share", help="Compute what all prompts of --batch begin with once.")
    ] = False,
    pages: Annotated[
        int, typer.Option(help="Of the cache. Default: room for all slots.", min=0)
    ] = 0,
    page: Annotated[int, typer.Option(help="Keys of a page: a multiple of 16.")] = 64,
    context: Annotated[
        int, typer.Option(help="Longest sequence. Default: what is needed.", min=0)
    ] = 0,
    temperature: Annotated[
        float, typer.Option(help="Draw tokens; 0: take the most likely ones.", min=0.0)
    ] = 0.0,
    top_k: Annotated[int, typer.Option(help="Draw of so many tokens; 0: of all.", min=0)] = 0,
    top_p: Annotated[
        float, typer.Option(help="Draw of those whose probabilities come to as much.")
    ] = 1.0,
    min_p: Annotated[
        float, typer.Option(help="Draw of those as probable as this share of the most probable.")
    ] = 0.0,
    repetition_penalty: Annotated[
        float, typer.Option(help="Positive logits of tokens so far are divided by it.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Of draws; each further prompt has the next.")] = 0,
    graph: Annotated[bool, typer.Option(help="Replay each step as one graph.")] = True,
    fp8: Annotated[
        bool, typer.Option("--fp8", help="Quantise weights of layers to 8 bits as they are loaded.")
    ] = False,
    fold: Annotated[
        bool,
        typer.Option(
            help="Multiply weights of norms into those of products, which normalise few rows then."
        ),
    ] = True,
    check: Annotated[
        bool, typer.Option("--check", help="Compare with float64 in NumPy: small models only.")
    ] = False,
    ignore_field: Annotated[
        list[str] | None, typer.Option(help="A field of config.json to run without.")
    ] = None,
) -> None:
    """Generate text. Exit code 1 if the model or a prompt cannot be taken, or --check fails."""
    try:
        if folder is None:
            folder, prompt = _tiny_model(), None if batch else "The kernel"
        if (prompt is None) == (batch is None):
            raise ModelError("give either a prompt or --batch FILE")
        if check and temperature:
            raise ModelError("--check compares the most likely tokens: --temperature must be 0")
        if check and repetition_penalty != 1:
            raise ModelError(
                "--check compares the most likely tokens: --repetition-penalty must be 1"
            )
        if not temperature and (top_k, top_p, min_p) != (0, 1.0, 0.0):
            raise ModelError(
                "--top-k, --top-p and --min-p are of draws: --temperature must not be 0"
            )
        config = configs.read(folder, ignore_field or ())
        texts = Texts(folder, ids, system, chat)
        lines = [prompt] if prompt is not None else _lines(batch)
        prompts = [texts.encoded(line) for line in lines]
        needed = max(map(len, prompts)) + tokens
        if max(needed, context) > config.positions:
            raise ModelError(
                f"{max(needed, context)} tokens are more than the {config.positions} positions "
                "that config.json allows"
            )
        checkpoint = Checkpoint(folder)
        progress = _err if _err.is_terminal else None
        folds = fold and not fp8 and config.hidden % 8 == 0
        loaded = weights.load(checkpoint, config, progress, in_8_bits=fp8, folds=folds)
        decoder = Decoder(
            config,
            loaded,
            context=context or needed,
            batch=min(slots, len(prompts)),
            pages=pages,
            page=page,
            shares=share,
            use_graphs=graph,
            sampling=Sampling(temperature, top_k, top_p, min_p, repetition_penalty, seed),
        )
        try:
            if share and (prefix := common_prefix(prompts)):
                decoder.share(prefix)
            run = Run(texts, is_batch=batch is not None, keeps_logits=check)
            run.generate(decoder, prompts, tokens)
        finally:
            decoder.close()
        if check and not _compared(run, Oracle(checkpoint, config, loaded)):
            raise typer.Exit(1)
    except (ModelError, amdattn.AmdattnError, ValueError) as error:
        _err.print(f"error: {error}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        _err.print("interrupted")
        raise typer.Exit(130) from None


def _tiny_model() -> Path:
    """One that is trained here, the first time that it is asked for."""
    folder = make_tiny.ROOT / "build" / "tiny-llama"
    if not (folder / "tokenizer.json").is_file():
        _err.print(f"training a tiny model, for some minutes, into {folder}", soft_wrap=True)
        loss = make_tiny.make(folder)
        _err.print(f"held-out loss {loss:.3f} nats a byte")
    return folder


def _lines(file: Path | None) -> list[str]:
    try:
        found = [] if file is None else file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ModelError(f"--batch: {error}") from None
    found = [line for line in found if line.strip()]
    if not found:
        raise ModelError(f"--batch: {file} has no prompts")
    return found


class Run:
    """Prints tokens as they come, of a batch each text when it is whole; then how long it took."""

    def __init__(self, texts: Texts, *, is_batch: bool, keeps_logits: bool) -> None:
        self._texts, self._is_batch, self._keeps_logits = texts, is_batch, keeps_logits
        self.generations: list[Generation] = []
        self._streams: dict[Generation, Stream | None] = {}
        self._written: dict[Generation, list[str]] = {}
        self._first: float | None = None

    def generate(self, decoder: Decoder, prompts: Sequence[list[int]], tokens: int) -> None:
        """All prompts, up to so many tokens of each."""
        batch = Batch(decoder, decoder.config.ends, self._on_token, self._keeps_logits)
        self.generations = [batch.add(prompt, tokens) for prompt in prompts]
        for generation in self.generations:
            self._streams[generation] = self._texts.stream()
            self._written[generation] = []
        begin = time.perf_counter()
        batch.run()
        end = time.perf_counter()
        if not self._is_batch:
            _out.print()
        made = sum(len(generation.made) for generation in self.generations)
        first = (self._first or end) - begin
        _err.print(_figures(decoder, made, len(prompts), first, end - begin), soft_wrap=True)

    def _on_token(self, generation: Generation) -> None:
        self._first = self._first or time.perf_counter()
        token, stream = generation.made[-1], self._streams[generation]
        text = f"{token} " if stream is None else stream.add(token, is_last=generation.is_done)
        if not self._is_batch:
            _out.print(text, end="")
            _out.file.flush()
            return
        self._written[generation].append(text)
        if generation.is_done:
            number = self.generations.index(generation) + 1
            _out.print(f"[{number}] {''.join(self._written[generation]).strip()}")


def _compared(run: Run, oracle: Oracle) -> bool:
    """Whether all tokens are right; a line of a table for each prompt."""
    table = Table("prompt", "tokens", "largest error of a logit", "allowed", "other tokens")
    is_ok = True
    for i, generation in enumerate(run.generations):
        found = oracle.compare(generation, generation.logits)
        is_ok &= found.is_ok
        row = f"{found.error:.4f}", f"{found.allowed:.4f}", str(found.others)
        table.add_row(str(i + 1), str(len(generation.made)), *row)
    _err.print(table)
    _err.print("ok" if is_ok else "WRONG: errors that rounding does not explain")
    return is_ok


def _figures(decoder: Decoder, made: int, count: int, first: float, seconds: float) -> str:
    """What a clock saw, labelled: on the virtual device it says nothing of a GPU."""
    device = runtime.get()
    rate = f"{made / seconds:.2f} tokens/s"
    if device.choice.kind == "virtual":
        label = f"virtual: {device.props.name} played by this CPU, no measure of a GPU"
    else:
        label = f"measured on {device.props.name}"
    how = "one graph" if decoder.use_graphs else "launched one by one"
    return (
        f"{made} tokens of {count} prompt{'s' * (count > 1)} in {seconds:.2f} s, the first after "
        f"{first:.2f} s: {rate} ({label}); a step of one is {decoder.launches} kernels, {how}"
    )


if __name__ == "__main__":
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    app(prog_name="python -m examples.llama")
