"""Herald's routes; client/tests/test_brokers.py asks them by pyvo."""

import pytest

from tests.support.read.read_service import LSST_ALERT, ZTF_ALERT, Reader

API = "/compatible/herald"


@pytest.mark.parametrize(
    ("path", "status", "word"),
    [
        (f"{API}?ID={LSST_ALERT}", 404, "without its packet"),
        (f"{API}/schema?ID={LSST_ALERT}", 404, "without its packet"),
        (f"{API}?ID={ZTF_ALERT}", 404, "no alert"),
        (f"{API}/links?ID=LSST-AP-DS-0", 400, "not an alert id"),
        (f"{API}/cutouts?id={LSST_ALERT}", 400, "Known: ID"),
    ],
)
def test_what_cannot_be_answered_is_an_error(
    compatible: Reader, path: str, status: int, word: str
) -> None:
    got = compatible(path)
    assert (got.status, word in got.json()["detail"]) == (status, True), got.data


def test_an_image_that_the_survey_did_not_send_is_left_out(compatible: Reader) -> None:
    got = compatible(f"{API}/cutouts?ID={LSST_ALERT}")
    assert b"SCIENCE" in got.data
    assert b"TEMPLATE" not in got.data
