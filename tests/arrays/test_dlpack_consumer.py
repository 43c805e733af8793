"""What `from_dlpack` and the functions ask producers for, old and new, and what they take."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.arrays.dlpack_import import import_tensor
from amdattn.arrays.interchange import as_view
from amdattn.device import runtime
from tests.support.handmade import Handmade, tensor_at

CPU, ROCM = (1, 0), (10, 0)
IS_COPIED = 2
HOST = np.arange(12, dtype=np.float32).reshape(3, 4)
VERSION = {"max_version": (1, 3)}


class Producer:
    """Of a device array, with the keywords of some year; notes what it is asked for.

    `versioned` and `copies` are what newer producers do; `wrapped` passes all keywords on to one
    that is older.
    """

    def __init__(
        self,
        keywords: tuple[str, ...],
        device: tuple[int, int] = ROCM,
        flags: int | None = None,
        wrapped: bool = False,
    ) -> None:
        self.array = amdattn.asarray(HOST)
        self.asked: list[dict[str, Any]] = []
        self._keywords = keywords
        self._device = device
        self._flags = flags
        self._wrapped = wrapped

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __getattr__(self, name: str) -> Any:
        if name != "__dlpack__":
            raise AttributeError(name)
        given = ", ".join(f"{keyword}=None" for keyword in self._keywords)
        scope: dict[str, Any] = {"answer": self._answer}
        signature = f"*, {given}" if given else ""
        exec(f"def __dlpack__({signature}): return answer(locals())", scope)
        called = scope["__dlpack__"]

        def passed_on(**any_keywords: Any) -> Any:
            return called(**any_keywords)

        return passed_on if self._wrapped else called

    def _answer(self, asked: dict[str, Any]) -> Any:
        self.asked.append(asked)
        address = self.array.address if self._device == ROCM else HOST.ctypes.data
        made = tensor_at(address, (3, 4), self._device, code=2, bits=32, flags=self._flags)
        self.kept = made
        return made.__dlpack__()


ALL = ("stream", "max_version", "dl_device", "copy")


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("copy", [None, False, True])
@pytest.mark.parametrize("keywords", [ALL, ALL[:2], ALL[:1], ("stream", "copy")])
def test_producers_are_asked_with_the_keywords_that_they_know(
    keywords: tuple[str, ...], copy: Any, wrapped: bool
) -> None:
    """Of 2023.12, of DLPack 1.0, of before; True gives a copy whoever has to make it."""
    producer = Producer(keywords, wrapped=wrapped)
    x = amdattn.from_dlpack(producer, copy=copy)
    (asked,) = producer.asked
    assert asked["stream"] == 0
    if "max_version" in keywords:
        assert asked["max_version"] == (1, 3)
    if keywords == ALL:
        assert asked["copy"] is copy and asked["dl_device"] is None
    assert (x.address != producer.array.address) == bool(copy)
    np.testing.assert_array_equal(x.numpy(), HOST)


def test_a_copy_of_the_producer_is_not_copied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer(ALL, flags=IS_COPIED)
    assert amdattn.from_dlpack(producer, copy=True).address == producer.array.address
    assert amdattn.from_dlpack(producer).address == producer.array.address
    with pytest.raises(BufferError, match="copied by its library, which copy=False"):
        amdattn.from_dlpack(producer, copy=False)


def test_the_host_is_asked_without_a_stream() -> None:
    """None is its only stream; some have no such keyword."""
    for keywords in (ALL, ALL[1:], ALL[1:2], ()):
        producer = Producer(keywords, CPU)
        np.testing.assert_array_equal(amdattn.asarray(producer).numpy(), HOST)
        assert not producer.asked[0].get("stream")
        assert producer.asked[0].get("max_version", (1, 3)) == (1, 3)


@pytest.mark.parametrize("keywords", [(), ("max_version",)])
def test_device_memory_is_not_taken_without_a_stream(keywords: tuple[str, ...]) -> None:
    """Nobody would wait for the work that is still to write it."""
    with pytest.raises(TypeError, match=r"x .*'stream'"):
        amdattn.from_dlpack(Producer(keywords))


@pytest.mark.parametrize(
    "text", ["inside", "unsupported operand", "f() got an unexpected keyword argument 'other'"]
)
def test_type_errors_of_a_producers_own_are_not_hidden(text: str) -> None:
    calls: list[dict[str, Any]] = []

    class Faulty:
        def __dlpack_device__(self) -> tuple[int, int]:
            return CPU

        def __dlpack__(self, **keywords: Any) -> Any:
            calls.append(keywords)
            raise TypeError(text)

    with pytest.raises(TypeError, match=r"x \(.*Faulty\) cannot be taken") as caught:
        amdattn.asarray(Faulty())
    assert text in str(caught.value) and calls == [VERSION]


# -- device ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", [None, 0, "rocm:0", "rocm"])
@pytest.mark.parametrize("copy", [None, False, True])
def test_arrays_of_this_package(device: Any, copy: Any) -> None:
    x = amdattn.asarray(HOST)
    y = amdattn.from_dlpack(x, device=device, copy=copy)
    assert (y.memory is x.memory) == (not copy) and y.device == "rocm:0"
    np.testing.assert_array_equal(y.numpy(), HOST)


@pytest.mark.parametrize("device", [0, "rocm:0"])
@pytest.mark.parametrize("copy", [None, True])
def test_host_memory_goes_where_it_is_asked_to(device: Any, copy: Any) -> None:
    for source in (HOST, Producer(ALL, CPU), Handmade(HOST, versioned=False)):
        x = amdattn.from_dlpack(source, device=device, copy=copy)
        np.testing.assert_array_equal(x.numpy(), HOST)


def test_what_takes_a_copy_or_a_host_array() -> None:
    x = amdattn.asarray(HOST)
    for given, asked, text in (
        (HOST, {}, "x is in host memory; amdattn.asarray"),
        (HOST, {"copy": True}, "x is in host memory; amdattn.asarray"),
        (HOST, {"copy": False, "device": 0}, "device=0 takes a copy"),
        (x, {"device": "cpu"}, "device='cpu'.*numpy.from_dlpack"),
        (HOST, {"device": "cpu:0"}, "device='cpu:0'"),
    ):
        with pytest.raises(BufferError, match=text):
            amdattn.from_dlpack(given, **asked)
    for asked, error, text in (
        ({"copy": 1}, TypeError, "copy=1"),
        ({"copy": "no"}, TypeError, "copy='no'"),
        ({"device": "cuda:0"}, ValueError, "device='cuda:0'"),
        ({"device": 9}, ValueError, "device 9"),
    ):
        with pytest.raises(error, match=text):
            amdattn.from_dlpack(x, **asked)
    with pytest.raises(TypeError, match="positional"):
        amdattn.from_dlpack(x=x)  # type: ignore[call-arg]
    for kind in (2, 13, 14):
        for asked in ({}, {"device": 0}, {"copy": True}):
            with pytest.raises(BufferError, match=f"x is on a DLPack device of type {kind}"):
                amdattn.from_dlpack(Producer(ALL, (kind, 0)), **asked)
    for nothing in (5, [1.0], object(), memoryview(b"1")):
        with pytest.raises(AttributeError, match="x must have __dlpack__"):
            amdattn.from_dlpack(nothing)


def test_another_gpu_is_the_producers_to_reach() -> None:
    """Asked for with dl_device; a producer that does not know it hands out what is elsewhere."""
    producer = Producer(ALL, (10, 3))
    with pytest.raises(BufferError, match=r"device=0 takes a copy \(copy=False\)"):
        amdattn.from_dlpack(producer, device=0, copy=False)
    for keywords in (ALL, ALL[:2], ALL[:1]):
        producer = Producer(keywords, (10, 3))
        with pytest.raises(
            BufferError, match=r"on device \(10, 3\), where dl_device=\(10, 0\) was"
        ):
            amdattn.from_dlpack(producer, device=0)
        assert producer.asked[0].get("dl_device", ROCM) == ROCM

    class Reaches(Producer):
        def _answer(self, asked: dict[str, Any]) -> Any:
            self.asked.append(asked)
            self.kept = tensor_at(
                self.array.address, (3, 4), ROCM, code=2, bits=32, flags=IS_COPIED
            )
            return self.kept.__dlpack__()

    for copy in (None, True):
        reaching = Reaches(ALL, (10, 3))
        x = amdattn.from_dlpack(reaching, device=0, copy=copy)
        assert reaching.asked == [{"stream": 0, "dl_device": ROCM, "copy": copy} | VERSION]
        assert x.address == reaching.array.address


# -- memory of the host ----------------------------------------------------------------------------


@pytest.mark.parametrize("said", [1, 3, 11])
@pytest.mark.parametrize("kind", [1, 3, 11])
@pytest.mark.parametrize("versioned", [False, True])
def test_pinned_memory_is_of_the_host(said: int, kind: int, versioned: bool) -> None:
    """HIP's own, and CUDA's, as torch calls pinned memory on every GPU; plain in its capsules."""
    device = runtime.get()
    address = int(device.check("hipHostMalloc", device.hip.hipHostMalloc(48, 0)))
    ctypes.memmove(address, HOST.ctypes.data, 48)
    source = Handmade(HOST, (said, 0), versioned, kind=kind, data=address)
    np.testing.assert_array_equal(amdattn.asarray(source).numpy(), HOST)
    out = Handmade(HOST, (said, 0), versioned, kind=kind, data=address)
    a, b = np.ones((3, 64), np.float16), np.ones((4, 64), np.float16)
    amdattn.gemm_nt(a, b, out=out, out_dtype="float32")
    found = np.frombuffer(ctypes.string_at(address, 48), np.float32)
    np.testing.assert_array_equal(found, np.full(12, 64))
    device.check("hipHostFree", device.hip.hipHostFree(address))


@pytest.mark.parametrize(("kind", "said"), [(10, 11), (11, 10), (2, 11), (13, 13), (1, 10)])
def test_pinned_memory_is_no_device_memory(kind: int, said: int) -> None:
    with pytest.raises((BufferError, TypeError, ValueError), match="device"):
        amdattn.asarray(Handmade(HOST, (said, 0), kind=kind))


def test_results_are_not_written_to_a_copy() -> None:
    a, b = np.ones((3, 64), np.float16), np.ones((4, 64), np.float16)
    out = Handmade(HOST.copy(), flags=IS_COPIED)
    with pytest.raises(ValueError, match="out cannot be written: its library hands out a copy"):
        amdattn.gemm_nt(a, b, out=out, out_dtype="float32")


# -- streams ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stream", "named"), [(0, 0), (1, 0), (2, 0), ("own", "own")])
def test_producers_are_told_a_stream_of_rocm(
    monkeypatch: pytest.MonkeyPatch, hip_stream: Any, stream: Any, named: Any
) -> None:
    """HIP's constants 1 and 2 are none to the standard; the call's stream then waits for 0."""
    stream, named = (int(hip_stream) if x == "own" else x for x in (stream, named))
    waits: list[tuple[int, int]] = []
    monkeypatch.setattr(runtime.get(), "wait_for", lambda *pair: waits.append(pair))
    producer = Producer(ALL)
    as_view(producer, "x", stream)
    assert producer.asked[0]["stream"] == named
    assert [pair for pair in waits if pair[0] != pair[1]] == (
        [] if stream == named else [(stream, named)]
    )


# -- element types ---------------------------------------------------------------------------------

NAMES = {
    5: "complex",
    6: "bool",
    7: "float8_e3m4",
    8: "float8_e4m3 ",
    14: "float8_e8m0fnu",
    16: "float6_e3m2fn",
    17: "float4_e2m1fn",
}


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize(("code", "bits"), [(c, 64 if c == 5 else 8) for c in NAMES])
def test_types_that_no_array_has_here_are_named(code: int, bits: int, versioned: bool) -> None:
    source = Handmade(HOST, versioned=versioned, code=code, bits=bits)
    with pytest.raises(ValueError, match=rf"x .*{NAMES[code]}.*code={code}, .*have bfloat16"):
        amdattn.asarray(source)
    gc.collect()
    assert source.freed == 0


@pytest.mark.parametrize(("code", "bits", "lanes"), [(17, 4, 1), (0, 4, 1), (2, 16, 2), (99, 8, 1)])
def test_packed_and_unknown_types(code: int, bits: int, lanes: int) -> None:
    for flags in (0, 4):  # packed, padded
        with pytest.raises(ValueError, match=f"code={code}, bits={bits}, lanes={lanes}"):
            amdattn.asarray(Handmade(HOST, code=code, bits=bits, lanes=lanes, flags=flags))


# -- what is kept and returned ---------------------------------------------------------------------


@pytest.mark.parametrize("minor", [0, 1, 2, 3, 9])
def test_every_minor_version(minor: int) -> None:
    for changes in ({}, {"strides": 0}, {"flags": 2**63 | IS_COPIED}):
        source = Handmade(HOST, minor=minor, **changes)
        np.testing.assert_array_equal(amdattn.asarray(source).numpy(), HOST)


@pytest.mark.parametrize("versioned", [False, True])
def test_a_capsule_is_taken_once(versioned: bool) -> None:
    source = Handmade(HOST, versioned=versioned)
    capsule = source.__dlpack__()

    class Again:
        def __dlpack__(self, **_: Any) -> Any:
            return capsule

    taken = import_tensor(Again(), None)
    with pytest.raises(BufferError, match="no unused DLPack capsule"):
        import_tensor(Again(), None)
    assert source.freed == 0
    del taken
    gc.collect()
    assert source.freed == 1


def test_thousands_of_imports_leave_nothing() -> None:
    """Taken and refused ones; every deleter of those taken runs once."""
    x = amdattn.asarray(HOST.astype(ml_dtypes.bfloat16))

    def round_trip() -> None:
        for version in (None, (1, 3)):
            x.__dlpack__(max_version=version)
        amdattn.from_dlpack(x)
        with pytest.raises(BufferError):
            import_tensor(x, 0, (2, 0))

    def resident() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    for _ in range(500):
        round_trip()
    gc.collect()
    before = resident()
    for _ in range(4_000):
        round_trip()
    gc.collect()
    assert resident() - before < 2**20
