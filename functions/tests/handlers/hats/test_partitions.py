"""Pixels of a HATS catalogue follow the counts of objects, and margins have what is near them."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from stampede.alerts.healpix import cells_of
from stampede.handlers.hats.partitions import FINEST, INDEX_ORDER, MARGIN, Leaves

DENSE = 100
"""How much denser a plane is than a pole."""


def sky(seed: int, objects: int) -> np.ndarray:
    """Positions of which most are within 2 degrees of a great circle: degrees, (n, 2)."""
    chosen = np.random.default_rng(seed)
    ra = chosen.uniform(0, 360, objects)
    dec = np.degrees(np.arcsin(chosen.uniform(-1, 1, objects)))
    share = np.sin(np.radians(2.0))  # of the sphere
    crowded = chosen.random(objects) < DENSE * share / (1 + (DENSE - 1) * share)
    return np.column_stack([ra, np.where(crowded, chosen.uniform(-2, 2, objects), dec)])


def cells(places: np.ndarray) -> np.ndarray:
    return cells_of(places[:, 0], places[:, 1], INDEX_ORDER)


@given(st.integers(0, 1000), st.integers(1, 3000), st.integers(1, 300))
def test_each_object_has_one_pixel_and_none_has_too_many(seed, objects, most) -> None:
    found = cells(sky(seed, objects))
    leaves = Leaves(found, most)
    of = leaves.of(found)
    assert (found >> 2 * (INDEX_ORDER - of[:, 0]) == of[:, 1]).all()
    distinct, counts = np.unique(of, axis=0, return_counts=True)
    assert ((counts <= most) | (distinct[:, 0] == FINEST)).all()
    assert {tuple(each) for each in distinct} == set(
        zip(leaves.orders.tolist(), leaves.numbers.tolist(), strict=True)
    )
    # A pixel is no smaller than it must be: its parent has too many.
    for order, number in distinct[distinct[:, 0] > 0]:
        assert (found >> 2 * (INDEX_ORDER - order + 1) == number >> 2).sum() > most


def test_a_plane_that_is_denser_has_smaller_pixels() -> None:
    places = sky(1, 100_000)
    orders = Leaves(cells(places), 500).of(cells(places))[:, 0]
    plane, pole = orders[abs(places[:, 1]) < 1], orders[abs(places[:, 1]) > 60]
    assert np.median(plane) >= np.median(pole) + 3


@given(st.integers(0, 1000), st.integers(1, 200), st.integers(1, 20))
def test_new_objects_change_only_the_pixels_that_they_fill(seed, objects, most) -> None:
    places = sky(seed, objects + 5)
    before, after = Leaves(cells(places[:objects]), most), Leaves(cells(places), most)
    fresh = cells(places[objects:])
    touched = {tuple(each) for each in [*before.of(fresh).tolist(), *after.of(fresh).tolist()]}
    pixels = [
        set(zip(leaves.orders.tolist(), leaves.numbers.tolist(), strict=True))
        for leaves in (before, after)
    ]
    for gone in pixels[0] - pixels[1]:
        assert gone in touched
    for new in pixels[1] - pixels[0]:
        inside = [new[1] >> 2 * (new[0] - order) == n for order, n in touched if order <= new[0]]
        assert any(inside)


@given(
    st.integers(0, 1000),
    st.sampled_from(
        [(45.0, 0.0), (0.0, 41.8103149), (90.0, -41.8103149), (10.0, 90.0), (0.0, 0.0)]
    ),
    st.sampled_from([0.0005, 0.003, 0.02]),
)
def test_what_is_within_the_margin_of_a_pixel_is_in_it(seed, centre, width) -> None:
    """About edges and corners of base pixels: seven neighbours meet at two of these."""
    chosen = np.random.default_rng(seed)
    ra, dec = centre
    offsets = chosen.normal(0, width, (200, 2))
    places = np.column_stack(
        [
            (ra + offsets[:, 0] / max(np.cos(np.radians(dec)), 1e-4)) % 360,
            np.clip(dec + offsets[:, 1], -90, 90),
        ]
    )
    leaves = Leaves(cells(places), 10)
    rows, margins = leaves.margins(cells(places))
    there = {(row, *leaf) for row, leaf in zip(rows.tolist(), margins.tolist(), strict=True)}
    assert len(there) == len(rows)
    own = leaves.of(cells(places))
    assert not any((n, *leaf) in there for n, leaf in enumerate(own.tolist()))
    # Of each object points on the circle about it: their pixels have it in their margins.
    for angle in np.radians(np.arange(0, 360, 30)):
        north, east = MARGIN / 3600 * np.cos(angle), MARGIN / 3600 * np.sin(angle)
        across = np.cos(np.radians(np.clip(places[:, 1] + north, -89.99, 89.99)))
        around = np.column_stack([places[:, 0] + east / across, places[:, 1] + north])
        usable = abs(around[:, 1]) < 89.9
        near = leaves.of(cells(np.column_stack([around[:, 0] % 360, around[:, 1].clip(-90, 90)])))
        for n in np.flatnonzero(usable & (near != own).any(axis=1)):
            assert (n, *near[n].tolist()) in there
