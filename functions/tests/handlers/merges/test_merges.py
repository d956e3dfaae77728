"""A process that merges: what it asks the store while nothing is due."""

import time
from datetime import timedelta
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.errors import StoreDown
from stampede.handlers.merges import merges
from stampede.handlers.merges.merges import Merges
from stampede.runtime.clock import now_mjd
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Folder
from stampede.store.open import open_objects
from tests.support.store.stored_packets import store, ztf_with_images
from tests.support.store.watched_objects import Watched

NIGHT = int(now_mjd()) - 40


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(store=f"file://{tmp_path}/store", spool=tmp_path, orphan_days=7, merge_days=0)


def watched(settings: Settings) -> Watched:
    """A store with some batches of a night."""
    for batch in range(3):
        store(settings, [ztf_with_images(batch + 1, NIGHT + 0.5)], batch)
    copy = MemoryObjects()
    objects = open_objects(settings)
    for info in objects.list(""):
        copy.put(info.key, objects.get(info.key))
    time.sleep(0.01)
    return Watched(copy)


def test_what_waits_to_be_deleted_is_not_read_again(settings: Settings) -> None:
    objects = watched(settings)
    made = Merges(settings, objects)
    assert made.run() is None
    merged = [info.key for info in objects.list("") if "/merged1-" in info.key]
    assert {key.split("/")[0] for key in merged} == {"packs", "packets", "alerts"}
    objects.calls.clear()
    assert made.run() is None
    assert {key for operation, key in objects.calls if operation == "get"} <= {*merged}
    objects.calls.clear()
    assert made.run() is None
    assert objects.calls == []  # nothing was due


def test_it_looks_again_after_a_while(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = watched(settings)
    made = Merges(settings, objects)
    for _ in range(3):
        assert made.run() is None
    objects.calls.clear()
    # Another process knows it from the state in the store.
    assert Merges(settings, objects).run() is None
    assert [key for _, key in objects.calls if not key.startswith("merges/")] == []
    monkeypatch.setattr(merges, "IDLE", timedelta(0))
    objects.calls.clear()
    assert made.run() is None
    looked = {key.split("/")[0] for operation, key in objects.calls if operation == "list"}
    assert {"packs", "packets", "alerts", "merges"} <= looked


def test_a_kind_that_fails_keeps_no_other_from_being_merged(settings: Settings) -> None:
    class Failing(Watched):
        def list_folder(self, folder: str) -> Folder:
            if folder.startswith("packets/"):
                raise StoreDown("refused")
            return super().list_folder(folder)

    objects = Failing(watched(settings).inner)
    made = Merges(settings, objects)
    for _ in range(2):  # nor does it wait after that
        assert isinstance(made.run(), StoreDown)
    assert any("/merged1-" in info.key for info in objects.list("packs/"))
