"""`stampede up` keeps looking, whatever it finds in the store."""

import io
import threading
from types import SimpleNamespace

import pytest
from rich.console import Console

from stampede.settings import Settings
from stampede_local.up import watch


@pytest.mark.parametrize(
    "key",
    [
        "tables/detections/0000-" + "ef" * 16 + ".parquet",
        "tables/cutouts/0003-" + "ef" * 16 + "-1of8.parquet",
        "deadletters/cutouts/" + "ef" * 16 + ".parquet",
        "expected/files",
    ],
)
@pytest.mark.parametrize(
    "data", [b"", b"garbage" * 99, b"PAR1" * 99], ids=["empty", "garbage", "x"]
)
def test_a_bad_object_does_not_end_the_watch(tmp_path, key: str, data: bytes) -> None:
    path = tmp_path / "bucket" / key
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    system = SimpleNamespace(
        settings=Settings(store=f"file://{tmp_path}/bucket"),
        urls={},
        supervisor=SimpleNamespace(states=dict),
    )
    stop, output = threading.Event(), io.StringIO()
    views = watch(system, Console(file=output), 0.01, stop)
    for _ in range(3):
        assert {flow.function for flow in next(views).flows} == {"cutouts", "lightcurves"}
    stop.set()
    assert output.getvalue() == ""
