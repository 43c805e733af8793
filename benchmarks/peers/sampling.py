"""Models a launch of any size from launches of the same geometry with fewer rows of K and V.

What is simulated has the grid, the addresses and the strides of the launch in question, and every
CU of an XCD occupied; only the walk over K and V is shorter. How long a workgroup takes as a linear
function of its KV rows follows from two lengths, for every number of workgroups that share a CU; a
third length says how well, and then takes the place of the shortest. What later workgroups of a CU
gain from warm caches comes from a launch of two rounds. Launches of little work are simulated in
full. docs/studies/sampled-launches.md has the method and its error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from amdattn.bench.kernels import Launch, Operands, Walk
from amdattn.bench.modelled import (
    TOLERANCE,
    Modelled,
    NotLinear,
    SamplerBase,
    of_mean_xcd,
    simulated,
    with_shared_cache,
)
from amdattn.bench.replay import Speed, Timeline, longest, replay
from amdattn.bench.shapes import Shape
from amdattn.bench.traffic import beyond_l2
from amdattn.energy import matrix_flops
from benchmarks.peers.one_launch import OneLaunch
from benchmarks.peers.speed import Simulation, fit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from amdattn.bench.clocks import Clocks
    from amdattn.device.profiling import LaunchProfile

# Instructions of an XCD that are simulated rather than sampled: half a minute of one core.
_AFFORDABLE = 24_000_000
# KV rows to simulate, besides the remainder, which is kept so that the last tile is as full.
_LENGTHS = (256, 512, 768, 1024, 1536, 2048)
# Of workgroups that share CUs, which find their rhythm later, or that take two tiles.
_SHARED_LENGTHS = (512, 1024, 1536, 2048, 3072)
_GRANULE = 256
# Of causal masks: odd multiples, or else an XCD would only get the tiles of one end.
_CAUSAL_LENGTHS = (768, 1280, 1792, 2304, 3328)
_ORDER_TRIALS = 8
_NO_SAMPLE = 0.05  # a prediction so far off is none


def replay_device(
    rows: NDArray[Any], speed: Speed, residents: int, num_waves: int, clocks: Clocks
) -> list[Timeline]:
    """Every XCD, of a launch whose workgroups have these KV rows by flat id."""
    known: dict[bytes, Timeline] = {}
    timelines = []
    for xcd in range(min(clocks.num_xcds, len(rows))):
        own = rows[xcd :: clocks.num_xcds]
        key = own.tobytes()
        if key not in known:
            known[key] = replay(own.tolist(), speed, residents, num_waves, clocks)
        timelines.append(known[key])
    return timelines


class Sampler(SamplerBase[OneLaunch]):
    """Models launches of one kernel at one shape.

    "auto" simulates in full if that takes half a minute at most, or is no more work, or if a sample
    says nothing of the launch.
    """

    def model(self) -> Modelled:
        """Simulate and extrapolate.

        Raises
        ------
        NotLinear
            This launch cannot be sampled.
        """
        walk = self._kernel.walk(self._shape)
        lengths = self._lengths(_LENGTHS)
        why = "" if len(lengths) >= 3 else "too few rows of K and V to sample"
        if self._shape.window != (-1, -1):
            why = "windows cannot be sampled"
        if self._method == "sampled" and why:
            raise NotLinear(f"{self._shape}: {why}; simulate in full")
        if self._method == "full" or why:
            return self._full(walk)
        probe = self._probe()
        if self._method == "auto" and self._is_affordable(walk, lengths, probe):
            return self._full(walk)
        residents = probe.profile.resident_per_cu
        shared = self._lengths(_SHARED_LENGTHS)
        if residents > 1 and len(shared) >= 3:
            lengths = shared
        try:
            return self._sampled(walk, lengths, residents)
        except NotLinear:
            if self._method == "sampled":
                raise
            self._done = 0
            return self._full(walk)

    def _probe(self) -> Simulation:
        """One workgroup of few rows: how many fit a CU, and about what a row costs."""
        short = self._shape.with_lengths(min(self._shape.seqlen_q, _GRANULE), _GRANULE)
        with Operands(short, self._inputs) as operands:
            return self._simulate(operands, short, 1, 1)

    def _is_affordable(self, walk: Walk, lengths: Sequence[int], probe: Simulation) -> bool:
        rows = walk.kv_rows[self._busiest(walk) :: self._arch.num_xcds].sum()
        instructions = probe.profile.instructions / max(int(probe.rows.sum()), 1) * rows
        sampled = self._arch.cus_per_xcd * sum(lengths[:3])
        return bool(instructions <= _AFFORDABLE or rows <= sampled)

    # -- the whole launch ------------------------------------------------------------------------

    def _busiest(self, walk: Walk) -> int:
        """The XCD whose workgroups have most KV rows; the first of those."""
        xcds = self._arch.num_xcds
        return int(np.argmax([walk.kv_rows[xcd::xcds].sum() for xcd in range(xcds)]))

    def _full(self, walk: Walk) -> Modelled:
        xcd = self._busiest(walk)
        rows = walk.kv_rows[xcd :: self._arch.num_xcds]
        self._total = int(rows.sum())
        with Operands(self._shape, self._inputs) as operands:
            done = self._simulate(
                operands, self._shape, len(rows), 0, self._trace_events, simulated_xcd=xcd
            )
        mean = float(walk.kv_rows.sum() / max(rows.sum(), 1)) / self._arch.num_xcds
        whole = simulated(self._launch, done.profile)
        whole = of_mean_xcd(whole, self._arch, len(walk.kv_rows), mean)
        return with_shared_cache(whole, self._shape, walk, self._arch)

    # -- a sample of it --------------------------------------------------------------------------

    def _lengths(self, plain: Sequence[int]) -> list[int]:
        """Lengths of K and V to simulate, in the order in which they are needed."""
        longest = self._shape.seqlen_kv
        granule = self._kernel.causal_granule if self._shape.causal else _GRANULE
        if self._shape.causal:
            plain = _CAUSAL_LENGTHS if granule == _GRANULE else _SHARED_LENGTHS
        lengths = (n + longest % granule for n in plain)
        return [length for length in lengths if length < longest]

    def _sampled(self, walk: Walk, lengths: list[int], probe: int) -> Modelled:
        shape = self._shape
        rows = walk.kv_rows[:: self._arch.num_xcds]
        if shape.causal and shape.seqlen_q > shape.seqlen_kv:
            raise NotLinear(f"{shape}: rows of Q without keys cannot be sampled; simulate in full")
        cus = self._arch.cus_per_xcd
        residents = min(probe, -(-len(rows) // cus))
        wanted = cus * residents * (2 if len(rows) > cus * residents else 1)
        wide = self._widened(lengths[0], wanted)
        levels = range(1, residents + 1)
        two_rounds = len(rows) > cus * residents
        self._total = cus * (
            sum(levels) * (lengths[0] + lengths[1])
            + residents * lengths[2]
            + 2 * residents * lengths[0] * two_rounds
        )
        self._done = 0
        done: dict[tuple[int, int], Simulation] = {}

        def simulate(length: int, level: int, limit: int, events: int = 0) -> Simulation:
            if (length, limit) not in done:
                short = self._shortened(wide, length)
                done[length, limit] = self._simulate(operands, short, limit, level, events)
            return done[length, limit]

        full = min(cus * residents, len(rows))

        def learn(first: int, second: int, third: int = 0) -> Speed:
            """From two lengths; a third one replaces the shorter where all residents share."""
            speed = Speed({})
            for level in levels:
                two = (second, third) if third and level == residents else (first, second)
                pair = [simulate(length, level, min(cus * level, len(rows))) for length in two]
                shared = fit(pair, speed, level)
                speed = dataclasses.replace(speed, shared={**speed.shared, level: shared})
            speed = self._with_spread(speed, pair)
            if not two_rounds:
                return speed
            both = min(2 * full, len(rows))
            return self._with_warmth(speed, simulate(first, residents, both))

        with Operands(wide, self._inputs) as operands:
            found = {}
            for tried in range(len(lengths) - 2):
                first, second, check = lengths[tried : tried + 3]
                checked = simulate(check, residents, full, self._trace_events)
                predicted = self._replay(checked, learn(first, second)).cycles
                last = checked.profile.cycles - checked.profile.write_back_clk
                found[first, second, check] = predicted / last - 1
                if abs(found[first, second, check]) <= TOLERANCE:
                    break
            (first, second, check), error = min(found.items(), key=lambda item: abs(item[1]))
            if abs(error) > _NO_SAMPLE:
                raise NotLinear(
                    f"{shape}: rows of K and V {first} and {second} predict {check} with an error "
                    f"of {error:.1%}; simulate in full"
                )
            speed = learn(first, second, check)
            launch = self._kernel.launch(shape, operands)
        simulations = [done[length, full] for length in (first, second, check)]
        timelines = replay_device(walk.kv_rows, speed, residents, self._num_waves, self._arch)
        sampled = {
            "lengths": [first, second, check],
            "check_error": error,
            "simulated_workgroups": sorted({limit for _, limit in done}),
            "simulated_kv_rows": int(sum(s.rows.sum() for s in done.values())),
            "of_kv_rows": int(rows.sum()),
            "clk": {str(n): [list(pair) for pair in shared] for n, shared in speed.shared.items()},
            "warm_clk": speed.warm,
            "order_range": self._order_range(walk, speed, residents, longest(timelines).cycles),
        }
        return self._extrapolated(launch, simulations, walk, timelines, probe, sampled)

    def _order_range(self, walk: Walk, speed: Speed, residents: int, cycles: float) -> list[float]:
        """Least and greatest change of the cycles if every duration varies by the tolerance.

        Workgroups of unequal work that share CUs by chance make the end of a launch depend on who
        is free first: that much cannot be predicted.
        """
        if np.ptp(walk.kv_rows) == 0:
            return [0.0, 0.0]
        rng = np.random.default_rng(0)
        found = []
        for _ in range(_ORDER_TRIALS):
            factor = 1 + TOLERANCE * rng.uniform(-1, 1, len(walk.kv_rows))
            varied = replay_device(
                walk.kv_rows * factor, speed, residents, self._num_waves, self._arch
            )
            found.append(longest(varied).cycles / cycles - 1)
        return [min(found), max(found)]

    def _widened(self, shortest: int, wanted: int) -> Shape:
        """With more batch entries if the shortest sample would not fill the XCD otherwise."""
        shape = self._shape
        while True:
            short = self._shortened(shape, shortest)
            have = -(-len(self._kernel.walk(short).kv_rows) // self._arch.num_xcds)
            if have >= wanted or not shape.causal:
                return shape
            shape = dataclasses.replace(shape, batch=shape.batch * -(-wanted // have))

    def _shortened(self, shape: Shape, length: int) -> Shape:
        return shape.with_lengths(
            min(shape.seqlen_q, length) if shape.causal else shape.seqlen_q, length
        )

    def _simulate(
        self,
        operands: Operands,
        shape: Shape,
        limit: int,
        level: int,
        events: int = 0,
        *,
        simulated_xcd: int = 0,
    ) -> Simulation:
        if self._kernel.compact and operands.shape != shape:
            with Operands(shape, self._inputs) as own:
                return self._simulate(own, shape, limit, level, events, simulated_xcd=simulated_xcd)
        walk = self._kernel.walk(shape)
        flat = np.arange(simulated_xcd, len(walk.kv_rows), self._arch.num_xcds)[:limit]
        operands.fill_for(shape, walk, flat)
        launch = self._kernel.launch(shape, operands)
        self._launch, self._num_waves = launch, launch.num_waves
        self._tell(shape)
        (result,) = self._profiles([launch], limit, simulated_xcd, events)
        rows = walk.kv_rows[flat]
        self._done += int(rows.sum())
        self._tell(shape)
        return Simulation(shape.seqlen_kv, level, rows, result)

    def _replay(self, of: Simulation, speed: Speed) -> Timeline:
        residents = max(speed.shared)
        return replay(of.rows.tolist(), speed, residents, self._num_waves, self._arch)

    def _with_spread(self, speed: Speed, of: Sequence[Simulation]) -> Speed:
        """How much later than the mean each CU is, which does not depend on the length."""
        late = np.mean([s.ends - _ends(self._replay(s, speed), len(s.ends)) for s in of], axis=0)
        return dataclasses.replace(speed, late=tuple(float(clk) for clk in late))

    def _with_warmth(self, speed: Speed, of: Simulation) -> Speed:
        """What later workgroups take longer, so that two rounds end as simulated."""
        target = of.ends.mean()

        def end(warm: float) -> float:
            timeline = self._replay(of, dataclasses.replace(speed, warm=warm))
            return float(_ends(timeline, len(of.ends)).mean())

        low, high = 0.0, float(target - end(0.0))  # secant
        at_low, at_high = end(low), end(high)
        for _ in range(8):
            if abs(at_high - target) < 1 or at_high == at_low:
                break
            low, high = high, high + (target - at_high) * (high - low) / (at_high - at_low)
            at_low, at_high = at_high, end(high)
        return dataclasses.replace(speed, warm=float(high))

    def _extrapolated(
        self,
        launch: Launch,
        of: Sequence[Simulation],
        walk: Walk,
        timelines: Sequence[Timeline],
        residents: int,
        sampled: dict[str, Any],
    ) -> Modelled:
        """Totals of the mean XCD: each is so much per workgroup and so much per KV row."""
        xcds = self._arch.num_xcds
        rows, timeline = walk.kv_rows, longest(timelines)
        shared = beyond_l2(self._shape, walk, timelines, self._arch)
        known = np.array([[len(s.rows), s.rows.sum()] for s in of], float)
        wanted = np.array([len(rows), rows.sum()], float) / xcds

        def total(values: Sequence[float]) -> float:
            fitted = np.linalg.lstsq(known, np.array(values, float), rcond=None)[0]
            return max(float(wanted @ fitted), 0.0)

        def totals(of_profile: Callable[[LaunchProfile], Mapping[str, float]]) -> dict[str, float]:
            found = [of_profile(s.profile) for s in of]
            return {name: total([row[name] for row in found]) for name in found[0]}

        last = of[-1].profile
        clk = totals(lambda profile: profile.clk)
        stalls = totals(
            lambda profile: {r: x * profile.clk["wave"] for r, x in profile.stalls.items()}
        )
        return Modelled(
            launch,
            timeline.cycles + last.write_back_clk,
            min(self._arch.num_cus, len(rows)) / xcds,
            1 / xcds,
            last.clock_ghz,
            residents,
            total([s.profile.instructions for s in of]),
            clk,
            self._bytes(totals(lambda profile: profile.bytes), last)
            | {"hbm": shared["hbm"] / xcds},
            totals(matrix_flops),
            {reason: value / max(clk["wave"], 1.0) for reason, value in stalls.items()},
            last,
            timeline,
            sampled,
        )

    def _bytes(self, totals: dict[str, float], last: LaunchProfile) -> dict[str, float]:
        """Under a causal mask more workgroups share K and V the longer they are.

        What a cache serves is then no linear function of rows; its share of the L1's is taken.
        """
        if self._shape.causal:
            for level in ("l2", "mall"):
                totals[level] = totals["l1"] * last.bytes[level] / max(last.bytes["l1"], 1)
        return totals


def _ends(timeline: Timeline, num_cus: int) -> NDArray[np.float64]:
    last = np.zeros(num_cus)
    np.maximum.at(last, timeline.cu, timeline.end)
    return last
