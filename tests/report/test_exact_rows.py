"""Rows of a report from made-up answers: what is right, what is wrong, and the words for both."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from amdattn.device import manifest, runtime
from amdattn.op.comparison import judge
from amdattn.op.executor import RunnablePlan
from amdattn.ops.attention import cases as attention
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.gemm import cases as gemm
from amdattn.ops.gemm.problem import GemmProblem
from amdattn.report import document, facts, kernels, probes, worker
from amdattn.report.rows import ABSENT, FAILED, INFO, OK
from tests.support.shipped import shipped

# -- the clock -------------------------------------------------------------------------------------


def clock_rows(monkeypatch: pytest.MonkeyPatch, engine: int, reference_ticks: int) -> list[Any]:
    """What a GPU's clocks say of a launch that took 1000 us of this CPU's clock."""
    times = np.array([[7, 9, 7 + engine, 9 + reference_ticks]], np.int64)
    now = iter((5.0, 5.001))
    micro = SimpleNamespace(launch=lambda *_, **__: None, times=lambda _: times)
    monkeypatch.setattr(probes, "_is_virtual", bool)
    monkeypatch.setattr(probes, "Micro", lambda: _Entered(micro))
    monkeypatch.setattr(probes.time, "perf_counter", lambda: next(now))
    return list(probes.clock())


class _Entered:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __enter__(self) -> Any:
        return self.value

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("engine", "ticks", "why"),
    [
        (168000, 8000, ""),  # 80 us at 2.1 GHz
        (99000, 99000, ""),  # 990 us of the 1000 at 0.1 GHz and 1 tick in 99000 more
        (0, 8000, "s_memtime +0, s_memrealtime +8000"),
        (168000, 0, "s_memtime +168000, s_memrealtime +0"),
        (-5, 8000, "s_memtime +-5, s_memrealtime +8000"),
        (2_100_000, 101_000, "the clock of 100 MHz says 1010 us of a launch that took 1000 us"),
        (7999, 8000, "0.100 GHz by s_memtime and s_memrealtime"),
        (400_000, 8000, "5.000 GHz by s_memtime and s_memrealtime"),
        (800_000, 8000, "10.000 GHz by s_memtime and s_memrealtime"),
    ],
)
def test_clocks_that_cannot_be(
    monkeypatch: pytest.MonkeyPatch, engine: int, ticks: int, why: str
) -> None:
    row, *_ = clock_rows(monkeypatch, engine + (why == ""), ticks)
    assert row.outcome == (FAILED if why else OK)
    assert why in row.text


@pytest.mark.parametrize(
    ("spans", "together", "wrong"),
    [
        ([(10, 50), (20, 60)], True, 0),
        ([(10, 50), (50, 60)], False, 0),
        ([(40, 50), (10, 41)], True, 0),
        ([(10, 10), (20, 60)], False, 1),
        ([(10, 9), (20, 19)], False, 2),
    ],
)
def test_spans_of_two_streams(
    monkeypatch: pytest.MonkeyPatch, spans: list[tuple[int, int]], together: bool, wrong: int
) -> None:
    """The clock of each workgroup stands before and behind what it waits for."""
    given = iter(spans)

    def words(self: Any) -> tuple[Any, str]:
        begin, end = next(given)
        found = np.zeros((probes._WORKGROUPS, 4), np.uint64)
        found[:, 1], found[:, 2] = begin, end
        found[:, 3] = 999  # another clock
        return found.view(np.uint32).reshape(-1), ""

    monkeypatch.setattr(probes.Buffer, "words", words)
    *streams, row = probes.two_streams()
    assert [one.outcome for one in streams].count(FAILED) == wrong
    assert (row.outcome, row.data) == (INFO, {"together": together})


# -- kernels against float64 -----------------------------------------------------------------------


def test_a_row_of_every_kernel_and_of_those_that_ran_besides() -> None:
    one, two, merge = (row for row in manifest.kernels()[:3])
    foreign = dataclasses.replace(merge, symbol="another", arch="gfx950")

    def case(row: Any, *sizes: int, **options: Any) -> kernels.OfKernel:
        made = gemm.GemmCase(GemmProblem(*sizes, **options))
        return kernels.OfKernel(gemm.OPERATION, made, row)

    cases = [case(one, 1, 2, 3), case(two, 4, 5, 6, bias=True), case(two, 7, 8, 9)]
    cases += [case(foreign, 1, 1, 1)]
    given = {
        "m1 n2 k3": kernels.Held(0.25, "", (one.name,)),
        "m4 n5 k6 bias": kernels.Held(0.75, "", (two.name, "b", "a")),
        "m7 n8 k9": kernels.Held(0.5, "", (two.name,)),
    }
    first, second, others, foreigners = kernels.run(cases, lambda case: given[str(case)])
    assert (first.what, first.outcome) == (one.name, OK)
    assert first.text == "25% of the allowed error, 1 case, guard zones untouched"
    assert second.text == "75% of the allowed error, 2 cases, guard zones untouched"
    assert second.data == {"share": 0.75, "cases": ["m4 n5 k6 bias", "m7 n8 k9"]}
    assert (others.outcome, others.text, others.data) == (OK, "a, b", {"kernels": ["a", "b"]})
    assert (foreigners.what, foreigners.outcome) == ("kernels for gfx950", OK)
    assert foreigners.text == "1, not run: the device is gfx942"
    (alone,) = kernels.run(cases[3:], lambda case: given[str(case)])
    assert (alone.outcome, alone.text) == (FAILED, foreigners.text)
    given["m4 n5 k6 bias"] = kernels.Held(math.inf, "is off", (two.name,))
    rows = list(kernels.run(cases[:3], lambda case: given[str(case)]))
    assert [row.outcome for row in rows] == [OK, FAILED]  # the case behind it is not run
    assert rows[1].text == "m4 n5 k6 bias: is off"


@pytest.mark.parametrize(
    ("dtype", "mode", "rounding"),
    [("bfloat16", "rtne", 2**-8), ("bfloat16", "rtz", 2**-7), ("float16", "rtne", 2**-11)],
)
@pytest.mark.parametrize("softcap", [0.0, 3.0])
def test_the_error_that_is_allowed(dtype: str, mode: str, rounding: float, softcap: float) -> None:
    """Of one key everything is known: o is v, and the sum of p |v| is |v|."""
    problem = AttentionProblem(
        1, 2, 1, 1, 1, 64, dtype=dtype, softcap=softcap, round_mode=mode, return_lse=True
    )
    q, k, v = (np.zeros((1, n, 1, 64)) for n in (2, 1, 1))
    q[0, 0, 0, 0], q[0, 1, 0, 0], k[0, 0, 0, 0] = 3.0, 6.0, 4.0  # norms 6 and 4
    v[...] = -2.0
    case = attention.AttentionCase(problem)
    must = attention.OPERATION.reference(case, {"q": q, "k": k, "v": v})
    expected, lse = must["o"].values, must["lse"].values
    assert (expected == -2).all()
    reach = 6 * 4 / 8 + 4 * softcap
    absolute = 2.0**-23 if dtype == "float16" else 2.0**-120
    allowed = (3 * rounding + 2**-20 * (1 + reach)) * 2 + absolute
    allowed_lse = 2e-6 * (1 + abs(lse)) + 2**-22 * reach
    for share in (0.0, 0.5, 0.99, 1.01):
        got, off = expected.copy(), lse.copy()
        got[0, 1, 0, 5] += share * allowed
        off[0, 0, 1] -= share * allowed_lse[0, 0, 1]
        for name, x in (("o", got), ("lse", off)):
            found = judge(x, must[name].values, must[name].tolerance, 0.0)
            assert found.share == pytest.approx(share, abs=1e-6) and bool(found) == (share <= 1)


# -- the document, facts and the worker ------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "data", "told"),
    [
        (OK, {}, True),
        (INFO, {}, True),
        (ABSENT, {}, False),
        (FAILED, {}, True),
        (OK, {"shape": 1}, False),
        (INFO, {"micro": 1}, False),
        (FAILED, {"shape": 1}, True),
    ],
)
@pytest.mark.parametrize("error", ["", "why"])
@pytest.mark.parametrize("name", ["device", "gemm"])
def test_rows_that_no_other_table_has(
    outcome: str, data: dict[str, Any], told: bool, error: str, name: str
) -> None:
    step = {
        "name": name,
        "title": "a title",
        "status": "ok",
        "error": error,
        "rows": [{"what": "this row", "outcome": outcome, "text": "said", "data": data}],
    }
    text = "\n".join(document._of_step(step))
    assert ("| this row |" in text) == (told and name != "device")
    assert ("### a title" in text) == bool(error or (told and name != "device"))
    assert ("ok: why" in text) == bool(error)


@pytest.mark.parametrize("status", [None, 0, 1])
def test_facts_of_the_driver(monkeypatch: pytest.MonkeyPatch, status: int | None) -> None:
    def call(text: Any, nbytes: int, ordinal: int) -> int:
        assert (nbytes, ordinal) == (64, 3)
        text.value = b"0000:0c:00.0"
        return int(status or 0)

    library = SimpleNamespace() if status is None else SimpleNamespace(hipDeviceGetPCIBusId=call)
    forgotten: list[int] = []
    bound = SimpleNamespace(
        choice=SimpleNamespace(library="x.so"),
        ordinal=3,
        hip=SimpleNamespace(hipGetLastError=lambda: forgotten.append(1)),
    )
    monkeypatch.setattr(facts.ctypes, "CDLL", lambda _: library)
    monkeypatch.setattr(facts, "driver_facts", lambda bus_id: {"bus": bus_id})
    found = facts._of_driver(bound)  # type: ignore[arg-type]
    if status == 0:
        assert found == {"bus": "0000:0c:00.0"} and not forgotten
    else:
        assert found == {"driver's view": "hipDeviceGetPCIBusId failed"} and forgotten == [1]


@pytest.mark.parametrize("fails", [False, True])
def test_the_worker_asks_whether_the_device_answers(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    def synchronize() -> None:
        if fails:
            raise RuntimeError("hipErrorLaunchFailure")

    monkeypatch.setattr(runtime, "synchronize", synchronize)
    assert worker._usable() is not fails


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('NAME="x"\nPRETTY_NAME="Ubuntu 24.04 LTS"\nPRETTY_NAME=other\n', "Ubuntu 24.04 LTS"),
        ("PRETTY_NAME=Alpine\n", "Alpine"),
        ("", "unknown"),
    ],
)
def test_the_system_s_name(monkeypatch: pytest.MonkeyPatch, text: str, name: str) -> None:
    monkeypatch.setattr(facts, "_read", lambda _: text)
    assert facts._os_name() == name


def test_the_processor_and_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts.os, "cpu_count", lambda: 3)
    monkeypatch.setattr(facts, "_read", lambda _: "model name\t: A 1\nmodel name\t: B 2")
    assert facts._processor() == "A 1, 3 threads"
    monkeypatch.setattr(facts, "_read", lambda _: "")
    assert facts._processor() == "unknown, 3 threads" and facts._rocm() == "no ROCm folder found"
    asked = []
    monkeypatch.setattr(facts, "_read", lambda path: (asked.append(str(path)), "7.1.0")[1])
    monkeypatch.setenv("ROCM_HOME", "/home-of-it")
    monkeypatch.delenv("ROCM_PATH", raising=False)
    assert facts._rocm() == "7.1.0"
    monkeypatch.setenv("ROCM_PATH", "/path-of-it")
    assert facts._rocm() == "7.1.0"
    assert asked == ["/home-of-it/.info/version", "/path-of-it/.info/version"]
    found = facts._properties("simd_count 304\n  name  AMD Instinct \nalone\n")
    assert found == {"simd_count": "304", "name": "AMD Instinct"}


@pytest.mark.parametrize("split", [1, 3])
def test_counters_that_are_not_zero_again_fail(monkeypatch: pytest.MonkeyPatch, split: int) -> None:
    """Of a product in parts: they are at the begin of the caller's workspace."""
    (row,) = (row for row in shipped() if row.name == "gemm_nt_bf16_m16n16k1")
    problem = GemmProblem(5, 18, 840, split_k=split)
    case = kernels.OfKernel(gemm.OPERATION, gemm.GemmCase(problem, kernel=row.name), row)
    held = kernels.held(case)
    assert held.wrong == "" and 0 < held.share < 1 and held.kernels == (row.name,)
    original = RunnablePlan.execute
    given: list[Any] = []

    def run(self: Any, *args: Any) -> Any:
        workspace = args[-1]
        given.append(workspace)
        found = original(self, *args)
        if workspace is not None:
            one = np.ones(4, np.uint8)
            runtime.get().upload(workspace.address, one.ctypes.data, one.nbytes)
        return found

    monkeypatch.setattr(RunnablePlan, "execute", run)
    held = kernels.held(case)
    assert (given[0] is not None) == (split > 1)
    wrong = "the counters of the workspace are not 0 again"
    assert (held.wrong, held.share) == ((wrong, math.inf) if split > 1 else ("", held.share))


