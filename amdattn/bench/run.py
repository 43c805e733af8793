"""Runs kernels at shapes: modelled on the virtual device, measured on a GPU."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amdattn.arch import readings
from amdattn.arch.energies import ENERGIES
from amdattn.arch.power_cap import clock_by_matrix_use, gemm_tflops
from amdattn.bench.clocks import Clocks, clocks
from amdattn.bench.kernels import Functions, Launch
from amdattn.bench.modelled import Modelled
from amdattn.bench.record import Record, Times
from amdattn.device import runtime
from amdattn.energy import Activity, estimate
from amdattn.testing.bench import do_bench

if TYPE_CHECKING:
    from amdattn.device.profiling import LaunchProfile

_HOTTEST = 12
_CACHES = "code warm, data cold"  # as do_bench leaves them on a GPU
_QUANTILES = (0.1, 0.5, 0.9)
_SETTLING, _SETTLED = 3, 0.02  # the most simulations, and the change of the clock that ends them


@dataclass(frozen=True)
class Outcome:
    """A record, and the modelled launch that plots and traces need; None if measured."""

    record: Record
    modelled: Modelled | None = None


@contextlib.contextmanager
def reading(name: str) -> Iterator[None]:
    """Model the launches of a `with` block under one reading (`amdattn.arch.readings`).

    Raises
    ------
    ValueError
        The architecture has no such reading, or it is not the default and a GPU is bound, which
        measures.
    """
    options = readings.options(name, runtime.device_props().arch)
    if not is_virtual():
        if name != readings.DEFAULT:
            raise ValueError(
                f"reading={name!r} must be {readings.DEFAULT!r} on a GPU, which measures: other "
                "readings need the virtual device"
            )
        yield
        return
    exports = runtime.get().virtual_exports()
    before = exports.set_options(**options)
    try:
        yield
    finally:
        exports.set_options(**before)


def is_virtual() -> bool:
    """Whether the virtual device is bound, so that numbers are modelled."""
    return runtime.get().choice.kind == "virtual"


def measured_record(blank: Record, launches: Sequence[Launch], functions: Functions) -> Record:
    """Time the launches of an operation together on the GPU; caches are flushed before each run."""

    def enqueue() -> None:
        for launch in launches:
            launch.enqueue(functions)

    return timed_record(blank, launches, enqueue)


def timed_record(
    blank: Record, launches: Sequence[Launch], enqueue: Callable[[], object]
) -> Record:
    """Like `measured_record`, but `enqueue` makes the launches."""
    quantiles: Sequence[float] = do_bench(enqueue, quantiles=_QUANTILES)
    low, median, high = (1000 * ms for ms in quantiles)
    return dataclasses.replace(
        blank,
        kernel=" + ".join(launch.symbol for launch in launches),
        sha256=" + ".join(dict.fromkeys(launch.sha256 for launch in launches)),
        workgroups=sum(launch.num_workgroups for launch in launches),
        times=Times(median_us=median, low_us=low, high_us=high),
        clocks=_readable_clocks(),
    )


def _readable_clocks() -> dict[str, float]:
    """The device's greatest clock according to its runtime."""
    device = runtime.get()
    attribute = device.hip.hipDeviceAttribute_t.hipDeviceAttributeClockRate
    khz = device.check(
        "hipDeviceGetAttribute", device.hip.hipDeviceGetAttribute(attribute, device.ordinal)
    )
    return {"stated_peak_ghz": khz / 1e6}


