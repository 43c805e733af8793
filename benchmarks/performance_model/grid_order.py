"""Hit rates of L2 and last level cache by the order of workgroups, beside those of HipKittens.

    python -m benchmarks.performance_model.grid_order

A matrix product of N^3 in tiles of 256 x 256, 64 of K a step, as HipKittens' kernel for MI355X
(`kernels/gemm/bf16fp32/mi350x`): a step of a workgroup loads 256 rows of 128 bytes of A and as many
of B. The performance model simulates one XCD, whose MALL is an eighth of the whole: it does not
know what other XCDs have brought there. Here every XCD takes its workgroups in their order, 32 at a
time, step by step; each has an L2, all share the MALL, both least recently used first out. What a
step loads of one operand is one entry: sets, which the model's caches hash, are left out.

CUs of an XCD keep step unless they start up to `drift` steps apart.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from amdattn.arch.architectures import architecture
from amdattn.arch.products import of_arch

TILE, K_STEP = 256, 64
SLICE_BYTES = TILE * K_STEP * 2  # of one operand and step
_CHIP = of_arch("gfx950")
_SEED = 1
DRIFTS = (0, 11)


@dataclass(frozen=True)
class Order:
    """How tiles are numbered, and what was seen with it on an MI355X (the HipKittens document).

    Attributes
    ----------
    window, chunk : int
        W and C of the document: rows that are walked through together, and consecutive workgroups
        that go to one XCD. 0: row by row.
    l2, llc : float or None
        Published hit rates; None: none is.
    """

    n: int
    name: str
    window: int
    chunk: int
    l2: float | None = None
    llc: float | None = None

    @property
    def tiles(self) -> int:
        """Of an edge of the product."""
        return self.n // TILE

    def places(self) -> list[tuple[int, int]]:
        """Row and column of each workgroup, as the kernel's arithmetic has them."""
        return [self._place(i) for i in range(self.tiles**2)]

    def _place(self, i: int) -> tuple[int, int]:
        if not self.window:
            return divmod(i, self.tiles)
        block = _CHIP.num_xcds * self.chunk
        if i < self.tiles**2 // block * block:
            own, at = divmod(i // _CHIP.num_xcds, self.chunk)
            i = own * block + i % _CHIP.num_xcds * self.chunk + at
        group, at = divmod(i, self.window * self.tiles)
        rows = min(self.tiles - group * self.window, self.window)
        return group * self.window + at % rows, at // rows


# The document names neither W nor C; its repository has W 8, C 64 and elsewhere other W with
# C = W^2. A chunk of all that an XCD gets serves the L2 alone. Ours are the CUs of an XCD.
ORDERS = (
    Order(9216, "row by row", 0, 0, 0.55, 0.95),
    Order(9216, "for the L2 only", 8, 162, 0.79, 0.24),
    Order(9216, "for both", 5, 25, 0.75, 0.93),
    Order(9216, "the repository's", 8, 64),
    Order(9216, "ours", 8, 32),
    Order(14592, "row by row", 0, 0, 0.36, 0.76),
    Order(14592, "for the L2 only", 8, 406),
    Order(14592, "for both: the repository's", 8, 64, 0.78, 0.55),
    Order(14592, "ours", 8, 32),
)


class _Lru:
    def __init__(self, nbytes: int) -> None:
        self._room = nbytes // SLICE_BYTES
        self._held: OrderedDict[tuple[int, int, int], None] = OrderedDict()
        self.hits = self.asked = 0

    def has(self, key: tuple[int, int, int]) -> bool:
        """Whether it is there; it is afterwards."""
        self.asked += 1
        if key in self._held:
            self._held.move_to_end(key)
            self.hits += 1
            return True
        self._held[key] = None
        if len(self._held) > self._room:
            self._held.popitem(last=False)
        return False


@dataclass(frozen=True)
class Hits:
    """Hit rates, and what came from HBM."""

    l2: float
    llc: float
    hbm_gb: float


def replay(order: Order, drift: int) -> Hits:
    """All loads of a product, caches empty at first."""
    xcds = range(_CHIP.num_xcds)
    l2s = [_Lru(architecture("gfx950").l2_bytes) for _ in xcds]
    mall = _Lru(_CHIP.mall_bytes)
    for xcd, key in _loads(order, drift):
        if not l2s[xcd].has(key):
            mall.has(key)
    asked = sum(l2.asked for l2 in l2s)
    missed = mall.asked - mall.hits
    return Hits(
        sum(l2.hits for l2 in l2s) / asked, mall.hits / mall.asked, missed * SLICE_BYTES / 1e9
    )


def _loads(order: Order, drift: int) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """(XCD, operand, tile, step) of every load, CUs in turn."""
    places, steps = order.places(), order.n // K_STEP
    queues = [iter(range(xcd, len(places), _CHIP.num_xcds)) for xcd in range(_CHIP.num_xcds)]
    rng = random.Random(_SEED)
    cus = [
        (xcd, _cu(places, queues[xcd], steps, rng.randint(0, drift)))
        for _ in range(_CHIP.cus_of_xcd)
        for xcd in range(_CHIP.num_xcds)
    ]
    while cus:
        going = []
        for xcd, loads in cus:
            keys = next(loads, None)
            if keys is not None:
                going.append((xcd, loads))
                for key in keys:
                    yield xcd, key
        cus = going


def _cu(
    places: Sequence[tuple[int, int]], queue: Iterator[int], steps: int, late: int
) -> Iterator[tuple[tuple[int, int, int], ...]]:
    """What one CU loads at each step; nothing at the first `late` ones."""
    for _ in range(late):
        yield ()
    for i in queue:
        row, column = places[i]
        for step in range(steps):
            yield (0, row, step), (1, column, step)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def main() -> None:
    """Print the table."""
    heads = " | ".join(f"L2, LLC, HBM, {drift} steps apart" for drift in DRIFTS)
    print(f"| N | order | W, C | L2, LLC published | {heads} |")
    print("|---" * (4 + len(DRIFTS)) + "|")
    for order in ORDERS:
        found = [replay(order, drift) for drift in DRIFTS]
        cells = " | ".join(f"{hits.l2:.0%}, {hits.llc:.0%}, {hits.hbm_gb:.2f} GB" for hits in found)
        parameters = f"{order.window}, {order.chunk}" if order.window else "-"
        published = f"{_percent(order.l2)}, {_percent(order.llc)}" if order.l2 else "-"
        print(f"| {order.n} | {order.name} | {parameters} | {published} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
