"""`stampede audit` names lost packs and what is in quarantine; --deep reads all and mends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.store.open import open_objects
from tests.support.store.two_sites import put_all

pytestmark = pytest.mark.integration  # starts processes


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Two sites with the same objects."""
    made = Settings(
        store=f"file://{tmp_path}/first", replica=f"file://{tmp_path}/second", grace_seconds=0
    )
    for number in range(2):
        put_all(open_objects(made), range(4 * number + 1, 4 * number + 5))
    Reconciler(made.model_copy(update={"reconcile": "replica"})).run()
    return made


def audit(settings: Settings, *options: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "stampede", "audit", *options]
    env = os.environ | {"STAMPEDE_STORE": settings.store, "STAMPEDE_REPLICA": settings.replica}
    env["STAMPEDE_GRACE_SECONDS"] = "0"
    where = Path(settings.store.removeprefix("file://")).parent
    done = subprocess.run(command, cwd=where, env=env, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_a_lost_pack_is_named_and_mended(settings: Settings) -> None:
    objects = open_objects(settings)
    assert audit(settings)[0] == 0
    [pack, _] = [info.key for info in objects.list("packs/")]
    good = objects.get(pack)
    objects.delete(pack)
    status, text = audit(settings)
    assert status == 1
    assert f"{pack}: lost: rows point to it" in text
    status, text = audit(settings, "--deep")
    assert status == 1
    assert f"damaged at store: {pack}: lost" in text
    status, text = audit(settings, "--deep", "--site", "both", "--repair")
    assert status == 0, text
    assert f"mended at store: {pack}" in text
    assert objects.get(pack) == good
    assert audit(settings)[0] == 0


def test_an_object_in_quarantine_is_named(settings: Settings) -> None:
    objects = open_objects(settings)
    bad = f"tables/detections/0001-{32 * 'a'}.parquet"
    objects.put(bad, b"not Parquet at all")
    for options in ((), ("--deep",), ("--deep", "--repair", "--site", "both")):
        status, text = audit(settings, *options)
        assert status == 1
        assert bad in text


def test_options_that_need_deep(settings: Settings) -> None:
    status, text = audit(settings, "--repair")
    assert status != 0
    assert "need `--deep`" in text
