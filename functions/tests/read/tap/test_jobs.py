"""Jobs of queries in ADQL: by pyvo on real servers that share a bucket, as pods do."""

import time
from collections.abc import Iterator
from urllib.parse import urlencode

import pyarrow as pa
import pytest
import pyvo
from astropy.table import Table as AstropyTable
from pyvo.dal.exceptions import DALQueryError

from stampede.config.settings import Settings
from stampede.errors import NotFound
from stampede.read.app import make_app
from stampede.read.errors import TooManyQueries
from stampede.read.tap.jobs import ALIVE, Jobs, Phase
from stampede.store.objects.memory import MemoryObjects
from tests.read.tap.test_tap import OBJECTS, name, sample
from tests.support.read.read_service import Reader, serving

SLOW = (
    "SELECT COUNT(*) FROM detections a, detections b, detections c, detections d "
    "WHERE a.ra + b.ra + c.ra + d.ra > 1e9"
)


@pytest.fixture(scope="module")
def objects() -> MemoryObjects:
    return sample()


@pytest.fixture(scope="module")
def read(objects: MemoryObjects) -> Iterator[Reader]:
    yield from serving(make_app(Settings(tap_job_seconds=30.0), objects))


@pytest.fixture(scope="module")
def tap(read: Reader) -> pyvo.dal.TAPService:
    return pyvo.dal.TAPService(f"{read.url}/tap")


def test_pyvo_runs_a_job(read: Reader, tap: pyvo.dal.TAPService, objects: MemoryObjects) -> None:
    job = tap.submit_job("SELECT object_id, ra FROM objects ORDER BY object_id", maxrec=10)
    assert job.phase == "PENDING"
    job.run().wait(timeout=60)
    assert job.phase == "COMPLETED"
    job.raise_if_error()
    found = job.fetch_result()
    assert b'value="OVERFLOW"' in read(f"/tap/async/{job.job_id}/results/result").data
    assert found["object_id"].tolist() == [name(number) for number in range(10)]
    assert found.fielddescs[1].unit == "deg"
    assert list(objects.list("tap/"))
    job.delete()
    assert not list(objects.list("tap/"))


def test_run_async_does_all_at_once(tap: pyvo.dal.TAPService) -> None:
    found = tap.run_async("SELECT COUNT(*) AS n FROM objects")
    assert found["n"].tolist() == [OBJECTS]


def test_a_job_keeps_its_uploads(tap: pyvo.dal.TAPService) -> None:
    mine = AstropyTable({"id": [name(3), "none"]})
    found = tap.run_async(
        "SELECT m.id, o.detections FROM tap_upload.mine m LEFT JOIN objects o "
        "ON o.object_id = m.id ORDER BY m.id DESC",
        uploads={"mine": mine},
    )
    assert found["id"].tolist() == ["none", name(3)]
    assert found["detections"].tolist() == [None, 5]


def test_an_error_is_told(tap: pyvo.dal.TAPService) -> None:
    job = tap.submit_job("SELECT nothing FROM objects")
    job.run().wait(timeout=60)
    assert job.phase == "ERROR"
    with pytest.raises(DALQueryError, match="nothing"):
        job.raise_if_error()
    job.delete()


def test_a_job_is_aborted(tap: pyvo.dal.TAPService) -> None:
    job = tap.submit_job(SLOW)
    job.run()
    time.sleep(1)
    assert job.phase == "EXECUTING"
    job.abort()
    assert job.phase == "ABORTED"
    begin = time.monotonic()
    assert tap.run_async("SELECT COUNT(*) AS n FROM objects")["n"].tolist() == [OBJECTS]
    assert time.monotonic() - begin < 20  # the process of the first was ended
    job.delete()


def test_another_pod_answers_and_goes_on(
    read: Reader, objects: MemoryObjects, tap: pyvo.dal.TAPService
) -> None:
    """A job whose process is gone is run again by the pod that is asked."""
    jobs = Jobs(objects, 10, 3600)
    parameters = {"LANG": "ADQL", "QUERY": "SELECT COUNT(*) AS n FROM objects"}
    job = jobs.begin(jobs.make(parameters, {}))  # by a pod that is killed now
    for other in serving(make_app(Settings(), objects)):
        path = f"/tap/async/{job.id}/phase"
        assert other(path).data == read(path).data == b"EXECUTING"
        dead = Jobs(objects, 10, 3600, lambda: time.time() - ALIVE - 1)
        dead.say_alive(job)
        assert other(path).data == b"EXECUTING"
        document = other(f"/tap/async/{job.id}?WAIT=30").data
        assert b"<uws:phase>COMPLETED" in document
        result = read(f"/tap/async/{job.id}/results/result")  # any pod has it
        assert b"<TD>600</TD>" in result.data
    for number in range(3):
        job = jobs.begin(job if number else jobs.make(parameters, {}))
    dead.say_alive(job)
    assert read(f"/tap/async/{job.id}/phase").data == b"ERROR"
    assert b"ended 3 times" in read(f"/tap/async/{job.id}/error").data


def test_jobs_expire_and_are_bounded() -> None:
    objects, now = MemoryObjects(), [1e9]
    jobs = Jobs(objects, 2, 100, lambda: now[0])
    first = jobs.make({"QUERY": "a"}, {"mine": pa.table({"a": [1]})})
    assert jobs.uploads(first)["mine"].to_pydict() == {"a": [1]}
    jobs.make({"QUERY": "b"}, {})
    with pytest.raises(TooManyQueries, match="2 jobs are kept"):
        jobs.make({"QUERY": "c"}, {})
    assert jobs.get(first.id).phase is Phase.PENDING
    now[0] += 101
    with pytest.raises(NotFound):
        jobs.get(first.id)
    third = jobs.make({"QUERY": "c"}, {})
    assert {info.key for info in objects.list("tap/")} == {f"tap/{third.id}/job"}


@pytest.mark.parametrize("path", ["../job", "x", "0" * 10 + "-" + "f" * 32])
def test_no_other_job_is_there(read: Reader, path: str) -> None:
    response = read(f"/tap/async/{path}")
    assert response.status == 404


def test_parameters_change_while_a_job_is_pending(read: Reader) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}

    def post(path: str, **values: str) -> str:
        body = urlencode(values).encode()
        response = read(path, "POST", body, headers=form)
        assert response.status in (303, 400), response.data
        return str(response.headers.get("location", "")).removeprefix(read.url)

    job = post("/tap/async", LANG="ADQL", QUERY="SELECT TOP 1 ra FROM objects")
    assert post(f"{job}/parameters", QUERY="SELECT TOP 2 ra FROM objects") == job
    assert b"TOP 2" in read(f"{job}/parameters").data
    assert post(f"{job}/parameters", UPLOAD="mine,param:file") == ""  # 400
    assert post(f"{job}/phase", PHASE="RUN") == job
    assert b"COMPLETED" in read(f"{job}?WAIT=30&PHASE=EXECUTING").data
    assert read(f"{job}/results/result").data.count(b"<TR>") == 2
    assert post(f"{job}/parameters", QUERY="SELECT 1") == ""  # 400
    assert post(f"{job}/phase", PHASE="RUN") == ""
    assert read(job, "DELETE").status == 303
    assert read(job).status == 404
