"""Named classes of inputs on which attention kernels are known to go wrong.

Each fills in the numbers of a launch, other ones for every head. Together they are drawn from the
findings of earlier campaigns: what a class is for stands in its docstring.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tests.support.adversary.launches import Launch
from tests.support.adversary.plain import Array

Fill = Callable[[Launch], None]
CLASSES: dict[str, Fill] = {}


def adversary(fill: Fill) -> Fill:
    CLASSES[fill.__name__.replace("_", " ")] = fill
    return fill


def _size(launch: Launch, low: float, high: float, shape: tuple[int, ...]) -> Array:
    """Numbers whose logarithm is evenly distributed."""
    return np.exp(launch.rng.uniform(np.log(low), np.log(high), shape))


def _signed(launch: Launch, size: Array) -> Array:
    return size * launch.rng.choice([-1.0, 1.0], size.shape)


def _one(launch: Launch, value: float) -> None:
    """One V of every head."""
    for v in launch.v:
        v[launch.rng.integers(launch.keys), launch.rng.integers(launch.dims[1])] = value


def _least(launch: Launch) -> float:
    """Smallest size of V worth drawing."""
    return 1e-30 if launch.is_bf16 else 1e-4


def _by_key(launch: Launch, nats: Array) -> Array:
    """Offsets of (kv heads, keys)."""
    return np.broadcast_to(nats, (launch.heads[1], launch.keys))


# -- nothing of the kind ---------------------------------------------------------------------------


@adversary
def normal(launch: Launch) -> None:
    """Odd sizes, masks, parts."""
    launch.q *= launch.rng.choice([0.3, 1, 4])


# -- 1. rows that meet -inf before they have a maximum ---------------------------------------------


@adversary
def keys_of_minus_infinity_in_a_window(launch: Launch) -> None:
    """Half of the keys, under a window of 11, and one V of 5000."""
    launch.resize(64, 64, window_size=(10, 0), top_left=False, num_splits=1)
    launch.hide(launch.keys_where(0.5))
    _one(launch, 5000.0)


@adversary
def keys_of_minus_infinity(launch: Launch) -> None:
    """Some or nearly all; V as usual, tiny, or with one of 5000."""
    launch.hide(launch.keys_where(launch.rng.choice([0.1, 0.5, 0.9, 1.0])))
    launch.v *= launch.rng.choice([1, 1e-3 if not launch.is_bf16 else 1e-20])
    if launch.rng.random() < 0.5:
        _one(launch, 5000.0)


@adversary
def infinite_keys_of_either_sign(launch: Launch) -> None:
    """k = -inf: a row's score is -inf or +inf by the sign of its q."""
    column = launch.rng.integers(launch.dims[0])
    launch.k[:, :, column] = np.where(launch.keys_where(0.2), -np.inf, launch.k[:, :, column])
    launch.q[:, :, column] = np.abs(launch.q[:, :, column]) + 0.1
    rows = launch.rng.random(launch.rows) < 0.1
    launch.q[:, rows, column] *= -1


@adversary
def scores_that_overflow(launch: Launch) -> None:
    """Finite q and k with products beyond float32, nearly all to -inf."""
    if not launch.is_bf16:  # which has none
        launch.hide(launch.keys_where(launch.rng.choice([0.2, 0.7, 1.0])))
        return
    launch.q[:, :, 0] = 3e38 * np.copysign(1, launch.scale)
    launch.k[:, :, 0] = np.where(launch.keys_where(launch.rng.choice([0.2, 0.7, 1.0])), -3e38, 0)
    _one(launch, 5000.0)


@adversary
def tiny_v_and_few_keys(launch: Launch) -> None:
    """No mask, lengths that are no multiple of a block."""
    launch.resize(keys=int(launch.rng.choice([18, 35, 50])))
    if not launch.kernel.is_narrow:
        launch.options.pop("causal", None)
        launch.options.pop("window_size", None)
    launch.v = _signed(launch, _size(launch, _least(launch) ** 1.25, 1e-3, launch.v.shape))
    if launch.rng.random() < 0.5:
        launch.hide(launch.keys_where(0.5))


@adversary
def rows_without_keys(launch: Launch) -> None:
    """Fewer keys than rows, and some of those at -inf."""
    launch.resize(int(launch.rng.integers(40, 130)), int(launch.rng.integers(1, 40)), causal=True)
    launch.hide(launch.keys_where(0.5))
    _one(launch, 5000.0)


