def test_a_night_is_proven_and_what_a_stranger_receives_is_small(measure) -> None:
    found = {name: figure for (_, name), figure in measure("proofs").items()}
    assert {name: figure.unit for name, figure in found.items()} == {
        "made": "s CPU for 10^7",
        "read": "B/alert",
        "revised, after late alerts": "s CPU for 10^7",
        "a path": "B",
        "compared with another that lacks three": "B for 10^7",
    }
    assert all(figure.value > 0 for figure in found.values())
    assert all(figure.met is not False for figure in found.values() if figure.unit[0] == "B")
