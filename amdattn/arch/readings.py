"""Readings: alternative assumptions of the performance model about unknown hardware behaviour.

Each reading changes one assumption of the model. A ratio of two kernels that holds under every
reading depends on none of these assumptions. `docs/generated/readings.md` is made from this table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amdattn.arch.architectures import ARCHITECTURES

DEFAULT = "default"  # the assumptions of virtual_device/arch


@dataclass(frozen=True, slots=True)
class Reading:
    """One assumption that differs from the default.

    Attributes
    ----------
    name : str
    changes : str
        What the model does under this reading, and what it does by default.
    options : dict of str to int
        Options of the virtual device that select this reading. The options of all readings are 0 by
        default.
    archs : tuple of str
        Architectures for which the assumption is conceivable.
    speaks_for, speaks_against : str
        Evidence.
    source : str
        The sources of the evidence.
    """

    name: str
    changes: str
    options: Mapping[str, int]
    archs: tuple[str, ...]
    speaks_for: str
    speaks_against: str
    source: str


_ALL = tuple(ARCHITECTURES)
READINGS = (
    Reading(
        "lost-slots-0",
        "an MFMA takes only its own issue slot of the vector unit; by default it takes one more",
        {"mfma_lost_slots": 1},
        _ALL,
        "AMD's calculator allows 7 slots of vector work beside an MFMA of 8 passes and 3 beside "
        "one of 4 passes, so none is lost",
        "on gfx950 the vector unit was seen to begin at clk 8 of an MFMA, its second slot; a "
        "change to LLVM blocks the vector unit for the first two passes of every MFMA",
        "amd_matrix_instruction_calculator (coexec_delay); gfx950-gluon-tutorials, "
        "mfma_coissue_scheduling.md; llvm-project#184084",
    ),
    Reading(
        "lost-slots-2",
        "an MFMA takes two slots of the vector unit besides its own; by default it takes one",
        {"mfma_lost_slots": 3},
        _ALL,
        "one of several changes to LLVM under review assumes it; nobody has published a "
        "measurement on gfx942",
        "six vector instructions were counted beside an MFMA of 8 passes on gfx950, which is one "
        "lost slot; another change to LLVM assumes the same",
        "llvm-project#181778, #184084; gfx950-gluon-tutorials, mfma_coissue_scheduling.md",
    ),
    Reading(
        "lost-slots-2-short",
        "an MFMA of up to 4 passes (16x16) takes two slots besides its own; longer ones take one",
        {"short_mfma_lost_slots": 3},
        _ALL,
        "the measurement is of 8 passes and the figure for 4 is derived from it; a unit that frees "
        "its operands later than after the second pass would show there first",
        "the same sources derive two instructions beside an MFMA of 4 passes, which is one lost "
        "slot",
        "gfx950-gluon-tutorials, mfma_coissue_scheduling.md",
    ),
    Reading(
        "trans-exclusive",
        "transcendentals wait for the matrix unit and hold it; by default they overlap",
        {"trans_exclusive": 1},
        tuple(name for name, arch in ARCHITECTURES.items() if arch.open_trans),
        "LLVM never issues them beside an MFMA, on any target that has both",
        "on gfx950 three were measured in the shadow of an MFMA; overlap reproduces the counters "
        "of AITER's loop on gfx942 (+1.9 %), and this reading does not (+22 %)",
        "SIInstrInfo::isNeverCoissue of LLVM; gfx950-gluon-tutorials; attn-dsl-bench, "
        "counters_v1.csv",
    ),
    Reading(
        "slow-waits",
        "s_waitcnt takes 10 clk besides its slot, even if nothing is in flight",
        {"wait_clk": 10},
        _ALL,
        "an attention loop of gfx950 with 6, 1 and no waits in its matrix stages reached 1049, "
        "1054 and 1070 TFLOP/s, which is about 14 clk per wait",
        "this is one kernel, whose waits may have had something to wait for; AMD's description "
        "says that the sequencer handles a wait itself, without a unit",
        "gfx950-gluon-tutorials, kernels/attention/note.md (1.6); rocprofiler-compute, pipeline "
        "descriptions",
    ),
    Reading(
        "three-sources",
        "a vector instruction with three sources takes one more slot while an LDS instruction of "
        "its SIMD is in flight",
        {"three_source_slots": 1},
        _ALL,
        "the authors of a loop for gfx950 say that data returned from LDS and third sources "
        "contend for ports of the register file",
        "no rate is published, and nothing at all for gfx942",
        "gfx950-gluon-tutorials, kernels/attention/note.md",
    ),
    Reading(
        "lds-256",
        "the LDS of a CU is read at 256 bytes per clk; by default at 128",
        {"lds_published": 1},
        ("gfx950",),
        "the white paper says so; with 256 the model meets four published loops within 6 %, two of "
        "which are out of reach with 128",
        "122 is the most that was observed; b128 reads of a wave return 16 clk apart; for AITER's "
        "attention of 8192 rows the model agrees with 128 (+0.1 to +3.6 %) and not with 256 (-4 to "
        "-7.5 %)",
        "CDNA 4 white paper; gfx950-gluon-tutorials; thread traces of tinygrad; "
        "docs/studies/performance-model-gfx950.md",
    ),
    Reading(
        "hbm-channels",
        "an XCD's share of HBM is 16 channels, interleaved every 256 bytes; by default it is one "
        "queue",
        {"hbm_channels": 16},
        _ALL,
        "the chip has 128 channels; the channels of the L2 are interleaved every 256 bytes",
        "all XCDs share all channels, and the mapping of addresses to them is not published; that "
        "of the L2 is hashed, so that requests spread evenly; how much of the channels the XCDs "
        "that are not simulated leave free is unknown: where each XCD has its own heads, they "
        "request other addresses",
        "CDNA 3 white paper; rocprofiler-compute, L2 cache",
    ),
    Reading(
        "translation",
        "the first access of an XCD to each 64 KiB waits 300 ns more for address translation; by "
        "default translation costs nothing",
        {"translation_ns": 300},
        _ALL,
        "on an MI300A the first hundred loads of a chain through fresh memory were seen to take "
        "1012 clk, about 240 more than later ones",
        "that difference is only 113 ns, and for memory that was never touched before; the second "
        "level of translation caches covers 8 GiB and more, in fragments of 2 MiB, and keeps its "
        "entries from launch to launch",
        "mt4g#39; Linux, drm/amdgpu 352e683b72e7; rocprofiler-compute, vector L1 cache",
    ),
    Reading(
        "slow-write-back",
        "buffer_wbl2 takes 1 us more than by default, where it takes at least a round trip to the "
        "L2",
        {"write_back_ns": 1000},
        _ALL,
        "it has to look for dirty lines in the 4 MiB of 16 channels; published split-K products, "
        "which merge by atomics, take longer than modelled",
        "its time is not published; it is published that waves wait for its answer, and the "
        "default models that",
        "CDNA 3 white paper; llvm-project#178316; times in ROCm/aiter's tuned tables",
    ),
)
_BY_NAME = {reading.name: reading for reading in READINGS}
# Every option of the virtual device that some reading sets, with its default.
NEUTRAL = {key: 0 for reading in READINGS for key in reading.options}


def names(arch: str) -> tuple[str, ...]:
    """Names of the readings of an architecture, "default" first."""
    return (DEFAULT, *(reading.name for reading in READINGS if arch in reading.archs))


def options(name: str, arch: str) -> dict[str, int]:
    """Options of the virtual device for a reading; options of other readings have their defaults.

    Raises
    ------
    ValueError
        The architecture `arch` has no reading `name`.
    """
    if name not in names(arch):
        raise ValueError(f"reading={name!r} must be one of {', '.join(names(arch))} on {arch}")
    return NEUTRAL | (dict(_BY_NAME[name].options) if name != DEFAULT else {})


def name_of(simulated: Mapping[str, int]) -> str:
    """The name of the reading with these non-zero options; if none has them, "option=value ..."."""
    if not simulated:
        return DEFAULT
    for reading in READINGS:
        if dict(simulated) == dict(reading.options):
            return reading.name
    return " ".join(f"{key}={value}" for key, value in simulated.items())


def chosen(given: Sequence[str] | None, arch: str) -> tuple[str, ...]:
    """Names of the requested readings, each once.

    Parameters
    ----------
    given : sequence of str or None
        Names; "all" stands for all readings of the architecture. Empty or None: the default.
    arch : str
        Target without features, e.g. "gfx942".

    Raises
    ------
    ValueError
        The architecture has no reading of such a name.
    """
    found: dict[str, None] = {}
    for name in given or (DEFAULT,):
        if name == "all":
            found |= dict.fromkeys(names(arch))
        else:
            options(name, arch)
            found[name] = None
    return tuple(found)
