"""What the process's device can be: the products of the architecture tables, and made-up ones."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import math
import re
from typing import Any

import pytest

from amdattn.arch.architectures import ARCHITECTURES
from amdattn.arch.products import CHIPS
from amdattn.arch.props import KNOWN_DEVICES, KNOWN_PARTITIONS
from tests.support.hip_process import run
from tests.support.isa.assembler import AssemblerError, assemble
from tests.support.vdev_library import open_library

BOTH = KNOWN_DEVICES | KNOWN_PARTITIONS


def machines() -> dict[str, list[str]]:
    text = open_library(amdattn_vdev_machines=(ctypes.c_char_p, [])).amdattn_vdev_machines()
    rows = [line.split("\t") for line in text.decode().splitlines()]
    return {name: [arch, *facts] for arch, name, *facts in rows}


def test_machines_are_the_devices_of_planning() -> None:
    assert set(machines()) == set(BOTH)


@pytest.mark.parametrize("name", BOTH)
def test_a_machine_is_what_planning_takes_it_for(name: str) -> None:
    arch, *facts = machines()[name]
    cus, xcds, memory, lds, hbm, mall, clock, sustained, mall_bytes = map(float, facts[:9])
    props = BOTH[name]
    assert (arch, cus, xcds, lds) == (props.arch, props.num_cus, props.num_xcds, props.lds_bytes)
    assert memory == pytest.approx(props.memory_bytes, rel=1e-3)  # what a runtime leaves of it
    assert (hbm, mall) == pytest.approx((props.hbm_bytes_per_ns, props.mall_bytes_per_ns))
    assert (clock, sustained) == (props.peak_clock_ghz, props.sustained_clock_ghz)
    assert int(mall_bytes) == props.mall_bytes
    assert facts[9] == ("ocp" if arch == "gfx950" else "fnuz")
    chip = next(chip for chip in CHIPS if chip.name == props.chip)
    assert tuple(map(int, facts[10:])) == chip.ids


def test_architectures_are_those_of_planning() -> None:
    """Every limit and constant that Python's table has is the virtual device's."""
    library = open_library(
        vdev_test_architectures=(ctypes.c_char_p, []),
        amdattn_vdev_coexecution=(ctypes.c_char_p, []),
    )
    told: dict[str, dict[str, float]] = {}
    for line in library.vdev_test_architectures().decode().splitlines():
        arch, fact, value = line.split("\t")
        told.setdefault(arch, {})[fact] = float(value)
    assert set(told) == set(ARCHITECTURES)
    for name, facts in told.items():
        stated = dataclasses.asdict(ARCHITECTURES[name])
        assert stated.pop("name") == name
        # What no model needs, and what follows from the bfloat16 products on each SIMD.
        most = stated.pop("physical_cus_of_xcd")
        assert all(most >= chip.cus_of_xcd for chip in CHIPS if chip.arch == name)
        rates = []
        for k in (8, 16):
            passes = facts.get(f"v_mfma_f32_32x32x{k}_bf16", math.inf)
            rates.append(2 * 32 * 32 * k * facts["simds_per_cu"] / (passes * facts["slot_clk"]))
        assert stated.pop("matrix_flops_per_clk") == max(rates)
        assert stated.pop("fp8").startswith("float8_e4m3fn")
        assert stated.pop("bf8").startswith("float8_e5m2")
        converts = stated.pop("converts_bf16")
        try:  # LLVM knows who has the instruction
            assemble(["v_cvt_pk_bf16_f32 v0, v1, v2"], name)
        except AssemblerError:
            assert not converts
        else:
            assert converts
        assert stated.pop("open_trans") == any(
            line.split("\t")[0] == name and line.split("\t")[2] == "open"
            for line in library.amdattn_vdev_coexecution().decode().splitlines()
        )
        assert stated == {fact: facts[fact] for fact in stated}


SHOW = """
def text(value):  # bytes before hip-python 10
    return value if isinstance(value, str) else value.decode()
p = hip.properties()
def attribute(name):
    return hip.hipDeviceGetAttribute(getattr(hip.hip.hipDeviceAttribute_t, name), 0)