def modelled_record(blank: Record, modelled: Modelled) -> Record:
    """`blank` with the results of the model, and times at each clock."""
    launch = modelled.launch
    props = runtime.device_props()
    arch, limits = clocks(props), props.architecture
    estimated = energy(modelled.activity)
    served: dict[str, float] = {
        level: round(n / modelled.part) for level, n in modelled.bytes.items()
    }
    used = max(modelled.cycles, 1.0) * modelled.cus
    device_use = modelled.clk["mfma"] / modelled.part
    device_use /= limits.simds_per_cu * max(modelled.cycles, 1.0) * arch.num_cus
    by_use, most = clock_by_matrix_use(props.label, device_use), gemm_tflops(props.label)
    return dataclasses.replace(
        blank,
        kernel=launch.symbol,
        sha256=launch.sha256,
        cycles=round(modelled.cycles),
        times=Times(
            at_peak_us=modelled.cycles / arch.peak_ghz / 1000,
            at_sustained_us=modelled.cycles / modelled.clock_ghz / 1000,
            estimated_us=estimated_us(estimated, served, arch),
            by_use_us=None if by_use is None else modelled.cycles / by_use / 1000,
        ),
        use={
            "mfma": modelled.clk["mfma"] / (limits.simds_per_cu * used),
            "valu": modelled.clk["valu"] / (limits.simds_per_cu * used),
            "lds": modelled.clk["lds"] / (limits.lds_ports * used),
            "mfma_device": device_use,
        },
        stalls=modelled.stalls,
        bytes=served,
        workgroups=launch.num_workgroups,
        residents=modelled.residents,
        rounds=math.ceil(launch.num_workgroups / (arch.num_cus * modelled.residents)),
        clocks={
            "peak_ghz": arch.peak_ghz,
            "sustained_ghz": modelled.clock_ghz,
            "launch_us": arch.launch_us,
            **({} if by_use is None else {"by_use_ghz": by_use}),
            **({} if most is None else {"gemm_tflops": most}),
        },
        reading=modelled.profile.reading,
        caches=_CACHES,
        sampled=modelled.sampled,
        hottest=_hottest(modelled.profile),
        energy=estimated,
    )


def estimated_us(
    estimated: Mapping[str, Any], served: Mapping[str, float], arch: Clocks
) -> float | None:
    """Time at the estimated clock, but at least that of HBM, which has its own clock.

    None if there is no estimate.
    """
    if "clock_ghz" not in estimated:
        return None
    of_hbm = (served["hbm"] + served["hbm_write"]) / arch.hbm_bytes_per_ns / 1000
    return max(float(estimated["microseconds"]), of_hbm)


def settled(record: Record, model: Callable[[int], Activity]) -> Record:
    """Repeat the estimate of a short launch with simulations at the clock that it gives.

    Latencies beyond the L2 are constant in ns, so a higher clock saves less than the ratio of the
    clocks.

    Parameters
    ----------
    record : Record
        With an estimate.
    model : callable
        Returns the activity of the operation from the clock in MHz.
    """
    floors = record.clocks["launch_us"] * max(len(record.launches) - 1, 0)
    at, next_ghz = record.clocks["sustained_ghz"], record.energy["clock_ghz"]
    for _ in range(_SETTLING):
        if abs(next_ghz / at - 1) <= _SETTLED:
            break
        at = round(next_ghz, 3)
        activity = model(round(1000 * at))
        found = energy(activity)
        next_ghz = found["clock_ghz"]
        us = activity.cycles / at / 1000
        record = dataclasses.replace(
            record,
            energy=found | {"clock_ghz": at, "microseconds": us},
            times=dataclasses.replace(record.times, estimated_us=floors + us),
        )
    return record


def energy(activity: Activity) -> dict[str, Any]:
    """The estimate of amdattn.energy and its inputs, or the reason why there is none.

    The keys are those of `Record.energy`.
    """
    device = runtime.device_props().label
    if device not in ENERGIES:
        return {"refused": f"no energies are known for {device}, only for {', '.join(ENERGIES)}"}
    try:
        estimated = estimate(activity, ENERGIES[device])
    except ValueError as error:
        return {"refused": str(error)}
    matrix = max(sum(activity.matrix_flops.values()), 1.0)
    return {
        "joules": estimated.joules,
        "clock_ghz": estimated.clock_ghz,
        "cycles": round(activity.cycles),
        "microseconds": estimated.seconds * 1e6,
        "watts": estimated.watts,
        "matrix_flops": dict(activity.matrix_flops),
        "per_matrix_kflop": {
            name: getattr(activity, name) / matrix * 1e3
            for name in ("vector_slots", "lds_bytes", "l1_bytes", "l2_bytes", "hbm_bytes")
        },
    }


def _hottest(profile: LaunchProfile) -> list[dict[str, Any]]:
    """The instructions at which waves waited longest."""
    sites = sorted(profile.sites, key=lambda site: -sum(site.stalls.values()))[:_HOTTEST]
    lifetime = max(profile.clk["wave"], 1)
    return [
        {
            "offset": site.offset,
            "text": site.text,
            "issued": site.issued,
            "share": sum(site.stalls.values()) / lifetime,
            "reason": max(site.stalls, key=lambda reason: site.stalls[reason], default=""),
        }
        for site in sites
    ]
