from stampede_bench.peers.versions.reading import OF_AN_ALERT, Item, cells

ITEMS = [Item(number, f"object {number // 2}", 10.5, -3.0) for number in range(200)]


def test_nothing_is_asked_for_twice() -> None:
    """Otherwise a version that keeps what it has read answers out of its memory."""
    found = [*cells(ITEMS, 2, 1000)]
    alerts = [one.alert_id for cell in found if cell.what in OF_AN_ALERT for one in cell.items]
    assert sorted(alerts) == [*range(200)]
    objects = [
        one.object_id for cell in found if cell.what not in OF_AN_ALERT for one in cell.items
    ]
    assert len(objects) == len({*objects}) == 100


def test_each_turn_has_every_kind_one_and_eight_at_a_time() -> None:
    found = [*cells(ITEMS, 2, 5)]
    kinds = {cell.what for cell in found}
    assert len(kinds) == 6
    asked = {(cell.turn, cell.threads, cell.what) for cell in found}
    assert asked == {
        (turn, threads, what)
        for turn, threads in ((-1, 1), (0, 1), (0, 8), (1, 1), (1, 8))
        for what in kinds
    }
    assert all(1 <= len(cell.items) <= 5 for cell in found)


def test_the_paths_are_those_of_every_version() -> None:
    item = Item(17, "ZTF 1/2", 10.5, -3.0)
    assert {cell.path(item) for cell in cells(ITEMS, 1, 1)} == {
        "/v1/alerts/17/cutouts/science",
        "/v1/alerts/17/packet",
        "/v1/alerts/17",
        "/v1/objects/ZTF%201%2F2/lightcurve",
        "/objects/ZTF%201%2F2",
        "/v1/cone?ra=10.5&dec=-3.0&radius=5",
    }