facts = {
    "name": text(p.name), "arch": text(p.gcnArchName), "cus": p.multiProcessorCount,
    "xcds": attribute("hipDeviceAttributeNumberOfXccs"),
    "chip": attribute("hipDeviceAttributePciChipId"),
    "lds": p.sharedMemPerBlock, "memory": p.totalGlobalMem,
}
"""


def facts_of(hip: Any, body: str) -> dict[str, Any]:
    result = run(hip, "import json, struct\n" + body + "\nprint(json.dumps(facts))\n")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def test_a_partition_is_played(hip: Any) -> None:
    body = 'assert hip.device.amdattn_vdev_play(b"MI308X:CPX") == 1\n' + SHOW
    facts = facts_of(
        hip,
        body
        + """
hip.set_option("timing", 1)
_, function = hip.kernel("nothing", args=[], kernarg_segment_size=0)
hip.hipModuleLaunchKernel(function, 60, 1, 1, 64, 1, 1, 0, None, None, None)
hip.hipDeviceSynchronize()
hip.device.amdattn_vdev_take_profiles.restype = ctypes.c_char_p
(profile,) = json.loads(hip.device.amdattn_vdev_take_profiles())
facts["simulated"] = [profile["simulated_cus"], profile["simulated_workgroups"]]
""",
    )
    props = BOTH["MI308X:CPX"]
    assert facts == {
        "name": "AMD Instinct MI308X",
        "arch": "gfx942:sramecc+:xnack-",
        "cus": props.num_cus,
        "xcds": 1,
        "chip": 0x74A2,
        "lds": 65536,
        "memory": props.memory_bytes,
        # One XCD has all workgroups, on twenty CUs.
        "simulated": [20, 60],
    }


def test_the_device_is_chosen_once_and_by_a_name_that_exists(hip: Any) -> None:
    facts = facts_of(
        hip,
        """
play = hip.device.amdattn_vdev_play
facts = [play(b"MI300"), play(b"MI300X:TPX"), play(b""), play(b"MI325X"), play(b"MI300A")]
facts += [hip.properties().multiProcessorCount, play(b"MI325X")]
facts.append(hip.properties().multiProcessorCount)
""",
    )
    assert facts == [0, 0, 0, 1, 1, 228, 0, 228]


MADE_UP = """
made_up = (b"gfx9f0", b"Other", 3, 10, 96 * 1024, 1280)
assert hip.lib.vdev_test_play_made_up(*made_up) == 1
"""
GENERIC = """
def generic(code, **metadata):
    image = bytearray(hip_runtime.code_object(code, **metadata))
    (flags,) = struct.unpack_from("<I", image, 48)
    struct.pack_into("<I", image, 48, flags & ~0xff | 0x5f)
    return bytes(image)
"""


def test_a_made_up_architecture_runs_a_kernel(hip: Any) -> None:
    """Other CUs, XCDs and LDS than any chip; code objects of its name's relatives only."""
    facts = facts_of(
        hip,
        MADE_UP
        + GENERIC
        + SHOW
        + """
word = hip.hipMalloc(256)
module = hip.hipModuleLoadData(generic("fill", group_segment_fixed_size=90 * 1024))
function = hip.hipModuleGetFunction(module, b"k")
hip.launch(function, word, 1234)
out = ctypes.c_uint32()
hip.hipMemcpyDtoH(ctypes.addressof(out), word, 4)
facts["stored"] = out.value
occupancy = hip.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor
plain = hip.hipModuleLoadData(generic("fill", group_segment_fixed_size=0))
function = hip.hipModuleGetFunction(plain, b"k")
facts["resident"] = [occupancy(function, 64, lds) for lds in (12 * 1280, 12 * 1280 + 1)]
try:
    hip.kernel("fill")
except hip_runtime.HipError as error:
    facts["refused"] = [str(error), hip.report]
""",
    )
    error, report = facts.pop("refused")
    assert "InvalidImage" in error
    assert "for gfx942" in report and "this device is gfx9f0:sramecc+:xnack-" in report
    memory = facts.pop("memory")
    assert memory > 100 * 2**30
    assert facts == {
        "name": "AMD Instinct Other",
        "arch": "gfx9f0:sramecc+:xnack-",
        "cus": 30,
        "xcds": 3,
        "chip": 0x74A1,
        "lds": 96 * 1024,
        "stored": 1234,
        # 76.8 granules: six of twelve, five of thirteen.
        "resident": [6, 5],
    }


