"""The Python client's readers of a bucket, on a real Ceph."""

from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyarrow.fs import S3FileSystem

import stampede_client
from stampede.alerts.columns import DETECTION
from stampede.config.settings import Settings
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.table import Table
from tests.support.read.read_service import ZTF_ALERT, ZTF_OBJECT, fill, point, sample_cutouts

pytestmark = pytest.mark.integration


def filesystem(settings: Settings, **other: str) -> S3FileSystem:
    url = urlsplit(settings.store)
    arguments = {
        "access_key": settings.access_key,
        "secret_key": settings.secret_key.get_secret_value(),
        "endpoint_override": url.netloc,
        "scheme": url.scheme,
        "region": settings.region,
    }
    return S3FileSystem(**{**arguments, **other})


def test_rows_and_images_are_verified(bucket: Settings) -> None:
    objects, name = open_objects(bucket), urlsplit(bucket.store).path.strip("/")
    points = [point(ZTF_OBJECT, "ztf", number, 59000.0 + number) for number in range(1, 5)]
    fill(objects, sample_cutouts(), points, Coverage.of({("t", 0): [0]}))
    more = pa.Table.from_pylist([point("ZTF2", "ztf", 9, 59000.0)], DETECTION)
    table = Table(objects, DETECTIONS)
    key = table.append(more, Coverage.of({("t", 0): [1]}))
    table.close()
    store = filesystem(bucket)
    read = stampede_client.detections(name, store)
    assert read.arrow()["source_id"].to_pylist() == [9, 1, 2, 3, 4]
    assert read.arrow(objects=["ZTF2"]).num_rows == 1
    found = stampede_client.images(name, store, ids=[ZTF_ALERT])
    assert found.kinds.tolist() == ["science", "template", "difference"]

    data = objects.get(key)
    pack = next(info.key for info in objects.list("packs/"))
    objects.put(key, data[:-30] + bytes([data[-30] ^ 1]) + data[-29:])
    objects.put(pack, objects.get(pack)[:100])
    with pytest.raises(stampede_client.Incomplete, match=key):
        read.arrow()
    with pytest.raises(stampede_client.Damaged):
        stampede_client.images(name, store, ids=[ZTF_ALERT])
    objects.delete(pack)
    assert stampede_client.images(name, store, ids=[ZTF_ALERT]).gone == [ZTF_ALERT]
    with pytest.raises(stampede_client.NotFound):
        stampede_client.detections(f"{name}/none", store).arrow()
    for other in ({"secret_key": "wrong"}, {"endpoint_override": "127.0.0.1:9"}):
        with pytest.raises(stampede_client.Unavailable, match="check path, keys and endpoint"):
            stampede_client.detections(name, filesystem(bucket, **other)).arrow()
