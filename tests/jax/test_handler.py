"""The native handler on frames that are made with jaxlib's header, and on a HIP that records."""

from __future__ import annotations

import ctypes
import mmap
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from amdattn import plan_attention
from amdattn.device.kernarg import packer
from amdattn.jax import targets
from amdattn.jax.encoding import encode, key_of
from amdattn.op.plan import Address
from amdattn.ops import registry
from amdattn.ops.gemm.plans import plan_gemm
from tests.support.native_handler import NATIVE, compile_c

ROCM, INSTANTIATE, EXECUTE = 1, 0, 3
BF16, F32, U8 = 16, 11, 6
STREAM = 0x5EAF


class Buffer(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_long),
        ("rank", ctypes.c_long),
        ("dims", ctypes.c_long * 8),
    )


class Record(ctypes.Structure):
    _fields_ = (
        ("what", ctypes.c_char),
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("group", ctypes.c_uint * 3),
        ("lds_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("to", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("device", ctypes.c_int),
        ("value", ctypes.c_int),
        ("one_by_one", ctypes.c_int),
        ("arguments", ctypes.c_ubyte * 1024),
    )


@pytest.fixture(scope="module")
def include() -> str:
    pytest.importorskip("ziglang")
    return jax.ffi.include_dir()


@pytest.fixture(scope="module")
def compiled(include: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the driver and the handler."""
    folder = tmp_path_factory.mktemp("compiled")
    driver = Path(__file__).parent / "native" / "driver.c"
    compile_c([driver], folder / "driver.so", f"-I{include}")
    trapping = ("-fsanitize=undefined", "-fsanitize-trap=undefined")
    flags = ("-fvisibility=hidden", *trapping)
    compile_c(sorted(NATIVE.glob("*.c")), folder / "handler.so", *flags)
    return folder


class Handler:
    """A handler of its own, bound to a HIP runtime that records."""

    def __init__(self, folder: Path) -> None:
        self.driver = ctypes.CDLL(str(folder / "driver.so"))
        self.library = ctypes.CDLL(str(folder / "handler.so"))
        self.driver.call.restype = ctypes.c_char_p
        names = (*targets._FUNCTIONS, *targets._VIRTUAL_FUNCTIONS)
        addresses = [
            ctypes.cast(self.driver[name], ctypes.c_void_p).value
            if hasattr(self.driver, name)
            else None
            for name in names
        ]
        self.library.amdattn_xla_bind(ROCM, (ctypes.c_void_p * len(names))(*addresses))

    def add(self, kernel: Any, ordinal: int, function: int, offsets: tuple[int, ...] = ()) -> None:
        key = (ctypes.c_uint64 * 2).from_buffer_copy(key_of(kernel))
        assert self.library.amdattn_xla_add_kernel(
            *(ROCM, ordinal, key, ctypes.c_void_p(function), packer(kernel).size, len(offsets)),
            (ctypes.c_int32 * max(1, len(offsets)))(*offsets),
        )

    def run(
        self,
        words: np.ndarray,
        inputs: list[Buffer],
        results: list[Buffer],
        stage: int = EXECUTE,
        ordinal: int = 0,
        times: int = 1,
    ) -> str:
        """The error's text; "" if there is none."""
        words = np.ascontiguousarray(words, np.int64)
        text: bytes = self.driver.call(
            self.library.amdattn_xla_rocm,
            *(stage, ordinal, ctypes.c_void_p(STREAM)),
            *((Buffer * len(inputs))(*inputs), len(inputs)),
            *((Buffer * len(results))(*results), len(results)),
            words.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_size_t(len(words)),
            b"attention: made up",
            times,
        )
        return text.decode()

    def take(self) -> list[Record]:
        count = ctypes.c_int.in_dll(self.driver, "fake_count")
        found = list((Record * 64).in_dll(self.driver, "fake_calls")[: count.value])
        count.value = 0
        return found

    def set(self, name: str, value: int) -> None:
        ctypes.c_int.in_dll(self.driver, name).value = value


@pytest.fixture
def handler(tmp_path: Path, compiled: Path) -> Handler:
    for library in compiled.iterdir():  # a copy is another library, without what others have added
        shutil.copy(library, tmp_path)
    return Handler(tmp_path)


def buffer(address: int, dtype: int, *shape: int) -> Buffer:
    return Buffer(address, dtype, len(shape), (ctypes.c_long * 8)(*shape))


# A problem whose plan has two launches and a workspace: split along the keys.
PLAN = plan_attention(1, 64, 4096, 4, 2, 64, device="MI300X", num_splits=4, return_lse=True)
ADDRESSES = {"q": 0x10000, "k": 0x20000, "v": 0x30000, "o": 0x40000, "lse": 0x50000}
WORKSPACE = 0x100000


def operands() -> tuple[list[Buffer], list[Buffer]]:
    inputs = [
        buffer(ADDRESSES["q"], BF16, 1, 64, 4, 64),
        buffer(ADDRESSES["k"], BF16, 1, 4096, 2, 64),
        buffer(ADDRESSES["v"], BF16, 1, 4096, 2, 64),
    ]
    results = [
        buffer(ADDRESSES["o"], BF16, 1, 64, 4, 64),
        buffer(ADDRESSES["lse"], F32, 1, 4, 64),
        buffer(WORKSPACE, U8, PLAN.workspace.total_bytes),
    ]
    return inputs, results


def test_launches_on_the_stream_and_device_of_the_call(handler: Handler) -> None:
    assert len(PLAN.launches) == 2 and PLAN.workspace.total_bytes
    for i, launch in enumerate(PLAN.launches):
        handler.add(launch.kernel, 3, 0xF00 + i)
    handler.set("fake_device", 1)
    encoded = encode(PLAN, "bshd")
    assert handler.run(encoded.words, *operands(), ordinal=3) == ""
    device, *launched, back = handler.take()
    assert (device.what, device.device, back.what, back.device) == (b"d", 3, b"d", 1)
    assert [call.what for call in launched] == [b"l", b"l"]  # and nobody waits
    for i, (call, launch) in enumerate(zip(launched, PLAN.launches, strict=True)):
        assert (call.function, call.stream, call.device, call.lds_bytes) == (
            0xF00 + i,
            STREAM,
            3,
            0,
        )
        assert tuple(call.grid) == launch.grid and tuple(call.group) == launch.kernel.workgroup
        assert call.bytes == launch.kernel.kernarg.size and not call.one_by_one
        fields = packer(launch.kernel).unpack(bytes(call.arguments[: call.bytes]))
        for name, value in launch.args:
            if isinstance(value, Address):
                region = value.operand not in ADDRESSES
                at = WORKSPACE + PLAN.workspace[value.operand].offset if region else None
                assert fields[name] == (at if region else ADDRESSES[value.operand]), name
            elif isinstance(value, int):
                assert fields[name] == value, name
        assert fields["q_stride_seq"] == 4 * 64 if "q_stride_seq" in fields else True


def test_arguments_one_by_one(handler: Handler) -> None:
    for launch in PLAN.launches:
        size = launch.kernel.kernarg.size
        handler.add(launch.kernel, 0, 0xF00, tuple(range(0, size - 7, 8)))
    handler.set("fake_argument_bytes", 8 * (PLAN.launches[1].kernel.kernarg.size // 8))
    assert handler.run(encode(PLAN, "bshd").words, *operands()) == ""
    merge = handler.take()[1]
    assert merge.one_by_one
    fields = packer(PLAN.launches[1].kernel).unpack(
        bytes(merge.arguments[: PLAN.launches[1].kernel.kernarg.size])
    )
    assert ADDRESSES["o"] in fields.values()


def test_counters_are_cleared_and_runs_are_numbered(handler: Handler) -> None:
    plan = plan_gemm(8, 256, 4096, device="MI300X", split_k=4)
    (zeroed,) = [region for region in plan.workspace.regions if region.init == "zero_at_rest"]
    (launch,) = plan.launches
    handler.add(launch.kernel, 0, 0xF00)
    inputs = [buffer(0x10000, BF16, 8, 4096), buffer(0x20000, BF16, 256, 4096)]
    results = [buffer(0x30000, BF16, 8, 256), buffer(WORKSPACE, U8, plan.workspace.total_bytes)]
    words = encode(plan, "").words
    generations = []
    for _ in range(2):
        assert handler.run(words, inputs, results) == ""
        clear, call = handler.take()
        assert (clear.what, clear.to, clear.value, clear.stream) == (
            *(b"m", WORKSPACE + zeroed.offset, 0, STREAM),
        )
        assert clear.bytes == zeroed.nbytes
        fields = packer(launch.kernel).unpack(bytes(call.arguments[: call.bytes]))
        generations.append(fields["generation"])
    assert generations[1] > generations[0] > 0


def test_metadata(handler: Handler, include: str) -> None:
    """The least version that it needs: XLA registers handlers from 0.1 up to its own."""
    header = (Path(include) / "xla" / "ffi" / "api" / "c_api.h").read_text()
    own = [int(re.search(rf"XLA_FFI_API_{part} (\d+)", header)[1]) for part in ("MAJOR", "MINOR")]
    found = (ctypes.c_int * 3)()
    handler.driver.query(handler.library.amdattn_xla_rocm, found)
    command_buffer_compatible = 1
    assert list(found) == [0, 1, command_buffer_compatible] and own >= [0, 1]


def test_what_is_refused(handler: Handler) -> None:
    words = encode(PLAN, "bshd").words
    inputs, results = operands()
    assert "amdattn.jax is not imported" in handler.run(words, inputs, results)  # no kernel, no way
    assert "amdattn.jax is not imported" in handler.run(words, inputs, results, INSTANTIATE)
    for launch in PLAN.launches:
        handler.add(launch.kernel, 0, 0xF00)
    handler.take()
    assert "2 operands" in handler.run(words, inputs[:2], results)
    other = [*inputs[:2], buffer(0x30000, BF16, 1, 2048, 2, 64)]
    assert re.search("operand 2 has .* bytes, in the plan", handler.run(words, other, results))
    odd = [buffer(0x10008, BF16, 1, 64, 4, 64), *inputs[1:]]
    assert "not a multiple of 16" in handler.run(words, odd, results)
    assert not handler.take()
    handler.set("fake_status", 719)
    text = handler.run(words, inputs, results)
    assert "attention: made up: hipModuleLaunchKernel: error 719 (made up)" in text


@pytest.mark.parametrize("seed", range(40))
def test_damaged_plans_are_refused(handler: Handler, seed: int) -> None:
    """Whatever the words are, nothing outside of them and of the operands is touched."""
    rng = np.random.default_rng(seed)
    words = encode(PLAN, "bshd").words.copy()
    structure = [0, 1, 2, 3, 4, 5]
    head = 6 + 6
    if seed < len(structure):
        words[structure[seed]] += 1
    elif seed < 20:
        words = words[: rng.integers(0, len(words))]
    else:
        # Counts and places of the first launch.
        at = head + int(rng.choice([8, 9, 10, 12, 14]))
        words[at] = rng.integers(2**40, 2**62)
    inputs, results = operands()
    for launch in PLAN.launches:
        handler.add(launch.kernel, 0, 0xF00)
    assert "another version of amdattn, or damaged" in handler.run(words, inputs, results)
    assert not handler.take()


@pytest.fixture
def guarded() -> Callable[[np.ndarray, bool], np.ndarray]:
    """Copies words to where what lies before or behind them cannot be read."""
    libc = ctypes.CDLL(None, use_errno=True)
    page, kept = mmap.PAGESIZE, []

    def place(words: np.ndarray, at_end: bool) -> np.ndarray:
        inner = -(-max(words.nbytes, 1) // page) * page
        pages = mmap.mmap(-1, inner + 2 * page)
        kept.append(pages)
        first = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        for wall in (first, first + page + inner):
            assert libc.mprotect(ctypes.c_void_p(wall), ctypes.c_size_t(page), 0) == 0
        begin = page + (inner - words.nbytes if at_end else 0)
        placed = np.frombuffer(pages, np.int64, len(words), begin)
        placed[:] = words
        return placed

    return place


# Counts that overflow sums, that wrap when they are cut to 32 bits, and their neighbours.
HOSTILE = (
    *(0, 1, -1, 2, 31, 32, 33, 1023, 1025, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**33),
    *(2**40, -(2**40), 2**61, 2**62, 2**63 - 1, -(2**63), -(2**63) + 2**20, 2**63 - 2**40),
)


@pytest.mark.parametrize("at_end", [True, False])
def test_no_word_of_a_plan_is_believed(handler: Handler, guarded: Any, at_end: bool) -> None:
    """Every word, alone and with another: refused, or launched as it says and inside operands."""
    for launch in PLAN.launches:
        handler.add(launch.kernel, 0, 0xF00)
    inputs, results = operands()
    plain = encode(PLAN, "bshd").words
    assert handler.run(plain, inputs, results) == "" and len(handler.take()) == 2
    placed = guarded(plain, at_end)
    rng = np.random.default_rng(int(at_end))
    ranges = [(ADDRESSES[name], 2**20) for name in ADDRESSES]
    ranges.append((WORKSPACE, PLAN.workspace.total_bytes + 1))
    mutations = [((i, value),) for i in range(len(plain)) for value in HOSTILE]
    mutations += [
        tuple((int(rng.integers(0, 20)), HOSTILE[rng.integers(len(HOSTILE))]) for _ in range(2))
        for _ in range(4000)
    ]
    num_run = 0
    for mutation in mutations:
        placed[:] = plain
        for at, value in mutation:
            placed[at] = value
        text = handler.run(placed, inputs, results)
        calls = handler.take()
        assert text or len(calls) == 2, mutation
        num_run += not text
        at = 6 + 6 + 3 * int(plain[4])
        for call in calls:  # nothing is cut to 32 bits
            grid = [int(word) for word in placed[at + 2 : at + 5]]
            assert list(call.grid) == grid and call.bytes == placed[at + 8], mutation
            patches = placed[at + 10 : at + 10 + 2 * int(placed[at + 9])].reshape(-1, 2)
            offsets = np.sort(patches[:, 0] % 2**32)
            apart = bool((np.diff(offsets) >= 8).all())  # else one is written over another
            for where, _ in patches:
                offset = int(where) & 0xFFFFFFFF
                to = int.from_bytes(call.arguments[offset : offset + 8], "little")
                if apart and 0 <= int(where) >> 32 < 6:
                    assert any(low <= to < low + size for low, size in ranges), mutation
            at += 10 + 2 * len(patches) + -(-int(placed[at + 8]) // 8)
    assert 0 < num_run < len(mutations) // 2  # constants among the arguments, and the key's device


@pytest.mark.parametrize(
    ("at", "value"),
    [
        pytest.param(12 + 2, 2**32 + 1, id="a grid that is 1 in 32 bits"),
        pytest.param(12 + 2, 0, id="no workgroup"),
        pytest.param(12 + 5, 2**32 + 256, id="a workgroup that is 256 in 32 bits"),
        pytest.param(12 + 11, 2**40, id="an address beyond its operand"),
        pytest.param(12 + 11, -16, id="an address before its operand"),
        pytest.param(6, -(2**62), id="an operand of less than nothing"),
    ],
)
def test_words_that_ran_are_refused(handler: Handler, at: int, value: int) -> None:
    words = encode(PLAN, "bshd").words.copy()
    words[at] = value
    for launch in PLAN.launches:
        handler.add(launch.kernel, 0, 0xF00)
    assert "damaged" in handler.run(words, *operands()) and not handler.take()


def test_counts_whose_sum_overflows(handler: Handler) -> None:
    words = encode(PLAN, "bshd").words.copy()
    words[2], words[3] = 2**63 - 1, 2**63 + 1 - 2**40  # -2^40 in 64 bits
    assert "damaged" in handler.run(words, *operands())


def test_an_operand_is_never_cleared(handler: Handler) -> None:
    plan = plan_gemm(8, 256, 4096, device="MI300X", split_k=4)
    handler.add(plan.launches[0].kernel, 0, 0xF00)
    inputs = [buffer(0x10000, BF16, 8, 4096), buffer(0x20000, BF16, 256, 4096)]
    results = [buffer(0x30000, BF16, 8, 256), buffer(WORKSPACE, U8, plan.workspace.total_bytes)]
    words = encode(plan, "").words.copy()
    words[6 + 4] = 0  # the buffer of the only clear
    assert "damaged" in handler.run(words, inputs, results) and not handler.take()


def test_a_plan_with_the_arguments_of_another_kernel(handler: Handler) -> None:
    first, second = PLAN.launches
    key = (ctypes.c_uint64 * 2).from_buffer_copy(key_of(first.kernel))
    size = packer(first.kernel).size + 8
    offsets = (ctypes.c_int32 * 1)(size - 8)
    assert handler.library.amdattn_xla_add_kernel(
        ROCM, 0, key, ctypes.c_void_p(0xF00), size, 1, offsets
    )
    handler.add(second.kernel, 0, 0xF01)
    assert "bytes of arguments" in handler.run(encode(PLAN, "bshd").words, *operands())
    assert not handler.take()


def test_every_case_of_every_operation_can_be_encoded() -> None:
    """Each plan travels whole: its launches, its operands, no address of this process."""
    from amdattn.arch.props import KNOWN_DEVICES

    for operation in registry.operations():
        for case in operation.cases(None):
            plan = operation.planned(case.problem, KNOWN_DEVICES["MI300X"])
            encoded = encode(plan, case.variant)
            again = encode(operation.planned(case.problem, KNOWN_DEVICES["MI300X"]), case.variant)
            np.testing.assert_array_equal(encoded.words, again.words)
            header = encoded.words[:6]
            assert header[1] == len(encoded.words) and header[5] == len(plan.launches)
