"""Compares decoded alerts with the oracle."""

import math

from stampede.alerts.batch_decoder import BatchDecoder
from stampede.alerts.batch_parts import Decoded
from stampede.alerts.columns import CUTOUT, DETECTION
from stampede.alerts.isolation import Isolation
from stampede.images.fits import unpack
from stampede_local.demo import oracle


def assert_as_the_oracle(decoder: BatchDecoder, messages: list[bytes]) -> None:
    """The decoder finds in a batch what the oracle finds in each of its messages."""
    images, points = assert_once_as_twice(decoder, messages)
    assert images.faults == points.faults == [None] * len(messages)
    assert images.rows.schema.equals(CUTOUT)
    assert points.rows.schema.equals(DETECTION)

    expected = [
        (oracle.head(m)["alert_id"], kind, fits)
        for m in messages
        for kind, fits in oracle.cutouts(m).items()
    ]
    found = [
        (row["alert_id"], row["kind"], row["fits"] and unpack(row["fits"]))
        for row in images.rows.to_pylist()
    ]
    by_image = {(alert, kind): fits for alert, kind, fits in found}
    assert len(found) == len(by_image) == len(expected)
    assert by_image == {(alert, kind): fits for alert, kind, fits in expected}

    expected_points = [row for message in messages for row in oracle.detections(message)]
    assert_same_rows(points.rows.to_pylist(), expected_points)


def assert_once_as_twice(
    decoder: BatchDecoder, messages: list[bytes], isolation: Isolation = Isolation.FAST
) -> tuple[Decoded, Decoded]:
    """Messages that are read once for both tables give what they give for each; returns these."""
    images = decoder.cutouts(messages, isolation)
    points = decoder.detections(messages, isolation)
    both = decoder.alerts(messages, isolation)
    for once, alone in zip(both, (images, points), strict=True):
        assert repr(once.rows.to_pylist()) == repr(alone.rows.to_pylist())  # a NaN is not itself
        assert faults_of(once) == faults_of(alone)
        assert once.origins == alone.origins
        assert repr([each.table.to_pylist() for each in once.raw]) == repr(
            [each.table.to_pylist() for each in alone.raw]
        )
        assert [each.images for each in once.groups] == [each.images for each in alone.groups]
    return images, points


def faults_of(decoded: Decoded) -> list[tuple[str, str] | None]:
    """The name and message of each message's fault."""
    return [fault and (fault.name, fault.message) for fault in decoded.faults]


def assert_same_rows(found: list[dict], expected: list[dict]) -> None:
    names = ("object_id", "forced", "limit", "source_id", "processed_mjd", "mjd", "visit", "band")

    def order(row: dict) -> list:
        return [(row[name] is None, row[name]) for name in names]

    found, expected = sorted(found, key=order), sorted(expected, key=order)
    assert len(found) == len(expected)
    for row, want in zip(found, expected, strict=True):
        assert row.keys() == want.keys()
        for name, value in row.items():
            if isinstance(value, float) and want[name] is not None:
                # The order of operations differs, so the last bits may.
                assert math.isclose(value, want[name], rel_tol=2e-7), (name, row, want)
            else:
                assert value == want[name], (name, row, want)
