"""Races and stale reads in device memory: each omission is found, and what is ordered is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.check.checked_launch import Checked, Words, places


def words(count: int, seed: int) -> Words:
    return np.random.default_rng(seed).integers(1 << 8, 1 << 31, count, dtype=np.uint32)


ORDERED = (
    "written_back",
    "system_scope",
    "atomics",
    "written_through",
    "through_then_inv",
    "volatile_data",
    "wait_leaves_a_load",
    "inv_in_loop",
)
# What each variant lacks: a word of the message.
DEFECTS = {
    "no_write_back": "no completed buffer_wbl2",
    "write_back_of_workgroup": "no completed buffer_wbl2",
    "write_back_not_waited": "no s_waitcnt vmcnt",
    "wait_before_write_back": "no completed buffer_wbl2",
    "wait_too_weak": "no completed buffer_wbl2",
    "through_not_waited": "no s_waitcnt vmcnt",
    "through_of_workgroup": "no completed buffer_wbl2",
    "flag_not_through": "no release of the storing workgroup",
    "atomic_not_waited": "no s_waitcnt vmcnt",
    "no_invalidate": "no buffer_inv sc1",
    "invalidate_of_workgroup": "no buffer_inv sc1",
    "invalidate_before_wait": "no buffer_inv sc1",
    "poll_of_workgroup": "no release of the storing workgroup",
    "poll_plain": "no release of the storing workgroup",
    "sc1_load_of_plain_data": "no completed buffer_wbl2",
    "atomics_no_invalidate": "no buffer_inv sc1",
    "relaxed_atomic_data": "no s_waitcnt vmcnt",
}
FLAG_DEFECTS = ("flag_not_through", "poll_of_workgroup", "poll_plain")


def pass_message(checked: Checked, kernel: str, producer: int, **options: int) -> Any:
    data, seen = words(64, 1), np.zeros(64, np.uint32)
    flag = np.zeros(1, np.uint32)
    found, arrays = checked.run("message", kernel, data, flag, seen, producer, **options)
    return found, data, arrays[2]


@pytest.mark.parametrize("producer", [0, 1])
@pytest.mark.parametrize("kernel", ORDERED)
def test_ordered_message(checked: Checked, kernel: str, producer: int) -> None:
    found, _, seen = pass_message(checked, kernel, producer)
    assert found == []
    np.testing.assert_array_equal(seen, 4 * np.arange(64) + 1)


@pytest.mark.parametrize("producer", [0, 1])
@pytest.mark.parametrize("kernel", DEFECTS)
def test_broken_message(checked: Checked, kernel: str, producer: int) -> None:
    found, before, seen = pass_message(checked, kernel, producer)
    table = places("message")
    flag = kernel in FLAG_DEFECTS
    if flag and producer == 1:  # the flag was polled before it was raised: the same race again
        (mirrored,) = [f for f in found if f["kind"] == "global_race"]
        assert mirrored["pc"] == table[f"raise.{kernel}"]
        assert mirrored["producer_pc"] == table[f"poll.{kernel}"]
        found.remove(mirrored)
    assert [f["kind"] for f in found] == ["stale_read"], found
    (finding,) = found
    assert finding["pc"] == table[f"{'poll' if flag else 'use'}.{kernel}"]
    assert finding["producer_pc"] == table[f"{'raise' if flag else 'store'}.{kernel}"]
    assert DEFECTS[kernel] in finding["message"]
    assert finding["workgroup"] == [1 - producer, 0, 0]
    # Stale data; a stale flag is polled until the cache line goes, and then all is well.
    expected = 4 * np.arange(64) + 1 if flag else before
    np.testing.assert_array_equal(seen, expected)


def value(i: npt.ArrayLike) -> Words:
    """What compiled.hip writes."""
    return (np.asarray(i).astype(np.uint64) * 2654435761 + 12345).astype(np.uint32)


SCHEDULES: tuple[dict[str, int], ...] = (
    {},
    {"threads": 2},
    {"threads": 2, "seed": 3},
    {"threads": 1, "seed": 7, "quantum": 3},
)
MESSAGES = (
    "release_acquire_agent",
    "release_acquire_system",
    "seq_cst_agent",
    "rmw_agent",
    "rmw_acq_rel_system",
    "fences_agent",
    "fences_system",
    "fences_agent_global_only",
    "fence_by_leader",
    "half_a_flag",
    "volatile_flag",
    "relaxed_data",
    "flag_in_the_data",
)


def silent(checked: Checked, kernel: str, *arguments: Words | int, **options: int) -> list[Words]:
    """Arrays after a launch in which nothing may be found."""
    found, arrays = checked.run("compiled", kernel, *arguments, lanes=256, **options)
    assert found == [], found
    return arrays


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kernel", MESSAGES)
def test_compiled_message(checked: Checked, kernel: str, schedule: dict[str, int]) -> None:
    for producer in (0, 2):
        start = words(512, 1)
        start[1::2] &= 0x7FFFFFF0  # no pair is flagged already
        arrays = silent(
            checked, kernel, start, np.zeros(2, np.uint32), np.zeros(768, np.uint32), producer,
            workgroups=3, **schedule,
        )  # fmt: skip
        seen = np.delete(arrays[2].reshape(3, 256), producer, axis=0)
        np.testing.assert_array_equal(seen, [value(np.arange(256)[::-1])] * 2)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kernel", ["waves_by_flag", "waves_by_counter"])
def test_compiled_waves(checked: Checked, kernel: str, schedule: dict[str, int]) -> None:
    for producer in (0, 3):
        arrays = silent(
            checked, kernel, words(512, 2), np.zeros(2, np.uint32), np.zeros(512, np.uint32),
            producer, **schedule,
        )  # fmt: skip
        seen = np.delete(arrays[2].reshape(2, 4, 64), producer, axis=1)
        expected = np.delete(value(np.arange(256)[::-1]).reshape(4, 64), producer, axis=0)
        np.testing.assert_array_equal(seen, [expected] * 2)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_compiled_synchronisation(checked: Checked, schedule: dict[str, int]) -> None:
    lane = np.arange(256)
    zeros = np.zeros(1, np.uint32)

    rounds = 605  # more loads than get an event of their own
    arrays = silent(
        checked, "waves_by_barrier", words(512, 3), zeros, np.zeros(512, np.uint32), rounds,
        **schedule,
    )  # fmt: skip
    last = value(rounds - 1) + ((255 - lane - 64 * (rounds - 1)) % 256).astype(np.uint32)
    np.testing.assert_array_equal(arrays[2].reshape(2, 256), [last] * 2)

    arrays = silent(
        checked, "relay", words(5 * 256, 4), zeros, np.zeros(5 * 256, np.uint32), 77,
        workgroups=5, **schedule,
    )  # fmt: skip
    expected = [value(lane)] * 2 + [
        value(255 - lane) + np.uint32(77 * before) for before in range(3)
    ]
    np.testing.assert_array_equal(arrays[2].reshape(5, 256), expected)

    partial = value(np.arange(6 * 256)).reshape(6, 256)
    total = np.add.reduce(partial, axis=0, dtype=np.uint32)[::-1]
    for kernel in ("last_arrival", "last_arrival_fenced"):
        arrays = silent(
            checked, kernel, words(6 * 256, 5), zeros, np.zeros(256, np.uint32), 6,
            workgroups=6, **schedule,
        )  # fmt: skip
        np.testing.assert_array_equal(arrays[2], total)
        assert arrays[1][0] == 0
    arrays = silent(
        checked, "accumulate", np.zeros(256, np.uint32), zeros, np.zeros(256, np.uint32), 6,
        workgroups=6, **schedule,
    )  # fmt: skip
    np.testing.assert_array_equal(arrays[2], total)

    arrays = silent(
        checked, "grid_barrier", words(4 * 256, 6), zeros, np.zeros(12 * 256, np.uint32), 4,
        workgroups=4, **schedule,
    )  # fmt: skip
    for phase, rows in enumerate(arrays[2].reshape(3, 4, 256)):
        for me, row in enumerate(rows):
            writer = (me + 1) % 4  # of what `me` reads
            np.testing.assert_array_equal(row, value(phase * 1024 + writer * 256 + 255 - lane))

    arrays = silent(
        checked, "spin_lock", np.zeros(2, np.uint32), zeros, zeros, 5, workgroups=4, **schedule
    )
    assert arrays[0][0] == np.uint32(5 * int(value(range(4)).astype(np.uint64).sum()) % (1 << 32))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_compiled_sharing(checked: Checked, schedule: dict[str, int]) -> None:
    zero = np.zeros(1, np.uint32)
    arrays = silent(
        checked, "histogram", zero, zero, np.zeros(256, np.uint32), 1000, workgroups=3, **schedule
    )
    counts = np.bincount(value(np.arange(3000)) >> 24, minlength=256)
    np.testing.assert_array_equal(arrays[2], counts)
    sums = silent(
        checked, "atomic_by_loop", zero, zero, np.zeros(4, np.uint32), 8, workgroups=3, **schedule
    )[2]
    np.testing.assert_array_equal(sums.view(np.float16), np.full(8, 96, np.float16))
    arrays = silent(
        checked, "tickets", zero, zero, np.zeros(9 * 256, np.uint32), 9, workgroups=4, **schedule
    )
    np.testing.assert_array_equal(arrays[2], value(np.arange(9 * 256)))
    halves = silent(checked, "halves", zero, zero, words(256, 7), 200, workgroups=2, **schedule)[
        2
    ].view(np.uint16)
    np.testing.assert_array_equal(halves[:400], value(np.arange(400)).astype(np.uint16))
    octets = silent(checked, "bytes", zero, zero, words(256, 8), 200, workgroups=4, **schedule)[
        2
    ].view(np.uint8)
    np.testing.assert_array_equal(octets[:800], value(np.arange(800)).astype(np.uint8))
    start = words(256, 9)
    silent(checked, "halves_in_place", zero, zero, start, 256, workgroups=2, **schedule)
    arrays = silent(
        checked, "uniform_data", np.full(1, 5, np.uint32), words(1, 10), zero.copy(),
        np.zeros(512, np.uint32), 0, **schedule,
    )  # fmt: skip
    np.testing.assert_array_equal(arrays[3][256:], value(1) + np.uint32(5))


# Kernel, finding, shape of the launch, words of the message.
PAIRS = {
    "same_byte": ("global_race", 2, "overwrites"),
    "same_value": ("same_value_race", 2, "gives the same value to"),
    "read_next": ("global_race", 2, "reads in the same launch"),
    "read_previous": ("stale_read", 2, "no release of the storing workgroup"),
    "cleared_counter": ("global_race", 2, "an atomic updates"),
    "guess": ("stale_read", 2, "no release of the storing workgroup"),
    "relaxed_release": ("stale_read", 2, "buffer_wbl2 sc1"),
    "relaxed_acquire": ("stale_read", 2, "no buffer_inv sc1"),
    "workgroup_scope": ("stale_read", 2, "no release of the storing workgroup"),
    "no_barrier_before_release": ("stale_read", 2, "no s_barrier between"),
    "no_barrier_after_acquire": ("stale_read", 2, "no release of the storing workgroup"),
    "waves_read": ("global_race", 1, "no s_barrier orders the two waves"),
    "waves_overwrite": ("global_race", 1, "no s_barrier orders the two waves"),
    "waves_write": ("global_race", 1, "no s_barrier orders the two waves"),
}


@pytest.mark.parametrize("kernel", PAIRS)
def test_defect_and_repaired(checked: Checked, kernel: str) -> None:
    kind, workgroups, message = PAIRS[kernel]
    for repaired in (0, 1):
        arrays = (words(1024, 1), np.zeros(1, np.uint32), words(1024, 2))
        found, _ = checked.run(
            "defects", kernel, *arrays, repaired, workgroups=workgroups, lanes=256
        )
        if repaired:
            assert found == []
        else:
            assert {f["kind"] for f in found} == {kind}, found
            assert any(message in f["message"] for f in found), found


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ("split_k", None),
        ("split_k_by_leader", None),
        ("split_k_through", None),
        ("split_k_no_write_back", "no completed buffer_wbl2"),
        ("split_k_no_wait", "no s_waitcnt vmcnt"),
        ("split_k_leader_no_wait", "no completed buffer_wbl2"),
        ("split_k_through_no_wait", "no s_waitcnt vmcnt"),
        ("split_k_no_acquire", "no buffer_inv sc1"),
    ],
)
@pytest.mark.parametrize("seed", [0, 5])
def test_split_k(checked: Checked, kernel: str, message: str | None, seed: int) -> None:
    data = words(5 * 256, 1)
    arrays = (data, np.zeros(1, np.uint32), np.zeros(256, np.uint32))
    found, results = checked.run("defects", kernel, *arrays, 5, workgroups=5, lanes=256, seed=seed)
    new = 4 * np.arange(5 * 256, dtype=np.uint32).reshape(5, 256)
    if message is None:
        assert found == []
        np.testing.assert_array_equal(results[2], new.sum(axis=0))
        return
    (finding,) = found
    assert finding["kind"] == "stale_read"
    assert finding["producer_pc"] == places("defects")[f"store.{kernel}"]
    assert message in finding["message"]
    # The last one to arrive sees its own partial sums, and of the others the old contents.
    last = finding["workgroup"][0]
    old = data.reshape(5, 256).copy()
    old[last] = new[last]
    np.testing.assert_array_equal(results[2], old.sum(axis=0, dtype=np.uint32))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ("scalar_ordered", None),
        ("scalar_not_waited", "not known to be complete"),
        ("scalar_not_invalidated", "no s_dcache_inv"),
        ("scalar_invalidated_early", "no s_dcache_inv"),
    ],
)
def test_scalar_load(checked: Checked, kernel: str, message: str | None) -> None:
    data = words(1, 1)
    found, results = checked.run(
        "defects", kernel, data, data, np.zeros(1, np.uint32), 0, workgroups=1, lanes=64
    )
    if message is None:
        assert found == []
        assert results[2][0] == 7
    else:
        (finding,) = found
        assert finding["kind"] == "stale_read"
        assert finding["pc"] == places("defects")[f"use.{kernel}"]
        assert message in finding["message"]
        assert results[2][0] == data[0]


def test_stale_values(checked: Checked) -> None:
    data = words(256, 1)
    found, results = checked.run(
        "defects", "stale_values", data, data, np.zeros(1024, np.uint32), 0, lanes=256
    )
    assert {f["kind"] for f in found} == {"stale_read"}
    assert len(found) == 12  # of 12 loads
    octets = np.append(data[:65], 0).astype(np.uint32).view(np.uint8)
    lane = 4 * np.arange(64)

    def datum(kind: str, offset: int) -> npt.NDArray[Any]:
        rows = [octets[lane + offset + i] for i in range(np.dtype(kind).itemsize)]
        return np.ascontiguousarray(np.stack(rows, axis=1)).view(kind)[:, 0]

    def low(values: npt.NDArray[Any], shift: int = 0) -> Words:
        return (values.astype(np.int64) & 0xFFFF).astype(np.uint32) << np.uint32(shift)

    expected = [
        datum("u1", 0).astype(np.uint32),
        datum("i1", 1).astype(np.int32).view(np.uint32),
        datum("u2", 2).astype(np.uint32),
        datum("i2", 2).astype(np.int32).view(np.uint32),
        datum("u4", 4),
        low(datum("u1", 3)),
        low(datum("u1", 1), 16),
        low(datum("i1", 3)),
        low(datum("i1", 0), 16),
        low(datum("u2", 2)),
        low(datum("u2", 0), 16),
    ]
    # Sparse lanes read beyond the 64 dwords: only what the first 62 lanes read is checked.
    out = results[2][: 11 * 64].reshape(11, 64)
    for row, want in zip(out, expected, strict=True):
        np.testing.assert_array_equal(row[:62], want[:62])
    wide = results[2][704:960].reshape(64, 4).view(np.uint8)
    for i in range(60):
        np.testing.assert_array_equal(wide[i], octets[4 * i + 1 : 4 * i + 17])
    found, results = checked.run(
        "defects", "stale_in_lds", data, data, np.zeros(64, np.uint32), 0, lanes=256
    )
    assert [f["kind"] for f in found] == ["stale_read"]
    np.testing.assert_array_equal(results[2], data[:64])
