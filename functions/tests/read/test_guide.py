"""`/llms.txt`: what it names is there."""

import re

from stampede.alerts.columns import MOVING
from stampede.lookup.cone_search import FOUND
from stampede.read.formats.light_curves import COLUMNS
from tests.support.read.read_service import LSST_ALERT, ZTF_OBJECT, Reader

NAMES = {"ALERT": str(LSST_ALERT), "OBJECT": ZTF_OBJECT, "KIND": "science", "BODY": "2011_UW158"}


def test_every_address_answers(read: Reader) -> None:
    got = read("/llms.txt")
    assert (got.status, got.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    addresses = re.findall(rf"\({re.escape(read.url)}(/\S+)\)", got.data.decode())
    assert len(addresses) == 11
    for address in addresses:
        for name, value in NAMES.items():
            address = address.replace(name, value)
        assert read(address).status == 200, address


def test_every_column_is_described(read: Reader) -> None:
    lines = read("/llms.txt").data.decode().splitlines()
    assert lines[0] == "# Stampede"
    for field in (*COLUMNS, *MOVING, *FOUND):
        assert any(
            line.startswith(f"- {field.name}") and len(line) > len(field.name) + 12
            for line in lines
        ), field.name