RUN_MADE_UP = """
def lacks(mnemonic):
    assert hip.lib.vdev_test_made_up_lacks(mnemonic) == 1
def has(mnemonic, opcode, like, passes=0):
    assert hip.lib.vdev_test_made_up_instruction(mnemonic, opcode, like, passes) == 1
def outcome(code, value=1234):
    hip_runtime.CODE["it"] = code.replace(" ", "")
    word = hip.hipMalloc(256)
    hip.hipMemset(word, 0, 256)
    try:
        module = hip.hipModuleLoadData(generic("it"))
        hip.launch(hip.hipModuleGetFunction(module, b"k"), word, value)
        hip.hipDeviceSynchronize()
    except hip_runtime.HipError:
        return hip.report
    out = ctypes.c_uint32()
    hip.hipMemcpyDtoH(ctypes.addressof(out), word, 4)
    return out.value
LOAD, END = hip_runtime.LOAD_ARGS, "008070dc01020400" + hip_runtime.ENDPGM
"""


def test_every_architecture_has_instructions_of_its_own(hip: Any) -> None:
    """One that it alone has, one that it lacks, one that has another opcode there."""
    facts = facts_of(
        hip,
        GENERIC
        + RUN_MADE_UP
        + """
lacks(b"v_xor_b32")
has(b"v_made_up", 0x16, b"v_or_b32")
lacks(b"v_and_b32")
has(b"v_and_b32", 0x15, b"v_and_b32")
"""
        + MADE_UP
        + """
def vop2(opcode):  # v2 = 3 OPCODE value, at out[lane]
    word = struct.pack("<I", opcode << 25 | 2 << 17 | 2 << 9 | 131)
    return LOAD + "0602047e" + word.hex() + END
facts = {hex(opcode): outcome(vop2(opcode), 1234) for opcode in (0x12, 0x13, 0x14, 0x15, 0x16)}
""",
    )
    assert facts.pop("0x12") == 1234 << 3  # v_lshlrev_b32, as everywhere
    assert facts.pop("0x14") == 1234 | 3
    assert facts.pop("0x15") == 1234 & 3  # v_xor_b32 elsewhere
    assert facts.pop("0x16") == 1234 | 3  # none elsewhere
    (report,) = facts.values()  # v_and_b32 elsewhere
    assert "illegal instruction 0x26040483" in report and "on gfx9f0: no such opcode" in report
    assert re.search(r"k\+0x[0-9a-f]+", report), report


@pytest.mark.parametrize("waits", [True, False])
def test_what_an_instruction_is_does_not_hang_on_its_name_or_opcode(hip: Any, waits: bool) -> None:
    """Checked mode knows a lane's number and a swap by their rows, whatever they are called.

    Which waits there have to be is the architecture's: it may leave none to software.
    """
    facts = facts_of(
        hip,
        GENERIC
        + RUN_MADE_UP
        + "hip.lib.vdev_test_made_up_wait_states(0)\n" * (not waits)
        + """
lacks(b"v_readlane_b32")
has(b"v_one_of_lanes", 0x2b0, b"v_readlane_b32")
lacks(b"global_atomic_swap")
has(b"global_other", 0x3f, b"global_atomic_swap")
"""
        + MADE_UP
        + """
hip.set_option("check", 1)
hip.device.amdattn_vdev_take_findings.restype = ctypes.c_char_p
def findings(*words):
    code = b"".join(struct.pack("<I", word) for word in words).hex()
    hip_runtime.CODE["it"] = LOAD + "0602047e" + code + hip_runtime.ENDPGM
    module = hip.hipModuleLoadData(generic("it"))
    hip.launch(hip.hipModuleGetFunction(module, b"k"), hip.hipMalloc(256), 1)
    hip.hipDeviceSynchronize()
    found = json.loads(hip.device.amdattn_vdev_take_findings())
    return [(f["kind"], f["text"]) for launch in found["launches"] for f in launch["findings"]]
# v_readfirstlane_b32 s8, v0, then lane s8 of v0 at once; a swap with memory that nobody wrote
facts = [findings(0x7E100500, 0xD2B00009, 0x00001100), findings(0xDCFC8000, 0x00040201)]
""",
    )
    assert facts == [[["hazard", "v_one_of_lanes s9, v0, s8"]] * waits, []]


