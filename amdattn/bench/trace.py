"""Writes the events of CU 0 in the Chrome trace format, which Perfetto opens."""

from __future__ import annotations

import json
from pathlib import Path

from amdattn.device.profiling import LaunchProfile
from amdattn.output_files import replacing

_WAVES, _UNITS = 1, 2  # processes of the trace: one track per wave, one per unit


def write_trace(path: Path, profile: LaunchProfile) -> int:
    """Write one track per wave and one per unit of each SIMD; return the number of events.

    Times are in microseconds at the assumed clock, as the format requires. The arguments of every
    event have them in clk.
    """
    texts = {site.offset: site.text for site in profile.sites}
    scale = 1 / (profile.clock_ghz * 1000)  # clk to us
    names: dict[tuple[int, int], str] = {}
    events = []
    for event in profile.events:
        if event.track == "wave":
            process, thread = _WAVES, event.wave
            names[process, thread] = f"wave {event.wave} (SIMD {event.simd})"
        else:
            order = ("matrix", "vector", "lds", "memory").index(event.track)
            process, thread = _UNITS, 4 * event.simd + order
            names[process, thread] = f"SIMD {event.simd} {event.track}"
        text = texts.get(event.offset, "")
        events.append(
            {
                "name": text.partition(" ")[0] or event.track,
                "cat": event.track,
                "ph": "X",
                "pid": process,
                "tid": thread,
                "ts": event.start * scale,
                "dur": max(event.end - event.start, 1) * scale,
                "args": {
                    "instruction": text,
                    "offset": f"+0x{event.offset:x}",
                    "wave": event.wave,
                    "start_clk": event.start,
                    "end_clk": event.end,
                },
            }
        )
    processes = {_WAVES: "waves of CU 0", _UNITS: "units of CU 0"}
    metadata = [
        {"name": "process_name", "ph": "M", "pid": process, "args": {"name": name}}
        for process, name in processes.items()
    ] + [
        {"name": "thread_name", "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
        for (process, thread), name in sorted(names.items())
    ]
    document = {
        "displayTimeUnit": "ns",
        "otherData": {
            "kernel": profile.kernel,
            "origin": f"modelled at {profile.clock_ghz:g} GHz, not measured",
        },
        "traceEvents": metadata + events,
    }
    with replacing(path) as new:
        new.write_text(json.dumps(document), encoding="utf-8")
    return len(events)
