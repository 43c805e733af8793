"""amdattn.virtual.check around real launches: what is declared, what a fault becomes."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.arrays.buffers import DeviceArray
from tests.support.gpu import Gpu


def add(gpu: Gpu, a: DeviceArray, b: DeviceArray, c: DeviceArray, n: int) -> None:
    pointers = (ctypes.c_uint64(x.address) for x in (a, b, c))
    workgroups = -(-n // 256)
    gpu.launch(gpu.function("vector_add"), workgroups, 256, *pointers, ctypes.c_int32(n))


def vectors(n: int) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
    rng = np.random.default_rng(n)
    a, b = (amdattn.asarray(rng.standard_normal(n, np.float32)) for _ in range(2))
    return a, b, amdattn.empty(n, "float32")


def kinds(found: amdattn.virtual.Check) -> list[str]:
    return [finding.kind for finding in found.errors]


def test_a_right_launch(gpu: Gpu) -> None:
    with amdattn.virtual.check() as found:
        a, b, c = vectors(1000)
        found.declare(read_only=[a, b])
        add(gpu, a, b, c, 1000)
        result = c.numpy()
    np.testing.assert_array_equal(result, a.numpy() + b.numpy())
    ((launch, times),) = found.launches.items()
    assert (launch.kernel, launch.grid, times) == ("vector_add", (4, 1, 1), 1)
    assert found.listing(launch.code_object, "vector_add")[0].pc > 0
    assert found.code_object(launch.code_object)[:4] == b"\x7fELF"


def test_a_write_to_a_read_only_array(gpu: Gpu) -> None:
    a, b, c = vectors(300)
    with amdattn.virtual.check(raise_on=None, read_only={"weights": c}) as found:
        add(gpu, a, b, c, 300)
    assert kinds(found) == ["read_only_write"]
    assert "weights" in found.errors[0].message and "store" in found.errors[0].text
    with amdattn.virtual.check(read_only=[c]):  # of this block only
        pass
    with amdattn.virtual.check():
        add(gpu, a, b, c, 300)


def test_gaps_of_a_strided_array_are_not_its_own(gpu: Gpu) -> None:
    a, b, _ = vectors(64)
    table = amdattn.asarray(np.zeros((3, 64), np.float32))
    with amdattn.virtual.check(read_only={"outer": table[::2]}):
        add(gpu, a, b, table[1], 64)
    with amdattn.virtual.check(raise_on=None, read_only={"outer": table[::2]}) as found:
        add(gpu, a, b, table[2], 64)
    assert kinds(found) == ["read_only_write"]


def test_memory_that_is_left_dirty(gpu: Gpu) -> None:
    a, b, c = vectors(64)
    with amdattn.virtual.check(raise_on=None, zero_at_end={"semaphores": c}) as found:
        add(gpu, a, b, c, 64)
    assert kinds(found) == ["dirty_memory"] and "semaphores" in found.errors[0].message
    zeros = amdattn.asarray(np.zeros(64, np.float32))
    with amdattn.virtual.check(zero_at_end=[c]):
        add(gpu, zeros, zeros, c, 64)


def test_elements_that_are_never_written(gpu: Gpu) -> None:
    with amdattn.virtual.check(raise_on=None) as found:
        a, b, _ = vectors(300)
        c = amdattn.empty((3, 100), "float32")
        found.declare(others={"sum": c})
        add(gpu, a, b, c, 299)
        c.numpy()
    (finding,) = found.errors
    assert (finding.kind, finding.kernel, finding.pc) == ("unwritten_output", "", None)
    assert finding.where == f"{c.address + 1196:#x} = sum[2, 99]"
    assert str(finding).startswith("unwritten_output: host call\n")


def test_addresses_are_elements() -> None:
    from amdattn.arrays.interchange import as_view
    from amdattn.checking.arrays import element_at

    x = amdattn.empty((4, 6, 8), "float32")
    for view, index in (
        (x, (3, 0, 7)),
        (x.transpose(2, 0, 1), (7, 3, 5)),
        (x[:, ::2], (2, 1, 3)),
        (x[1:, 5], (0, 4)),
        (x[3, 5, 7], ()),
    ):
        address = view[index].address
        assert element_at(address, "x", as_view(view, "x", 0)) == f"x{list(index)}"
    odd = as_view(x[:, ::2], "x", 0)
    assert element_at(x[0, 1, 0].address, "x", odd) == ""
    assert element_at(x.address - 4, "x", odd) == element_at(x.address + 768, "x", odd) == ""
    assert element_at(x.address + 5, "x", odd) == "x + 5 bytes"
    assert element_at(x.address + 4, "x", as_view(x[::-1], "x", 0)) == "x + 4 bytes"
    # An axis of one element has any step, and one that repeats its elements none.
    row = as_view(x[0, 0], "x", 0)
    for shape, strides, index in (((1, 8), (4, 1), (0, 5)), ((3, 8), (0, 1), (0, 5))):
        view = dataclasses.replace(row, shape=shape, strides=strides)
        assert element_at(x.address + 20, "x", view) == f"x{list(index)}"


def test_a_fault_names_the_instruction(gpu: Gpu) -> None:
    def store(offset: int) -> None:
        function = gpu.function("store_at")
        gpu.launch(function, 1, 64, ctypes.c_uint64(x.address), ctypes.c_int64(offset))

    x = amdattn.empty(16, "uint32")
    with pytest.raises(amdattn.CheckError, match="illegal_") as caught, amdattn.virtual.check():
        store(1 << 15)
        amdattn.synchronize()
    (finding,) = caught.value.findings
    assert (finding.kernel, finding.lane) == ("store_at", 0) and "store" in finding.text
    assert isinstance(caught.value.__cause__, amdattn.HipError)
    with pytest.raises(amdattn.CheckError) as caught, amdattn.virtual.check():
        store(1 << 15)  # and nobody waits
    assert [f.kind for f in caught.value.findings] == ["illegal_address"]
    with amdattn.virtual.check():  # the device lives on
        store(4)


def test_host_arrays_cannot_be_declared() -> None:
    scattered = amdattn.empty((5000, 2), "float32")[:, 0]
    given: tuple[tuple[dict[str, Any], str], ...] = (
        ({"read_only": [np.zeros(4)]}, r"read_only\[0\] is in host memory"),
        ({"zero_at_end": amdattn.empty(4)}, "must be a list, tuple or mapping of arrays"),
        ({"zero_at_end": {"flag": 3}}, "flag must be a"),
        ({"read_only": [scattered]}, "5000 separate pieces"),
    )
    for declared, message in given:
        check = amdattn.virtual.check(**declared)
        with pytest.raises((TypeError, ValueError), match=message), check:
            pytest.fail("the block ran")
    with amdattn.virtual.check(read_only=[amdattn.empty(0)]):
        pass


def test_host_calls_of_the_package_are_checked(normal: Any) -> None:
    q = normal(1, 65, 2, 128)
    with amdattn.virtual.check() as found:
        amdattn.flash_attn_func(q, q, q, return_lse=True)
    assert len(found.launches) == 1


@pytest.fixture
def normal() -> Any:
    import ml_dtypes

    rng = np.random.default_rng(3)
    return lambda *shape: rng.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16)
