"""DLPack tensors that make no sense are refused, whatever field is wrong."""

import ctypes
import gc
import random

import numpy as np
import pytest

import amdattn
from amdattn.arrays import dlpack
from amdattn.arrays.interchange import as_view
from amdattn.device import host_memory, runtime
from tests.support.handmade import Handmade

HOST = np.arange(12, dtype=np.float32).reshape(3, 4)
NEAR = HOST.ctypes.data


@pytest.mark.device  # launches nothing, but takes long
def test_a_handmade_capsule_is_taken_and_returned():
    for versioned in (True, False):
        for changes in ({}, {"strides": 0}, {"minor": 9}, {"flags": 2**63}, {"deleter": 0}):
            source = Handmade(HOST, versioned=versioned, **changes)
            np.testing.assert_array_equal(amdattn.asarray(source).numpy(), HOST)
            gc.collect()
            assert source.freed == ("deleter" not in changes)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"shape": 0}, "shape is NULL"),
        ({"shape": 8}, "shape: 16 bytes at 0x8"),
        ({"shape": 2**64 - 8}, "shape: 16 bytes"),
        ({"strides": 16}, "strides: 16 bytes at 0x10"),
        ({"shape": (-1, 4)}, "negative"),
        ({"shape": (2**40, 2), "strides": (2**40, 1)}, "address space"),
        ({"shape": (2**44, 2)}, "no memory of"),
        ({"strides": (2**40, 1)}, "no memory of"),
        ({"strides": (-(2**62), 1)}, "address space"),
        ({"ndim": 2**31 - 1}, "ndim=2147483647"),
        ({"ndim": 65}, "ndim=65"),
        ({"ndim": -1}, "ndim=-1"),
        ({"data": 0}, "data is NULL"),
        ({"data": 64}, "no memory of"),
        ({"byte_offset": 2**63}, "address space"),
        ({"byte_offset": 2**64 - 1}, "address space"),
        ({"byte_offset": 2**47}, "no memory of"),
        ({"lanes": 0}, "lanes=0"),
        ({"lanes": 4}, "lanes=4"),
        ({"bits": 0}, "bits=0"),
        ({"bits": 255}, "bits=255"),
        ({"code": 17}, "code=17"),
        ({"code": 5, "bits": 64}, "code=5"),
        ({"major": 2}, r"DLPack 2\.0"),
        ({"major": 0}, r"DLPack 0\.0"),
        ({"deleter": 1}, "deleter=0x1 is no function"),
        ({"deleter": NEAR}, "is no function"),
        ({"kind": 2}, r"on device \(2, 0\), where __dlpack_device__ said \(1, 0\)"),
        ({"kind": 10}, r"on device \(10, 0\)"),
        ({"kind": -1}, r"on device \(-1, 0\)"),
    ],
)
@pytest.mark.parametrize("versioned", [True, False])
def test_every_field(changes, text, versioned):
    if not versioned and "major" in changes:
        pytest.skip("legacy capsules have no version")
    source = Handmade(HOST, versioned=versioned, **changes)
    with pytest.raises((BufferError, ValueError), match=text) as caught:
        amdattn.flash_attn_func(source, source, source)
    assert "q" in str(caught.value)
    gc.collect()
    assert source.freed == 0  # it stays its producer's


@pytest.mark.parametrize("said", [(1,), (1, 0, 0), None, "cpu", ("a", "b"), (1, None)])
def test_devices_that_are_none(said):
    with pytest.raises(BufferError, match="__dlpack_device__ gave"):
        amdattn.asarray(Handmade(HOST, said))


def test_what_is_no_capsule_at_all():
    class Producer(Handmade):
        def __dlpack__(self, **_):
            return 5

    with pytest.raises(BufferError, match="no unused DLPack capsule"):
        amdattn.asarray(Producer(HOST))
    with pytest.raises(BufferError, match="no unused DLPack capsule"):
        amdattn.asarray(Handmade(HOST, name=b"other"))