# -- 2. weights far below the greatest -------------------------------------------------------------


@adversary
def a_sink_key_without_value(launch: Launch) -> None:
    """All weight but 1e-9 on a key with V = 0, as attention sinks of real models have it."""
    below = launch.rng.uniform(5, 28, (launch.heads[1], launch.keys))
    if launch.rng.random() < 0.7:
        below = launch.rng.uniform(18, 25, below.shape)
    which = 0 if launch.rng.random() < 0.6 else int(launch.rng.integers(launch.keys))
    below[:, which] = 0
    launch.q *= 0.3
    launch.offset(-below)
    launch.v[:, which] = 0


@adversary
def large_v_far_below(launch: Launch) -> None:
    """Keys 40 to 85 nats below others make the result."""
    far = launch.keys_where(0.3)
    nats = launch.rng.uniform(40, 85) if launch.is_bf16 else launch.rng.uniform(6, 15)
    launch.q *= 0.3
    launch.offset(np.where(far, -nats, 0))
    size = np.exp(nats) * launch.rng.choice([1e-8, 1.0, 100.0])
    launch.v *= np.where(far, min(size, launch.rules.greatest / 8), 1e-8)[..., None]


@adversary
def small_columns_of_v(launch: Launch) -> None:
    """Columns 1e-4 to 1e-9 of their neighbours, one by one or 16 together."""
    shape = (launch.heads[1], 1, launch.dims[1])
    small = launch.rng.random(shape) < 0.4
    if launch.rng.random() < 0.3:
        small = np.repeat(small[..., ::16], 16, -1)[..., : shape[2]]
    by = 10.0 ** -launch.rng.uniform(4, 9) if launch.is_bf16 else 10.0 ** -launch.rng.uniform(2, 4)
    launch.v *= np.where(small, by, launch.rng.choice([1, 100.0]))


@adversary
def one_key_with_a_small_v(launch: Launch) -> None:
    launch.resize(window_size=(0, 0), num_splits=1)
    launch.v = _signed(launch, _size(launch, _least(launch) ** 1.25, 1, launch.v.shape))


@adversary
def two_levels(launch: Launch) -> None:
    """One key ahead of all others by 3 to 30 nats, the weight of V shared in many ways."""
    first = launch.rng.integers(launch.keys, size=launch.heads[1])
    ahead = np.zeros((launch.heads[1], launch.keys))
    ahead[np.arange(len(first)), first] = launch.rng.uniform(3, 30, len(first))
    launch.offset(ahead)
    launch.v[np.arange(len(first)), first] *= 10.0 ** -launch.rng.uniform(0, 8)


# -- 3. large scores -------------------------------------------------------------------------------


