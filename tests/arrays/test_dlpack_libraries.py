"""Exchange with numpy, torch and JAX as they are installed, as producers and as consumers."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.arrays.buffers import host_empty
from amdattn.arrays.dlpack import HostTensor
from amdattn.dtypes import as_dtype

VALUES = np.arange(24, dtype=np.float32).reshape(4, 6)


def library(name: str) -> Any:
    return pytest.importorskip(name)


def produced(name: str, array: Any) -> Any:
    """A library's own array of a numpy array; numpy's is one that only DLPack is seen of."""
    if name == "numpy":
        return HostTensor(array)
    if name == "jax":
        return library("jax.numpy").asarray(array)
    torch = library("torch")
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


NAMES = [
    "numpy",
    pytest.param("torch", marks=pytest.mark.oracles),
    pytest.param("jax", marks=pytest.mark.oracles),
]
DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.int32, np.uint8]


# -- as producers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(4, 6), (24,), (0, 5), (1, 24), ()])
def test_arrays_of_a_library(name: str, shape: tuple[int, ...], dtype: Any) -> None:
    host = VALUES.ravel()[: int(np.prod(shape))].reshape(shape).astype(dtype)
    x = produced(name, host)
    for made in (amdattn.asarray(x), amdattn.from_dlpack(x, device=0)):
        assert made.shape == shape and made.dtype == host.dtype
        np.testing.assert_array_equal(made.numpy(), host)
    for copy in (None, False, True):
        with pytest.raises(BufferError, match="x is in host memory"):
            amdattn.from_dlpack(x, copy=copy)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["bool", "complex64", "float8_e8m0fnu"])
def test_element_types_that_no_array_has_here(name: str, dtype: str) -> None:
    if name == "numpy":
        pytest.skip("HostTensor is only of types that arrays have here")
    kind = "complex" if dtype == "complex64" else dtype
    home = library("torch") if name == "torch" else library("jax.numpy")
    if name == "torch":
        x = home.ones(3).to(getattr(home, dtype))
    else:
        x = home.ones(3, getattr(home, "bool_" if dtype == "bool" else dtype))
    with pytest.raises(ValueError, match=rf"x \(.*element type {kind} \(code="):
        amdattn.asarray(x)


@pytest.mark.parametrize("name", NAMES[1:])
@pytest.mark.parametrize(
    "dtype", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]
)
def test_8_bit_floats_of_a_library(name: str, dtype: str) -> None:
    home = library("torch") if name == "torch" else library("jax.numpy")
    x = home.ones(3)
    x = x.to(getattr(home, dtype)) if name == "torch" else x.astype(dtype)
    made = amdattn.asarray(x)
    assert made.dtype == as_dtype(dtype).numpy()
    assert made.numpy().astype(np.float32).tolist() == [1, 1, 1]


@pytest.mark.oracles
def test_what_torch_holds_that_is_not_in_memory() -> None:
    torch = library("torch")
    numbers = torch.complex(torch.ones(3), torch.arange(3.0))
    negative = torch.conj(numbers).imag
    assert negative.is_neg()
    for x, error, text in (
        (negative, ValueError, r"x is a view of the negatives.*x\.resolve_neg\(\)"),
        (torch.conj(numbers), BufferError, r"x \(torch.Tensor\).*conjugate bit"),
        (torch.eye(3).to_sparse(), BufferError, r"x \(torch.Tensor\).*layout"),
        (torch.eye(3).to_sparse_csr(), BufferError, r"x \(torch.Tensor\).*layout"),
        (torch.ones(3, requires_grad=True), ValueError, "x requires a gradient"),
        (torch.ones(3, device="meta"), (BufferError, ValueError), r"x \(torch.Tensor\)"),
    ):
        with pytest.raises(error, match=text):
            amdattn.asarray(x)
        with pytest.raises(error, match=text):
            amdattn.from_dlpack(x, device=0)
    np.testing.assert_array_equal(amdattn.asarray(negative.resolve_neg()).numpy(), [-0.0, -1, -2])
    taken = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        np.testing.assert_array_equal(amdattn.from_dlpack(taken, device=0).numpy(), np.ones(3))


@pytest.mark.oracles
@pytest.mark.parametrize("wrapped", ["negative", "gradient"])
def test_results_are_not_written_where_they_would_not_be_seen(wrapped: str) -> None:
    torch = library("torch")
    a, b = np.ones((3, 64), np.float16), np.ones((4, 64), np.float16)
    out = torch.conj(torch.zeros(3, 4, dtype=torch.complex64)).imag
    if wrapped == "gradient":
        out = torch.zeros(3, 4, requires_grad=True)
    with pytest.raises(ValueError, match=r"out (is a view of the negatives|requires a gradient)"):
        amdattn.gemm_nt(a, b, out=out, out_dtype="float32")


def test_numpys_own_arrays() -> None:
    read_only = VALUES.copy()
    read_only.flags.writeable = False
    for host in (read_only, VALUES[::2, ::-1], VALUES.T):
        np.testing.assert_array_equal(amdattn.from_dlpack(host, device=0).numpy(), host)
    bits = VALUES.astype(ml_dtypes.bfloat16)
    with pytest.raises(BufferError, match="x"):  # numpy has no name for it
        bits.__dlpack__()
    np.testing.assert_array_equal(amdattn.from_dlpack(bits, device=0).numpy(), bits)
    through = amdattn.from_dlpack(bits.view(np.uint16), device=0).numpy()
    np.testing.assert_array_equal(through.view(ml_dtypes.bfloat16), bits)


# -- as consumers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("shape", [(4, 6), (0, 5), ()])
def test_numpy_takes_device_arrays_to_the_host(shape: tuple[int, ...], copy: Any) -> None:
    host = VALUES.ravel()[: int(np.prod(shape))].reshape(shape)
    taken = np.from_dlpack(amdattn.asarray(host), device="cpu", copy=copy)
    np.testing.assert_array_equal(taken, host)
    assert taken.flags.writeable and taken.shape == shape
    with pytest.raises((BufferError, ValueError), match="copy"):
        np.from_dlpack(amdattn.asarray(host), device="cpu", copy=False)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 6), (0, 5), ()])
def test_libraries_take_results_of_the_host(name: str, shape: tuple[int, ...], dtype: Any) -> None:
    if name == "numpy" and dtype is ml_dtypes.bfloat16:
        pytest.skip("numpy has no name for it")
    host = VALUES.ravel()[: int(np.prod(shape))].reshape(shape).astype(dtype)
    home = library("jax.numpy" if name == "jax" else name)
    made = home.from_dlpack(HostTensor(host))
    found = made if name == "numpy" else amdattn.asarray(made).numpy()
    np.testing.assert_array_equal(found, host)
    assert tuple(made.shape) == shape


@pytest.mark.parametrize("name", NAMES)
def test_consumers_keep_nothing(name: str) -> None:
    """numpy takes no memory of a GPU and JAX no gaps; torch takes a capsule, and drops it."""
    home = library("jax.numpy" if name == "jax" else name)
    held: Any
    if name == "jax":
        array = np.zeros((4, 128), np.float32)
        held, memory = HostTensor(array[:, ::2]), weakref.ref(array)
        del array
    else:
        held = amdattn.asarray(VALUES)
        memory = weakref.ref(held.memory)
    for _ in range(3):
        if name == "torch":
            assert home.from_dlpack(held.__dlpack__()).shape == held.shape
        else:
            with pytest.raises(Exception, match=r"(?i)unsupported device|unimplemented"):
                home.from_dlpack(held)
    del held
    gc.collect()
    assert memory() is None


@pytest.mark.oracles
@pytest.mark.parametrize("copy", [None, False, True])
def test_torch_and_jax_ask_with_their_own_keywords(copy: Any) -> None:
    torch, jnp = library("torch"), library("jax.numpy")
    host = host_empty((64, 64), as_dtype("float32"))  # at an address that JAX does not copy from
    host[:] = 0
    for home in (torch, jnp):
        made = home.from_dlpack(HostTensor(host), copy=copy)
        np.testing.assert_array_equal(np.asarray(made), host)
    tensor = torch.from_dlpack(HostTensor(host), copy=copy)
    tensor += 1
    assert host.any() == (not copy)
