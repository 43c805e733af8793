"""The decoder on the device: prompts in chunks, and steps of several sequences."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import amdattn

from .config import Config
from .device import Stream, require, upload
from .errors import ModelError
from .forward import Forward
from .sampling import Sampling
from .weights import Weights

Draw = tuple[int, int]  # a seed and an offset
NONE = -1  # the length of a row of a batch that has no sequence: it appends and sees nothing


class Decoder:
    """A model with memory for so many sequences.

    Parameters
    ----------
    context : int
        No sequence is longer.
    batch : int
        Sequences of a step, at most.
    pages, page : int
        Of the cache, which all sequences share, and keys of one; 0 pages: as many as `batch`
        sequences of `context` keys need.
    chunk : int
        Rows of a prompt that go through the layers at a time.
    shares : bool
        A prefix will be shared: of the default there is a page more, where it ends.
    use_graphs : bool
        Replay a step as one graph instead of launching its kernels one by one.
    sampling : Sampling, optional
        How tokens are chosen; without, the most likely ones are.

    Attributes
    ----------
    launches : int
        Kernels of a step of one sequence.
    shared : list of int
        Tokens that all sequences begin with: see `share`.
    """

    def __init__(
        self,
        config: Config,
        weights: Weights,
        *,
        context: int,
        batch: int = 1,
        pages: int = 0,
        page: int = 64,
        chunk: int = 512,
        shares: bool = False,
        use_graphs: bool = True,
        sampling: Sampling | None = None,
    ) -> None:
        self.config, self.weights = config, weights
        self.context, self.batch, self.page, self.chunk = context, batch, page, chunk
        self.use_graphs, self.sampling = use_graphs, sampling or Sampling()
        self.shared: list[int] = []
        self.prefixes: list[tuple[amdattn.DeviceArray, ...]] = []  # keys and values of each layer
        self.width = -(-context // page)  # pages of a sequence
        self.pages = pages or batch * self.width + shares
        shape = (self.pages, page, config.heads_kv, config.head_dim)
        nbytes = 2 * config.layers * int(np.prod(shape)) * weights.dtype.itemsize
        require(nbytes, f"a cache of {self.pages * page} keys")
        self.caches = [
            (amdattn.empty(shape, weights.dtype), amdattn.empty(shape, weights.dtype))
            for _ in range(config.layers)
        ]
        # Behind a shared prefix a sequence's last page may reach beyond the context.
        cos, sin = (x.astype(np.float32) for x in config.rope.tables((self.width + 1) * page))
        self.cos, self.sin = amdattn.asarray(cos), amdattn.asarray(sin)
        rows = max(batch, min(chunk, context))
        self.h = amdattn.empty((rows, config.hidden), weights.dtype)
        self.lengths = amdattn.empty((batch,), "int32")
        self.tables = amdattn.empty((batch, self.width), "int32")
        self.ids = amdattn.empty((rows,), "int32")
        self.logits = amdattn.empty((batch, config.vocabulary), "float32")
        self.state = amdattn.empty((batch, 4), "int32")  # seeds and offsets of draws
        self.tokens = amdattn.empty((batch,), "int32")
        # Tokens of each sequence so far, and behind them NONE, where they count.
        columns = context if self.sampling.penalises else 0
        self.history = amdattn.empty((batch, columns), "int32")
        self.scratch = Forward.scratch(config, weights, rows)
        self._stream = Stream()
        self._steps: dict[int, _Step] = {}
        self._chunks: dict[int, Forward] = {}

    @property
    def launches(self) -> int:  # noqa: D102
        return self._step(1).forward.launches

    @property
    def room(self) -> int:
        """Keys of a sequence that its pages have room for, without those of the prefix."""
        return self.width * self.page

    def share(self, ids: Sequence[int]) -> None:
        """Compute a prefix once, and attend to it once for all sequences, by a cascade.

        It takes the first pages, which are of the cache no more. Lengths and tables of calls that
        follow are of what sequences have behind it. No sequence may be in the cache.

        Raises
        ------
        ModelError
            The model has windows, beyond which a cascade would see, or the prefix is too long.
        """
        if any(window is not None for window in self.config.windows):
            raise ModelError("a model with sliding windows cannot share a prefix")
        if self.shared:
            raise ModelError("a prefix is shared already")
        pages = -(-len(ids) // self.page)
        if len(ids) >= self.context or pages >= self.pages:
            raise ModelError(f"a prefix of {len(ids)} tokens leaves no room for a sequence")
        table = np.zeros(self.width, np.int32)
        table[:pages] = np.arange(pages)
        self.prefill(ids, table)
        self.shared = list(ids)
        # Pages that follow each other are rows, too.
        self.prefixes = [
            tuple(x[:pages].reshape((pages * self.page, *x.shape[2:]))[: len(ids)] for x in pair)
            for pair in self.caches
        ]
        self.caches = [(k[pages:], v[pages:]) for k, v in self.caches]
        self.pages -= pages
        self.width = -(-(self.context - len(ids)) // self.page)
        self.tables = amdattn.empty((self.batch, self.width), "int32")
        self._steps.clear()
        self._chunks.clear()

    def prefill(
        self,
        ids: Sequence[int],
        table: NDArray[np.int32],
        draw: Draw = (0, 0),
        history: Sequence[int] = (),
    ) -> int:
        """Append tokens to empty pages; the token that follows them."""
        for first in range(0, len(ids), self.chunk):
            chunk = ids[first : first + self.chunk]
            is_last = first + len(chunk) == len(ids)
            if len(chunk) not in self._chunks:
                self._chunks[len(chunk)] = Forward(self, 1, len(chunk), is_captured=False)
            self._put(chunk, np.array([first], np.int32), table[None], [draw], [history])
            self._chunks[len(chunk)].run(self._stream.handle, with_logits=is_last)
        return int(self._made(1)[0])

    def step(
        self,
        ids: Sequence[int],
        lengths: Sequence[int],
        tables: NDArray[np.int32],
        draws: Sequence[Draw] = (),
        histories: Sequence[Sequence[int]] = (),
    ) -> NDArray[np.int32]:
        """Append one token to each of some sequences; the tokens that follow, (len(ids),).

        Parameters
        ----------
        ids : sequence of int
        lengths : sequence of int
            Keys that each sequence has in its pages before.
        tables : array, (len(ids), width)
            Pages of each.
        draws : sequence of (int, int), optional
            A seed and an offset of each, of what is drawn.
        histories : sequence of sequences of int, optional
            All tokens of each, where repetitions are penalised.
        """
        count = len(ids)
        rows = min(1 << (count - 1).bit_length(), self.batch)
        unused = rows - count
        given = (
            [*ids, *[0] * unused],
            np.array([*lengths, *[NONE] * unused], np.int32),
            np.concatenate([tables, np.zeros((unused, self.width), np.int32)]),
            [*draws, *[(0, 0)] * (rows - len(draws))],
            [*histories, *[()] * (rows - len(histories))],
        )
        step = self._step(rows)
        if not self.use_graphs:
            self._launched(step, given)
            return self._made(count)
        expected = None
        if step.unchecked:
            self._launched(step, given)
            expected = self.read_logits(rows).tobytes()
        if step.graph is None:
            step.graph = self._stream.captured(step.forward.run)
        self._replayed(step, given)
        if expected is not None:
            step.unchecked -= 1
            if self.read_logits(rows).tobytes() != expected:
                self.use_graphs = False
                warnings.warn(
                    "a replayed graph gave other logits than its launches one by one; graphs are "
                    "off from here on (ROCm 7.2.0 to 7.2.3 are known for it)",
                    RuntimeWarning,
                    stacklevel=2,
                )
                self._launched(step, given)  # what the replay appended is written over
        return self._made(count)

    def read_logits(self, rows: int) -> NDArray[np.float32]:
        """Those that the last tokens were chosen by, (rows, vocabulary)."""
        self._stream.wait()
        return self.logits[:rows].numpy()

    def close(self) -> None:
        """Wait, and give back graphs and memory; the decoder is of no use afterwards."""
        self._stream.wait()
        self._steps.clear()
        self._chunks.clear()
        self.caches.clear()
        self.prefixes.clear()
        for name in (
            "h",
            "ids",
            "lengths",
            "tables",
            "logits",
            "state",
            "tokens",
            "history",
            "scratch",
        ):
            delattr(self, name)
        self._stream.close()

    def _step(self, rows: int) -> _Step:
        """Steps of 1, 2, 4, ... sequences; each is planned, and captured, once."""
        if rows not in self._steps:
            self._steps[rows] = _Step(Forward(self, rows, 1, is_captured=True))
        return self._steps[rows]

    def _launched(self, step: _Step, given: tuple[Any, ...]) -> None:
        self._put(*given)
        step.forward.run(self._stream.handle)

    def _replayed(self, step: _Step, given: tuple[Any, ...]) -> None:
        self._put(*given)
        self._stream.replay(step.graph)

    def _put(
        self,
        ids: Sequence[int],
        lengths: NDArray[np.int32],
        tables: NDArray[np.int32],
        draws: Sequence[Draw],
        histories: Sequence[Sequence[int]],
    ) -> None:
        """What differs from pass to pass, once what was launched before is done."""
        self._stream.wait()
        upload(self.ids[: len(ids)], np.array(ids, np.int32))
        upload(self.lengths[: len(lengths)], lengths)
        upload(self.tables[: len(tables)], tables)
        if self.sampling.draws:
            upload(self.state[: len(draws)], np.array(draws, np.int64).view(np.int32))
        if self.sampling.penalises:
            rows = np.full((len(histories), self.context), NONE, np.int32)
            for row, so_far in zip(rows, histories, strict=True):
                row[: len(so_far)] = so_far
            upload(self.history[: len(rows)], rows)

    def _made(self, count: int) -> NDArray[np.int32]:
        self._stream.wait()
        return self.tokens[:count].numpy()


class _Step:
    """A step of so many sequences: its launches, the same as a graph, and steps to compare both."""

    def __init__(self, forward: Forward) -> None:
        self.forward = forward
        self.graph: Any = None
        self.unchecked = 2