@adversary
def scores_beyond_30000(launch: Launch) -> None:
    """To 1e5, or as far as the type goes; few keys count, some twice there."""
    far = 1e36 if launch.is_bf16 else 1e8
    size = _size(launch, 3e4, 1e5 if launch.rng.random() < 0.5 else far, ())
    by = np.sqrt(size / (abs(launch.scale) or 1) / launch.dims[0] ** 0.5)
    by = 2.0 ** np.ceil(np.log2(by))
    launch.on_grid()
    launch.q *= by * 2.0 ** launch.rng.integers(-3, 1, (launch.heads[0], launch.rows, 1))
    launch.k *= by
    twice = launch.rng.integers(launch.keys, size=(2, max(1, launch.keys // 4)))
    launch.k[:, twice[0]] = launch.k[:, twice[1]]


@adversary
def large_scores_in_common(launch: Launch) -> None:
    """All near 3e4 to 1e5 of either sign, with differences of a few nats."""
    nats = launch.rng.uniform(3e4, 1e5) * launch.rng.choice([-1, 1])
    launch.offset(_by_key(launch, np.array(nats)))


@adversary
def scores_of_any_size(launch: Launch) -> None:
    """Up to 1e5, by row and by key."""
    launch.q *= _size(launch, 0.1, 300, (launch.heads[0], launch.rows, 1))
    launch.k *= _size(launch, 0.1, 300, (launch.heads[1], launch.keys, 1))
    launch.v *= _size(launch, 1e-3, 1e3, (launch.heads[1], launch.keys, 1))


@adversary
def scores_that_grow(launch: Launch) -> None:
    """Along the keys, or fall, slowly or fast: references are renewed, or go stale."""
    step = _size(launch, 0.02, 500, (1, 1)) * launch.rng.choice([-1, 1, 1])
    launch.offset(_by_key(launch, step * np.arange(launch.keys)))


@adversary
def scores_that_jump(launch: Launch) -> None:
    """At one key, by 2^n, of some rows only."""
    nats = np.zeros((1, launch.rows, launch.keys))
    for rows in np.array_split(np.arange(launch.rows), 4):
        if len(rows):
            key = int(launch.rng.integers(launch.keys))
            nats[:, rows, key:] += 2.0 ** launch.rng.integers(0, 17)
    launch.offset(np.broadcast_to(nats[:, :, :], nats.shape))
    _one(launch, float(launch.rng.choice([5000.0, 1e-3])))


# -- 4. the ends of the range ----------------------------------------------------------------------


@adversary
def a_common_offset_of_2_17(launch: Launch) -> None:
    """Whole, and in parts to be merged."""
    launch.resize(num_splits=int(launch.rng.choice([1, 2, 3, 5])))
    nats = 2.0**17 * launch.rng.choice([-1, 1, 0.5])
    launch.offset(_by_key(launch, np.array(nats)))


@adversary
def a_common_offset_of_2_20(launch: Launch) -> None:
    """As far out as float32 has digits for what is beside it; a sink there, too.

    Sums of q and k are exact in any order: whole numbers, of so many digits at most.
    """
    launch.resize(num_splits=int(launch.rng.choice([1, 2, 3, 5])))
    size = abs(launch.scale)
    sum_of_column = 2.0 ** math.floor(math.log2(2.0 ** launch.rng.integers(19, 21) / size))
    nats = size * sum_of_column * launch.rng.choice([-1, 1])
    column = launch.free_dims % launch.dims[0]
    launch.offset(_by_key(launch, np.array(nats)))
    others = np.arange(launch.dims[0]) != column
    spacing = max(1.0, sum_of_column * 2.0**-23)
    launch.q[..., others] = np.rint(launch.q[..., others])
    launch.k[..., others] = np.rint(launch.k[..., others]) * spacing
    if launch.rng.random() < 0.5:
        launch.sinks = nats + launch.rng.standard_normal(launch.heads[0]) * 3


@adversary
def denormal_results(launch: Launch) -> None:
    if launch.is_bf16:
        launch.v *= _size(launch, 1e-41, 1e-37, (launch.heads[1], 1, launch.dims[1]))
    else:
        launch.v *= _size(launch, 5e-8, 1e-4, (launch.heads[1], 1, launch.dims[1]))
    launch.q *= launch.rng.choice([0.1, 1, 3])
    if launch.kernel.takes_any and not launch.kernel.is_narrow:
        launch.options["num_splits"] = int(launch.rng.choice([1, 2, 3]))


@adversary
def enormous_sinks(launch: Launch) -> None:
    """O is 0, the log-sum-exp the sink; or the least, or none."""
    sinks = np.array([3e38, 1e38, 2.5e38, 1e30, 1e6, -1e6, -3e38, -np.inf])
    launch.sinks = launch.rng.choice(sinks, launch.heads[0])


@adversary
def sinks_far_above(launch: Launch) -> None:
    """30 to 110 nats above all keys: what is left of V, which may be large."""
    above = launch.rng.uniform(30, 110, launch.heads[0])
    base = launch.rng.choice([0.0, 0.0, 500.0, -3e4])
    launch.q *= 0.3
    launch.offset(_by_key(launch, np.array(base)))
    launch.sinks = base + above
    size = np.exp(above.reshape(launch.heads[1], -1).mean(1)) if launch.is_bf16 else np.ones(1)
    launch.v *= np.minimum(size, 1e37 if launch.is_bf16 else 1e4)[
        :, None, None
    ] * launch.rng.choice([1.0, 1e-3])


@adversary
def rising_scores_under_a_sink(launch: Launch) -> None:
    """References that fall behind by up to 110 nats, of whole rows or of parts, V of any size."""
    launch.resize(keys=int(launch.rng.choice([300, 512, 700])))
    if not launch.kernel.is_narrow:
        launch.options.pop("window_size", None)
    rise = float(launch.rng.choice([10, 20, 27, 40, 110] if launch.is_bf16 else [5, 10]))
    launch.offset(_by_key(launch, np.linspace(0, rise, launch.keys)))
    above = launch.rng.choice([-rise, 0.0, 30.0, 70.0, 100.0], launch.heads[0])
    launch.sinks = rise + above if launch.rng.random() < 0.8 else None
    largest = [1.0, 1.0, 1e10, 1e18, 1e24, 3e37] if launch.is_bf16 else [1.0]
    launch.v *= launch.rng.choice(largest)


@adversary
def a_scale_of_zero(launch: Launch) -> None:
    """Where 0 times -inf is NaN, and all other keys weigh the same."""
    launch.resize(softmax_scale=float(launch.rng.choice([0.0, 0.0, -0.0, 1e-30])))
    if launch.rng.random() < 0.7:
        chosen = launch.keys_where(0.05)
        launch.k[:, :, 0] = np.where(chosen, launch.rng.choice([-np.inf, np.inf]), launch.k[..., 0])


# -- 5. V of every size, and what is no number -----------------------------------------------------


@adversary
def v_of_every_size(launch: Launch) -> None:
    """1e-30 to 3e38 by key, column and head."""
    low, high = _least(launch), 3e38 if launch.is_bf16 else 6e4
    for shape in ((launch.keys, 1), (1, launch.dims[1]), (1, 1)):
        if launch.rng.random() < 0.6:
            share = (high / low) ** 0.5
            launch.v *= _size(launch, share**-1, share, (launch.heads[1], *shape))
    launch.v = np.sign(launch.v) * np.clip(np.abs(launch.v), low, high)
    launch.q *= launch.rng.choice([0.3, 1, 10])


@adversary
def sums_that_overflow(launch: Launch) -> None:
    """V near the greatest number: of some keys, some columns, or all."""
    most = launch.rules.greatest
    which = launch.rng.random(launch.v.shape) < launch.rng.choice([0.01, 0.5, 1.0])
    if launch.rng.random() < 0.5:
        which &= launch.rng.random((1, 1, launch.dims[1])) < 0.2
    size = most * launch.rng.uniform(0.2, 1.0, launch.v.shape)
    if launch.rng.random() < 0.5:
        size = _signed(launch, size)
    launch.v = np.where(which, size, launch.v)


@adversary
def large_v_beside_small(launch: Launch) -> None:
    """Up to 2^127 in some columns, where scaled sums overflow; weights of 2^-120 in others."""
    high = 2.0 ** launch.rng.uniform(115, 127) if launch.is_bf16 else 3e4
    column = launch.rng.random((launch.heads[1], 1, launch.dims[1])) < 0.3
    far = launch.keys_where(0.3)
    nats = launch.rng.uniform(20, 84) if launch.is_bf16 else 10.0
    launch.offset(np.where(far, -nats, 0))
    small = np.where(far, min(np.exp(nats), 1e37), 1.0)[..., None]
    launch.v *= np.where(column, high / 8, small)


@adversary
def outliers_of_v(launch: Launch) -> None:
    for _ in range(int(launch.rng.integers(1, 4))):
        _one(launch, float(launch.rng.choice([4095.0, 4096.0, 5000.0, 6e4, -6e4, 1e-5])))


@adversary
def numbers_that_are_none(launch: Launch) -> None:
    """NaN and infinities anywhere."""
    for x in (launch.q, launch.k, launch.v):
        if launch.rng.random() < 0.6:
            where = launch.rng.random(x.shape) < launch.rng.choice([1, 3]) / x[0].size
            values = launch.rng.choice([np.nan, np.inf, -np.inf, -np.inf], x.shape)
            x[where] = values[where]


@adversary
def infinite_v_far_below(launch: Launch) -> None:
    """Under a weight that underflows, or nearly."""
    far = launch.keys_where(0.2)
    nats = launch.rng.choice([10.0, 60.0, 84.0, 400.0])
    launch.q *= 0.2
    launch.offset(np.where(far, -nats, 0))
    which = far[..., None] & (launch.rng.random(launch.v.shape) < 0.02)
    launch.v = np.where(which, launch.rng.choice([np.inf, -np.inf], launch.v.shape), launch.v)


MIXED = (
    keys_of_minus_infinity,
    a_sink_key_without_value,
    small_columns_of_v,
    scores_that_jump,
    scores_of_any_size,
    v_of_every_size,
    sinks_far_above,
    outliers_of_v,
    numbers_that_are_none,
    two_levels,
)


@adversary
def several_at_once(launch: Launch) -> None:
    for n in launch.rng.permutation(len(MIXED))[: int(launch.rng.integers(2, 4))]:
        MIXED[n](launch)