def test_operations_of_a_product() -> None:
    from amdattn.report.timings import Product

    assert Product(3, 5, 7).flops == 2 * 3 * 5 * 7 and str(Product(3, 5, 7)) == "gemm 3x5x7"


@pytest.mark.parametrize("splits", [1, 2])
def test_a_write_around_the_workspace_fails(monkeypatch: pytest.MonkeyPatch, splits: int) -> None:
    (row,) = (row for row in shipped() if row.name == "attn_fwd_bf16_d64_rtne")
    made = attention.case(20, 300, head_dim=64, num_splits=splits, return_lse=True, kernel=row.name)
    case = kernels.OfKernel(attention.OPERATION, made, row)
    held = kernels.held(case)
    assert held.wrong == "" and len(held.kernels) == splits
    sizes = []
    original = kernels.Guarded.taken

    def taken(self: Any, whole: bool = True) -> Any:
        sizes.append((self._dtype.itemsize, whole))
        if self._dtype.itemsize == 1:
            bits = self._array.numpy().copy()
            bits[0] ^= 1
            self._array = kernels.asarray(bits)
        return original(self, whole)

    monkeypatch.setattr(kernels.Guarded, "taken", taken)
    held = kernels.held(case)
    assert sizes == [*([(1, False)] * (splits > 1)), (2, True), (4, True)]
    assert held.wrong == ("1 elements around the result were written" if splits > 1 else "")


def test_the_model_s_version_is_of_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    from amdattn.bench.record import model_version

    choice = runtime.get().choice
    digest = hashlib.sha256(Path(choice.library).read_bytes()).hexdigest()
    assert len(model_version()) == 12 and digest.startswith(model_version())
    gpu = SimpleNamespace(choice=SimpleNamespace(kind="gpu", library=choice.library))
    monkeypatch.setattr(runtime, "get", lambda: gpu)
    assert model_version() == ""