def test_a_default_architecture_lacks_what_another_has(hip: Any) -> None:
    facts = facts_of(
        hip,
        """
word = struct.pack("<I", 0x16 << 25 | 2 << 17 | 2 << 9 | 131).hex()
hip_runtime.CODE["it"] = hip_runtime.LOAD_ARGS + "0602047e" + word + hip_runtime.ENDPGM
_, function = hip.kernel("it")
hip.launch(function, hip.hipMalloc(256), 1)
try:
    hip.hipDeviceSynchronize()
except hip_runtime.HipError:
    facts = hip.report
""",
    )
    assert "illegal instruction 0x2c040483" in facts and "on gfx942: no such opcode" in facts


def test_matrix_instructions_take_what_their_architecture_says(hip: Any) -> None:
    """The same instruction, at another opcode and with other passes."""
    cycles = []
    for passes in (2, 16):
        facts = facts_of(
            hip,
            GENERIC
            + RUN_MADE_UP
            + f"""
lacks(b"v_mfma_f32_4x4x4_16b_f16")
lacks(b"v_mfma_f32_4x4x1_16b_f32")
has(b"v_mfma_f32_4x4x4_16b_f16", 0x42, b"v_mfma_f32_4x4x4_16b_f16", {passes})
"""
            + MADE_UP
            + """
hip.set_option("timing", 1)
code = "".join("0000c2d3040d0204" for _ in range(40)) + hip_runtime.ENDPGM
facts = {"ran": outcome(code)}
hip.device.amdattn_vdev_take_profiles.restype = ctypes.c_char_p
(profile,) = json.loads(hip.device.amdattn_vdev_take_profiles())
facts |= {"matrix": profile["mfma_clk"]}
""",
        )
        assert facts["ran"] == 0, facts
        cycles.append(facts["matrix"])
    assert cycles == [40 * 2 * 4, 40 * 16 * 4]


@pytest.mark.parametrize(
    ("constant", "values", "code", "least"),
    [
        ("slot", (4, 8), "spin", 4000),
        ("lds_after_mfma", (4, 44), "mfma_ds", 40),
        ("lds_load_slots", (0, 1000), "load_to_lds", 2000),  # more than what the load takes
    ],
)
def test_the_model_takes_its_constants_from_the_architecture(
    hip: Any, constant: str, values: tuple[int, int], code: str, least: int
) -> None:
    cycles = []
    for value in values:
        facts = facts_of(
            hip,
            f'assert hip.lib.vdev_test_made_up_timing(b"{constant}", {value}) == 1\n'
            + f'code = "{code}"\n'
            + MADE_UP
            + GENERIC
            + """
hip.set_option("timing", 1)
module = hip.hipModuleLoadData(generic(code, group_segment_fixed_size=1024))
function = hip.hipModuleGetFunction(module, b"k")
hip.launch(function, hip.hipMalloc(256), 1000)
hip.hipDeviceSynchronize()
hip.device.amdattn_vdev_take_profiles.restype = ctypes.c_char_p
(profile,) = json.loads(hip.device.amdattn_vdev_take_profiles())
facts = {"cycles": profile["cycles"], "arch": profile["arch"]}
""",
        )
        assert facts["arch"] == "gfx9f0"
        cycles.append(facts["cycles"])
    assert cycles[1] >= cycles[0] + least


# Streams through the caches, on machines whose share of the last level cache is no power of two.
@pytest.mark.parametrize("name", ["MI300A", "MI308X", "MI325X:QPX"])
def test_the_model_runs_on_every_product(hip: Any, name: str) -> None:
    facts = facts_of(
        hip,
        f'assert hip.device.amdattn_vdev_play(b"{name}")\n'
        + """
hip.set_option("timing", 1)
nbytes = 8 << 20
memory = hip.hipMalloc(nbytes)
_, add = hip.kernel("add")
for at in range(0, nbytes, nbytes // 64 - 128):
    hip.launch(add, int(memory) + min(at, nbytes - 256), 1)
hip.hipDeviceSynchronize()
hip.device.amdattn_vdev_take_profiles.restype = ctypes.c_char_p
profiles = json.loads(hip.device.amdattn_vdev_take_profiles())
facts = [profile["hbm_bytes"] for profile in profiles]
""",
    )
    assert len(facts) > 60 and all(facts)
