"""Readings: what the model has in place of what is not known of the hardware.

Each is one assumption of the performance model, made otherwise. A ratio of two kernels that holds
under every reading leans on none of them. `docs/generated/readings.md` is made of this table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amdattn.arch.architectures import ARCHITECTURES

DEFAULT = "default"  # the assumptions of virtual_device/arch


@dataclass(frozen=True, slots=True)
class Reading:
    """One assumption, made otherwise than by default.

    Attributes
    ----------
    name : str
    changes : str
        What the model does, beside what it does by default.
    options : dict of str to int
        Of the virtual device, which make it so; all options of readings are 0 by default.
    archs : tuple of str
        Of which it is thinkable.
    speaks_for, speaks_against : str
        Evidence.
    source : str
        Where both are from.
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
        "an MFMA takes its own issue slot of the vector unit and no other; by default one more",
        {"mfma_lost_slots": 1},
        _ALL,
        "AMD's calculator gives an MFMA of 8 passes 7 slots of vector work beside it, one of 4 "
        "passes 3: none is lost",
        "on gfx950 the vector unit was seen to begin at clk 8 of an MFMA, its second slot; a "
        "change of LLVM has it for the first two passes of every MFMA",
        "amd_matrix_instruction_calculator (coexec_delay); gfx950-gluon-tutorials, "
        "mfma_coissue_scheduling.md; llvm-project#184084",
    ),
    Reading(
        "lost-slots-2",
        "an MFMA takes two slots of the vector unit besides its own; by default one",
        {"mfma_lost_slots": 3},
        _ALL,
        "one of several changes of LLVM under review; nobody has published a measurement of gfx942",
        "six vector instructions were counted beside an MFMA of 8 passes on gfx950, which is one "
        "lost slot; so it is in another change of LLVM",
        "llvm-project#181778, #184084; gfx950-gluon-tutorials, mfma_coissue_scheduling.md",
    ),
    Reading(
        "lost-slots-2-short",
        "an MFMA of up to 4 passes (16x16) takes two slots besides its own; longer ones one",
        {"short_mfma_lost_slots": 3},
        _ALL,
        "what was measured is of 8 passes; of 4 it is derived, and a unit that frees its operands "
        "later than after the second pass would show there first",
        "the same sources derive two instructions beside one of 4 passes, which is one lost slot",
        "gfx950-gluon-tutorials, mfma_coissue_scheduling.md",
    ),
    Reading(
        "trans-exclusive",
        "transcendentals wait for the matrix unit and hold it; by default they overlap",
        {"trans_exclusive": 1},
        tuple(name for name, arch in ARCHITECTURES.items() if arch.open_trans),
        "LLVM never issues them beside an MFMA, for every target that has them",
        "on gfx950 three were measured in the shadow of an MFMA; the counters of AITER's loop on "
        "gfx942 are met by overlap (+1.9 %) and missed by this (+22 %)",
        "SIInstrInfo::isNeverCoissue of LLVM; gfx950-gluon-tutorials; attn-dsl-bench, "
        "counters_v1.csv",
    ),
    Reading(
        "slow-waits",
        "s_waitcnt takes 10 clk besides its slot, also if nothing is under way",
        {"wait_clk": 10},
        _ALL,
        "an attention loop of gfx950 with 6, 1 and no waits in its matrix stages reached 1049, "
        "1054 and 1070 TFLOP/s: about 14 clk a wait",
        "one kernel, and a wait also waits; AMD's description has it as handled inside the "
        "sequencer, without a unit",
        "gfx950-gluon-tutorials, kernels/attention/note.md (1.6); rocprofiler-compute, pipeline "
        "descriptions",
    ),
    Reading(
        "three-sources",
        "a vector instruction with three sources takes a slot more while one of the LDS is under "
        "way for its SIMD",
        {"three_source_slots": 1},
        _ALL,
        "authors of a loop of gfx950 name ports of the register file that LDS returns and third "
        "sources contend for",
        "no rate is published, and none of gfx942",
        "gfx950-gluon-tutorials, kernels/attention/note.md",
    ),
    Reading(
        "lds-256",
        "the LDS of a CU is read at 256 bytes a clk; by default at 128",
        {"lds_published": 1},
        ("gfx950",),
        "the white paper has it; four loops of others are met within 6 %, of which two are out of "
        "reach of 128",
        "122 is the most that was seen; b128 of a wave return 16 clk apart; AITER's attention of "
        "8192 rows takes as long as 128 says (+0.1 to +3.6 %) and not as 256 does (-4 to -7.5 %)",
        "CDNA 4 white paper; gfx950-gluon-tutorials; thread traces of tinygrad; "
        "docs/studies/performance-model-gfx950.md",
    ),
    Reading(
        "hbm-channels",
        "an XCD's share of HBM is 16 channels, which addresses take in turns of 256 bytes; by "
        "default one queue",
        {"hbm_channels": 16},
        _ALL,
        "the chip has 128 channels; those of the L2 take addresses in turns of 256 bytes",
        "all XCDs share all channels, and how addresses map to them is not published: those of the "
        "L2 are hashed, so that requests spread evenly; what XCDs that are not simulated leave of "
        "its channels is unknown: where each has heads of its own they ask for others",
        "CDNA 3 white paper; rocprofiler-compute, L2 cache",
    ),
    Reading(
        "translation",
        "the first access of an XCD to 64 KiB waits 300 ns more for its address; by default "
        "addresses cost nothing",
        {"translation_ns": 300},
        _ALL,
        "on an MI300A the first hundred loads of a chain through fresh memory were seen to take "
        "1012 clk, about 240 more than later ones",
        "the same is 113 ns, of memory touched for the first time at all; the second level of "
        "translation caches reaches 8 GiB and more, in fragments of 2 MiB, and keeps what it has "
        "from launch to launch",
        "mt4g#39; Linux, drm/amdgpu 352e683b72e7; rocprofiler-compute, vector L1 cache",
    ),
    Reading(
        "slow-write-back",
        "buffer_wbl2 takes 1 us more than by default, where it is a trip to the L2 at least",
        {"write_back_ns": 1000},
        _ALL,
        "it has to look for dirty lines in 4 MiB of 16 channels; published split-K products, which "
        "merge by atomics, take longer than modelled",
        "no time of it is published; that waves wait for its answer is, and the default has it",
        "CDNA 3 white paper; llvm-project#178316; times in ROCm/aiter's tuned tables",
    ),
)
_BY_NAME = {reading.name: reading for reading in READINGS}
# Of the virtual device: every option that a reading sets, as by default.
NEUTRAL = {key: 0 for reading in READINGS for key in reading.options}


def names(arch: str) -> tuple[str, ...]:
    """Readings of an architecture, the default first."""
    return (DEFAULT, *(reading.name for reading in READINGS if arch in reading.archs))


def options(name: str, arch: str) -> dict[str, int]:
    """Options of the virtual device for a reading; those of the others are as by default.

    Raises
    ------
    ValueError
        The architecture has no reading of this name.
    """
    if name not in names(arch):
        raise ValueError(f"reading={name!r} must be one of {', '.join(names(arch))} on {arch}")
    return NEUTRAL | (dict(_BY_NAME[name].options) if name != DEFAULT else {})


def name_of(simulated: Mapping[str, int]) -> str:
    """Of the options of readings that were simulated and are not 0: a name, or what they are."""
    if not simulated:
        return DEFAULT
    for reading in READINGS:
        if dict(simulated) == dict(reading.options):
            return reading.name
    return " ".join(f"{key}={value}" for key, value in simulated.items())


def chosen(given: Sequence[str] | None, arch: str) -> tuple[str, ...]:
    """Readings that were asked for by name, each once; "all": every one; none: the default.

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