def test_device_tensors():
    x = amdattn.asarray(HOST)
    here = (dlpack.ROCM, runtime.get().ordinal)

    def tensor(**changes):
        there = dict(zip(("kind", "ordinal"), here, strict=True))
        return Handmade(HOST, here, **{**there, "data": x.address, **changes})

    np.testing.assert_array_equal(amdattn.from_dlpack(tensor()).numpy(), HOST)
    for changes, text in (
        ({"kind": dlpack.CPU}, r"on device \(1, "),
        ({"ordinal": here[1] + 1}, "where __dlpack_device__ said"),
        ({"byte_offset": 2}, "multiple of the 4 bytes"),
        ({"shape": (2**30, 4)}, "not memory of device 0"),
        ({"strides": (-4, 1)}, "not memory of device 0"),
        ({"data": NEAR}, "not memory of device 0"),
        ({"data": 16}, "not memory of device 0"),
    ):
        with pytest.raises((BufferError, ValueError), match=text):
            amdattn.from_dlpack(tensor(**changes))


def test_tensors_without_elements_need_no_memory():
    nothing = Handmade(HOST, shape=(0, 4), data=0)
    assert amdattn.asarray(nothing).shape == (0, 4)
    assert amdattn.asarray(Handmade(HOST, ndim=0, shape=0, strides=0)).numpy() == HOST[0, 0]


def test_memory_of_which_a_part_is_gone():
    """Readable at both ends is not readable: pages between were unmapped or protected."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    base = libc.mmap(None, 3 * 4096, 3, 0x22, -1, 0)
    assert host_memory.is_readable(base, base + 3 * 4096)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    libc.munmap(base + 4096, 4096)
    assert not host_memory.is_readable(base, base + 3 * 4096)
    assert host_memory.is_readable(base, base + 4096)
    libc.mmap(base + 4096, 4096, 0, 0x32, -1, 0)  # mapped again, without any right
    assert not host_memory.is_readable(base, base + 3 * 4096)
    libc.munmap(base, 3 * 4096)
    with pytest.raises(ValueError, match="cannot be read"):
        host_memory.read(base, 8)


_EDGES = (0, 1, 2, 3, 4, 8, 255, 256, 4096, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40)
_EDGES += (
    2**47,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 8,
    2**64 - 1,
    NEAR,
    NEAR + 1,
    NEAR - 4,
    NEAR + 48,
)
_WIDTHS = {"kind": -32, "ordinal": -32, "ndim": -32, "code": 8, "bits": 8, "lanes": 16}
_WIDTHS |= {"major": 32, "minor": 32}


def _value(rng, field):
    width = _WIDTHS.get(field, 64)
    value = rng.choice((rng.choice(_EDGES), rng.getrandbits(abs(width)), rng.randrange(8)))
    if field in ("shape", "strides") and rng.random() < 0.6:
        return [rng.choice((rng.randrange(-3, 6), rng.choice(_EDGES) % 2**63)) for _ in range(2)]
    value %= 2 ** abs(width)
    return value - 2**32 if width < 0 and value >= 2**31 else value


def fuzz(count, seed):
    """How many capsules of random fields were taken, and how many refused."""
    rng = random.Random(seed)
    taken = refused = 0
    names = (*_WIDTHS, "data", "shape", "strides", "byte_offset", "deleter", "flags")
    for _ in range(count):
        chosen = rng.sample(names, rng.choice((1, 1, 2, 3)))
        changes = {name: _value(rng, name) for name in chosen}
        if changes.get("deleter", 0) and host_memory.is_code(changes["deleter"]):
            continue  # some function, which only its producer could tell from a deleter
        said = rng.choice(((1, 0), (1, 0), (1, 3), (10, 0), (2, 0)))
        source = Handmade(HOST, said, rng.random() < 0.7, **changes)
        try:
            view = as_view(source, "x", 0)
            if view.array.size < 2**20:
                view.array.copy()
            del view  # before its producer
            taken += 1
        except (BufferError, ValueError, TypeError):
            refused += 1
    return taken, refused


def test_random_capsules():
    taken, refused = fuzz(1_500, 1)
    assert taken > 50 and refused > 800


@pytest.mark.slow
def test_random_capsules_long():
    taken, refused = fuzz(50_000, 2)
    assert taken > 2_000 and refused > 30_000
