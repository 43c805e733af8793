"""Both ways to pass kernel arguments, on the virtual device; what kernels say of themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.arrays.interchange import asarray
from amdattn.bench.kernels import Functions, Launch
from amdattn.device import runtime
from amdattn.device.manifest import Facts
from amdattn.device.runtime import launch_form
from amdattn.device.runtime.launch_form import LaunchForm, Verdict
from amdattn.errors import BindingError, ManifestError
from tests.support.shipped import shipped

KERNELS = {row.name: row for row in shipped()}


@pytest.fixture
def params(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The device takes arguments one by one."""
    monkeypatch.setattr(runtime.get(), "_form", LaunchForm.PARAMS)


def array(seed: int, *shape: int) -> Any:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16)


def attention() -> bytes:
    """Rows of K are copied first, then parts are computed, and merged."""
    options = {"num_splits": 2, "gather": "k"}
    plan = amdattn.plan_attention(1, 40, 300, 2, 1, 128, device="MI300X", **options)
    assert len(plan.launches) == 3
    shapes = (1, 40, 2, 128), (1, 300, 1, 128), (1, 300, 1, 128)
    operands = [asarray(array(i, *shape)) for i, shape in enumerate(shapes)]
    return plan.run(*operands).numpy().tobytes()


def product() -> bytes:
    plan = amdattn.plan_gemm(20, 40, 512, device="MI300X", split_k=2, bias=True)
    operands = [asarray(array(i, *s)) for i, s in enumerate(((20, 512), (40, 512), (40,)))]
    a, b, bias = operands
    return plan.run(a, b, bias=bias).numpy().tobytes()


@pytest.mark.parametrize("form", LaunchForm)
def test_the_probe(form: LaunchForm) -> None:
    assert launch_form.probe(runtime.get(), form) is Verdict.WORKS
    assert launch_form.choose(runtime.get()) is LaunchForm.EXTRA


@pytest.mark.parametrize("compute", [attention, product])
def test_both_forms_compute_the_same(compute: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = compute()
    seen = []
    device = runtime.get()
    call = device.hip.hipModuleLaunchKernel
    monkeypatch.setattr(device, "_form", LaunchForm.PARAMS)
    monkeypatch.setattr(
        device.hip, "hipModuleLaunchKernel", lambda *args: seen.append(args[-2:]) or call(*args)
    )
    assert compute() == expected
    assert seen and all(int(given) and not int(extra) for given, extra in seen)


def test_a_foreign_kernel_by_its_own_metadata(params: None) -> None:
    kernel = KERNELS["gather_rows"]
    source, to = asarray(array(0, 4, 8)), amdattn.empty((4, 8))
    block = np.zeros(16, np.int32)
    block.view(np.uint64)[:2] = source.address, to.address
    block.view(np.int64)[3] = 8  # stride_seq
    block[14:] = 4, 8
    launch = Launch(
        kernel.read_code_object(), kernel.symbol, (1, 1, 1), kernel.workgroup, block.tobytes()
    )
    launch.enqueue(Functions())
    assert to.numpy().tobytes() == source.numpy().tobytes()


def test_arguments_at_unknown_places_are_refused(params: None) -> None:
    with pytest.raises(BindingError, match="where those of this kernel begin was not said"):
        runtime.get().new_kernarg_buffer(64)


def test_the_probe_leaves_captures_alone(hip_stream: Any) -> None:
    """A graph that somebody captures, in the strictest mode."""
    hip = runtime.get().hip
    hip.hipStreamBeginCapture(hip_stream, hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal)
    verdict = launch_form.probe(runtime.get(), LaunchForm.EXTRA)
    status, graph = hip.hipStreamEndCapture(hip_stream)
    assert verdict is Verdict.WORKS and not status
    runtime.get().check("hipGraphDestroy", hip.hipGraphDestroy(graph))


# -- what code objects say -------------------------------------------------------------------------

GEMM = next(row for row in KERNELS.values() if row.op == "gemm_nt" and row.lds_bytes)
LAST = GEMM.kernarg.fields[-1]


def with_kernarg(**changes: Any) -> Any:
    return dataclasses.replace(GEMM, kernarg=dataclasses.replace(GEMM.kernarg, **changes))


def with_tile(**sizes: int) -> Any:
    return dataclasses.replace(GEMM, tile=Facts(GEMM.name, "tile", {**GEMM.tile, **sizes}))


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (with_kernarg(size=112), "112 kernarg bytes are recorded, its code object says 128"),
        (with_kernarg(size=96), "96 kernarg bytes are recorded, its code object says 128"),
        (
            with_kernarg(fields=(*GEMM.kernarg.fields, ("gamma", 128, 4, "float"))),
            "lists no argument at 128 of 4 bytes, where gamma is recorded",
        ),
        (dataclasses.replace(GEMM, lds_bytes=0), "0 bytes of LDS are recorded"),
        (dataclasses.replace(GEMM, scratch_bytes=16), "16 bytes of scratch are recorded"),
        (
            dataclasses.replace(GEMM, workgroup=(1024, 1, 1)),
            "has 1024 lanes; the loaded kernel takes at most",
        ),
        (dataclasses.replace(GEMM, symbol="stale"), "has no kernel stale"),
        (dataclasses.replace(GEMM, vgpr=GEMM.vgpr + 8), "VGPRs are recorded, its code object"),
        *(
            (with_tile(**{axis: size}), r"tile {.*} is recorded, its code object states \(")
            for axis in ("m", "n")
            for size in (1, GEMM.tile[axis] * 2, 2**24)
        ),
        (with_tile(k=64), r"tile {.*} is recorded, its code object states \("),
    ],
)  # fmt: skip
def test_metadata_that_differs_is_refused_before_a_launch(kernel: Any, text: str) -> None:
    with pytest.raises(ManifestError, match=text):
        runtime.get().load_kernel(kernel)


def test_every_shipped_kernel_says_what_is_recorded() -> None:
    for kernel in KERNELS.values():
        assert len(runtime.get().load_kernel(kernel).offsets) in (1, len(kernel.kernarg.fields))


def test_code_objects_are_of_a_version_that_old_runtimes_read() -> None:
    """Version 6 came with ROCm 6.3: older ones refuse it."""
    assert {kernel.code_object_version for kernel in KERNELS.values()} == {5}
