"""Orders of workgroups, and the replay of what they load."""

from __future__ import annotations

import pytest

from benchmarks.performance_model.grid_order import K_STEP, ORDERS, TILE, Order, replay


@pytest.mark.parametrize("order", ORDERS, ids=lambda o: f"{o.n} {o.name}")
def test_every_tile_has_one_workgroup(order: Order) -> None:
    tiles = range(order.n // TILE)
    assert sorted(order.places()) == [(row, column) for row in tiles for column in tiles]


def test_chunks_go_to_one_xcd_and_windows_are_walked_down() -> None:
    """Of 16 x 16 tiles each XCD gets four windows of 4 x 4 in each half of a row of windows."""
    order = Order(16 * TILE, "", 4, 16)
    places = order.places()
    assert places[0::8][:5] == [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1)]
    assert {places[i] for i in range(3, 128, 8)} == {
        (row, column) for row in range(4) for column in range(12, 16)
    }


def test_what_is_loaded_once_and_what_again() -> None:
    """Eight workgroups of a row on as many XCDs: A is in the MALL after the first, B is never."""
    order = Order(8 * TILE, "", 0, 0)
    steps = order.n // K_STEP
    hits = replay(order, 0)
    # Each XCD has a column of eight tiles and walks down it all at once: B from the L2 but once.
    assert hits.l2 == pytest.approx(7 / 16)
    # Of 9 loads of an XCD, 8 of A and one of B, all but the first XCD find A's in the MALL.
    assert hits.llc == pytest.approx(7 * 8 / (8 * 9))
    assert hits.hbm_gb == pytest.approx(16 * steps * 2 * TILE * K_STEP / 1e9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "order", [o for o in ORDERS if o.n == 14592 and o.l2], ids=lambda o: o.name
)
def test_published_hit_rates(order: Order) -> None:
    hits = replay(order, 0)
    assert order.l2 is not None and order.llc is not None
    assert hits.l2 == pytest.approx(order.l2, abs=0.065)
    assert hits.llc == pytest.approx(order.llc, abs=0.03)
