"""Sequences that join and leave a batch, over pages that an allocator hands out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .errors import ModelError
from .model import Decoder, Draw


class Pages:
    """Which pages of the cache are free."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count))[::-1]

    def __len__(self) -> int:
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """So many that nobody has; there must be as many."""
        return [self._free.pop() for _ in range(count)]

    def give(self, pages: list[int]) -> None:
        """Back, all of a sequence."""
        self._free.extend(pages)
        pages.clear()


@dataclass(eq=False)
class Generation:
    """A sequence: its prompt, what was generated, and where its keys lie."""

    prompt: list[int]
    most: int  # tokens to generate
    made: list[int] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    is_ended: bool = False  # by a token that ends, not by `most`
    joins: int = 0  # how often it entered the batch
    seed: int = 0  # of what is drawn; the offset is the number of tokens made
    logits: list[NDArray[np.float32]] = field(default_factory=list)

    @property
    def ids(self) -> list[int]:
        """All tokens so far. The cache has keys of all but the last one."""
        return self.prompt + self.made

    @property
    def draw(self) -> Draw:
        """For its next token: the same whenever and wherever it is in a batch."""
        return self.seed, len(self.made)

    @property
    def is_done(self) -> bool:  # noqa: D102
        return self.is_ended or len(self.made) == self.most


class Batch:
    """Generates for all sequences that are added, some at a time.

    A sequence joins when a row of the batch and pages for its tokens are free. When a page is
    wanted and none is free, the sequence that joined last leaves; it joins again later, and its
    tokens so far are its prompt then.

    Parameters
    ----------
    ends : collection of int
        Tokens that end a sequence; they are among what is generated.
    on_token : callable, optional
        Called with a sequence after each of its tokens.
    keeps_logits : bool
        Copy the logits that tokens were chosen by to the host, into `Generation.logits`.
    """

    def __init__(
        self,
        model: Decoder,
        ends: Collection[int] = (),
        on_token: Callable[[Generation], None] = lambda _: None,
        keeps_logits: bool = False,
    ) -> None:
        self._keeps_logits, self._added = keeps_logits, 0
        self._model, self._ends, self._on_token = model, frozenset(ends), on_token
        self._pages = Pages(model.pages)
        self._before = len(model.shared)
        self._waiting: deque[Generation] = deque()
        self._running: list[Generation] = []  # by when they joined

    def add(self, prompt: Sequence[int], most: int) -> Generation:
        """Queue a sequence.

        Raises
        ------
        ModelError
            It is empty, has ids that are no tokens, or is too long for the model or the cache.
        """
        model, config = self._model, self._model.config
        if not prompt:
            raise ModelError("the prompt has no tokens")
        wrong = [i for i in prompt if not 0 <= i < config.vocabulary]
        if wrong:
            raise ModelError(f"token {wrong[0]} must be in 0..{config.vocabulary - 1}")
        total = len(prompt) + most
        if total > model.context:
            raise ModelError(
                f"{len(prompt)} tokens of the prompt and {most} to generate are more than the "
                f"context of {model.context}"
            )
        if list(prompt[: self._before]) != model.shared or len(prompt) == self._before:
            raise ModelError("the prompt must begin with the shared prefix, and go on behind it")
        if config.rope.changes_with_length and len(prompt) > config.rope.trained:
            raise ModelError(
                f"{len(prompt)} tokens of the prompt are more than {config.rope.trained}, from "
                'which on the angles of rope_type="dynamic" depend on the length of the prompt'
            )
        if self._needed(total) > model.pages:
            raise ModelError(
                f"{total} tokens need {self._needed(total)} pages; the cache has {model.pages}"
            )
        added = Generation(list(prompt), most, seed=model.sampling.seed + self._added)
        self._added += 1
        if most:
            self._waiting.append(added)
        return added

    def run(self) -> None:
        """Until all are done."""
        while self._waiting or self._running:
            self.step()

    def step(self) -> None:
        """Let sequences join, then generate one token of each that is in the batch."""
        self._join()
        self._make_room()
        running = self._running
        if running:
            tables = np.stack([self._table(generation) for generation in running])
            lengths = [len(generation.ids) - 1 - self._before for generation in running]
            draws = [generation.draw for generation in running]
            histories = [generation.ids for generation in running]
            last = [ids[-1] for ids in histories]
            tokens = self._model.step(last, lengths, tables, draws, histories)
            self._append(list(running), tokens.tolist())

    def _join(self) -> None:
        while self._waiting and len(self._running) < self._model.batch:
            needed = self._needed(len(self._waiting[0].ids))
            if needed > len(self._pages):
                break
            generation = self._waiting.popleft()
            generation.pages.extend(self._pages.take(needed))
            generation.joins += 1
            self._running.append(generation)
            own = generation.ids[self._before :]
            table, draw = self._table(generation), generation.draw
            token = self._model.prefill(own, table, draw, generation.ids)
            self._append([generation], [token])

    def _make_room(self) -> None:
        """A page for each sequence's next key; the oldest ones get theirs first."""
        for generation in list(self._running):
            while generation in self._running:
                if len(generation.pages) >= self._needed(len(generation.ids)):
                    break
                if len(self._pages):
                    generation.pages.extend(self._pages.take(1))
                else:
                    last = self._running.pop()
                    self._pages.give(last.pages)
                    self._waiting.appendleft(last)

    def _append(self, generations: list[Generation], tokens: list[int]) -> None:
        if self._keeps_logits:
            rows = self._model.read_logits(len(generations))
            for generation, row in zip(generations, rows, strict=True):
                generation.logits.append(row.copy())
        for generation, token in zip(generations, tokens, strict=True):
            generation.made.append(token)
            generation.is_ended = token in self._ends
            if generation.is_done:
                self._running.remove(generation)
                self._pages.give(generation.pages)
            self._on_token(generation)

    def _needed(self, keys: int) -> int:
        return -(-(keys - self._before) // self._model.page)

    def _table(self, generation: Generation) -> NDArray[np.int32]:
        table = np.zeros(self._model.width, np.int32)
        table[: len(generation.pages)] = generation.pages
        return table


def common_prefix(prompts: Sequence[Sequence[int]]) -> list[int]:
    """Tokens that all of them begin with, but for the last one of the shortest."""
    found: list[int] = []
    for tokens in zip(*(prompt[:-1] for prompt in prompts), strict=False):
        if len(set(tokens)) > 1:
            break
        found.append(tokens[0])
    return found
