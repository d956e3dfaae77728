"""Queries in ADQL that run while nobody waits: `/tap/async` (TAP 1.1, UWS 1.1)."""

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from stampede.errors import BadQuery, NotFound, StampedeError
from stampede.lookup import response_warnings
from stampede.lookup.errors import BadParameter
from stampede.lookup.response_warnings import ResponseWarnings
from stampede.read.api import tap
from stampede.read.api.tap import with_error_documents
from stampede.read.formats import votable
from stampede.read.service import ReadService, service_of
from stampede.read.tap.job_documents import (
    job_document,
    no_jobs,
    parameters_document,
    results_document,
    time_text,
)
from stampede.read.tap.jobs import RUNS, SAID_EVERY, Job, Jobs, Phase
from stampede.read.tap.process import Answer, Query
from stampede.read.tap.sources import Sources
from stampede.read.web.form import Form, form_of
from stampede.telemetry.logs import get_logger

log = get_logger()

MOST_JOBS = 1000
"""Jobs that a bucket keeps."""
MOST_WAIT = 60.0
"""Seconds that WAIT waits at most."""
_LOOK_SECONDS = 2.0  # between two looks whether a job was aborted, or has ended
_KEPT = ("LANG", "QUERY", "MAXREC", "RESPONSEFORMAT", "FORMAT", "RUNID", "REQUEST")
_XML = "text/xml"


class _State(NamedTuple):
    """What jobs need, and which of them this process is to run."""

    service: ReadService
    jobs: Jobs
    sources: Sources
    here: set[str]
    tasks: set[asyncio.Future[None]]


def _state(request: Request) -> _State:
    """The jobs of this service's store. Raises `NotFound` if it takes no queries."""
    service, state = service_of(request), request.app.state
    tap.check_offered(service)
    if not hasattr(state, "tap_jobs"):
        days = service.settings.tap_job_days
        jobs = Jobs(service.bulk_lookup.objects, MOST_JOBS, days * 86400)
        state.tap_jobs = _State(service, jobs, tap.sources_of(request), set(), set())
    found: _State = state.tap_jobs
    return found


@with_error_documents
async def get_jobs(request: Request) -> Response:
    """The list of jobs, which is empty: nobody sees the jobs of others."""
    _state(request)
    return Response(no_jobs(), media_type=_XML)


@with_error_documents
async def post_job(request: Request) -> Response:
    """Make a job; PHASE=RUN begins it at once."""
    state = _state(request)
    form = await form_of(request, tap.MOST_BYTES, state.service.bulk_bytes)
    wanted = await tap.wanted_query(state.service, form, state.service.settings.tap_job_seconds)
    kept = {name: form.values[name] for name in _KEPT if name in form.values}
    run = state.service.run_bulk
    job = await run(state.jobs.make, kept, {**wanted.query.uploads})
    if form.values.get("PHASE") == "RUN":
        await _begin(state, job)
    return _to_job(request, job.id)


@with_error_documents
async def get_job(request: Request) -> Response:
    """A job; WAIT waits until its phase changes."""
    state = _state(request)
    query = {name.upper(): value for name, value in request.query_params.items()}
    job = await _wait(state, await _job(request, state), query)
    seconds = state.service.settings.tap_job_seconds
    return _xml(job_document(job, _url(request, job.id), seconds))


@with_error_documents
async def post_to_job(request: Request) -> Response:
    """ACTION=DELETE deletes a job."""
    state = _state(request)
    form = await form_of(request, tap.MOST_BYTES, state.service.bulk_bytes)
    if form.values.get("ACTION") != "DELETE":
        raise BadParameter("ACTION", "ACTION must be DELETE")
    return await _delete(request, state)


@with_error_documents
async def delete_job(request: Request) -> Response:
    """Delete a job."""
    return await _delete(request, _state(request))


async def _delete(request: Request, state: _State) -> Response:
    job = await _job(request, state)
    await state.service.run_bulk(state.jobs.delete, job.id)
    return RedirectResponse(_url(request), 303)


@with_error_documents
async def get_part(request: Request) -> Response:
    """One property of a job, as text or XML."""
    state = _state(request)
    job, part = await _job(request, state), request.path_params["part"]
    seconds = state.service.settings.tap_job_seconds
    texts: dict[str, Callable[[], str]] = {
        "phase": lambda: job.phase,
        "executionduration": lambda: f"{seconds:.0f}",
        "destruction": lambda: time_text(job.destruction),
        "quote": lambda: "",
        "owner": lambda: "",
    }
    if part in texts:
        return PlainTextResponse(texts[part](), headers={"Cache-Control": "no-store"})
    if part == "parameters":
        return _xml(parameters_document(job))
    if part == "results":
        return _xml(results_document(job, _url(request, job.id)))
    if part == "error":
        message = str((job.end or {}).get("message", ""))
        if job.phase is not Phase.ERROR:
            raise NotFound(f"the job has no error: it is {job.phase}")
        headers = {"Cache-Control": "no-store"}
        return Response(votable.error_document(message), 200, headers, votable.MEDIA_TYPE)
    raise NotFound(f"a job has no {part[:40]!r}")


@with_error_documents
async def post_part(request: Request) -> Response:
    """Begin or abort a job, or change its parameters; its times stay as they are."""
    state = _state(request)
    job, part = await _job(request, state), request.path_params["part"]
    form = await form_of(request, tap.MOST_BYTES, state.service.bulk_bytes)
    if part == "phase":
        await _set_phase(state, job, form.values.get("PHASE", ""))
    elif part == "parameters":
        await _set_parameters(state, job, form)
    elif part not in ("destruction", "executionduration"):
        raise NotFound(f"the {part[:40]!r} of a job cannot be set")
    return _to_job(request, job.id)


async def _set_phase(state: _State, job: Job, phase: str) -> None:
    if phase == "RUN":
        if job.phase is not Phase.PENDING:
            raise BadQuery(f"only a pending job can be begun: this one is {job.phase}")
        await _begin(state, job)
    elif phase == "ABORT":
        if not job.end:
            await state.service.run_bulk(state.jobs.finish, job, Phase.ABORTED)
    else:
        raise BadParameter("PHASE", f"PHASE must be RUN or ABORT: {phase[:40]!r}")


async def _set_parameters(state: _State, job: Job, form: Form) -> None:
    if job.phase is not Phase.PENDING:
        raise BadQuery(f"parameters can be set while a job is pending: this one is {job.phase}")
    if "UPLOAD" in form.values:
        raise BadParameter("UPLOAD", "tables come with the request that makes a job")
    given = {name: value for name, value in form.values.items() if name in _KEPT}
    changed = job._replace(parameters={**job.parameters, **given})
    await tap.wanted_query(state.service, Form(changed.parameters, [], {}), 1.0)
    await state.service.run_bulk(state.jobs.keep, changed)


@with_error_documents
async def get_result(request: Request) -> Response:
    """The result of a job, in the format that it asked for."""
    state = _state(request)
    job = await _job(request, state)
    if job.phase is not Phase.COMPLETED or job.end is None:
        raise NotFound(f"the job has no result: it is {job.phase}")
    rows = await state.service.run_bulk(state.jobs.result, job)
    for reason in job.end["incomplete"]:
        response_warnings.may_lack(reason)
    answer = Answer(rows, job.end["overflow"])
    format = tap.wanted_format(job.parameters)
    with ExitStack() as held:
        held.enter_context(state.service.query_limit.slot(request.state.client))
        return tap.respond(answer, format, state.service.run_bulk, held)


async def _job(request: Request, state: _State) -> Job:
    """The job that the path names; if its process is gone it is begun again."""
    job = await state.service.run_bulk(state.jobs.get, request.path_params["job"])
    if not state.jobs.due(job) or job.id in state.here:
        return job
    if job.run < RUNS:
        return await _begin(state, job)
    why = f"the process of the query ended {RUNS} times: ask for less, or try again"
    await state.service.run_bulk(state.jobs.finish, job, Phase.ERROR, why)
    return await state.service.run_bulk(state.jobs.get, job.id)


async def _wait(state: _State, job: Job, query: dict[str, str]) -> Job:
    """A job, when its phase is not as before any more, or WAIT seconds have passed."""
    try:
        seconds = float(query.get("WAIT", "0"))
    except ValueError:
        raise BadParameter("WAIT", "WAIT must be a number of seconds") from None
    seconds = MOST_WAIT if seconds < 0 else min(seconds, MOST_WAIT)
    end, before = time.monotonic() + seconds, query.get("PHASE", job.phase)
    active = (Phase.PENDING, Phase.EXECUTING)
    while job.phase in active and job.phase == before and time.monotonic() < end:
        await asyncio.sleep(min(0.5, seconds))
        job = await state.service.run_bulk(state.jobs.get, job.id)
    return job


async def _begin(state: _State, job: Job) -> Job:
    """Begin a run of a job in this process."""
    state.here.add(job.id)
    try:
        begun = await state.service.run_bulk(state.jobs.begin, job)
    except StampedeError:
        state.here.discard(job.id)
        raise
    task = asyncio.ensure_future(state.service.run_jobs(_run, state, begun))
    state.tasks.add(task)
    task.add_done_callback(state.tasks.discard)
    return begun


def _run(state: _State, job: Job) -> None:
    """Run a job and store how it ended; blocks."""
    try:
        current = state.jobs.get(job.id)
        if not current.end and current.run == job.run:  # else another process has taken it
            _answer(state, state.jobs.say_alive(job))
    except NotFound:
        pass  # it was deleted
    except StampedeError as error:
        log.error("job broken off", problem=error.name, detail=error.message)
    finally:
        state.here.discard(job.id)


def _answer(state: _State, job: Job) -> None:
    jobs, values = state.jobs, job.parameters
    warnings = ResponseWarnings.begin()
    try:
        seconds = state.service.settings.tap_job_seconds
        rows = tap.most_rows(values, state.service.settings)
        query = Query(values["QUERY"], jobs.uploads(job), rows, seconds)
        found = state.service.queries.run(query, state.sources.rows_of, _Watch(jobs, job))
    except StampedeError as error:
        if not jobs.ended(job):
            jobs.finish(job, Phase.ERROR, error.message)
        return
    if not jobs.ended(job):
        jobs.complete(job, found.rows, found.overflow, warnings.reasons)


class _Watch:
    """Says that a run is alive, and looks whether the job has an end already."""

    def __init__(self, jobs: Jobs, job: Job) -> None:
        self._jobs, self._job = jobs, job
        self._said = self._looked = time.monotonic()

    def __call__(self) -> bool:
        """Whether nobody wants the result any more. Raises `StoreDown`."""
        now = time.monotonic()
        if now - self._looked > _LOOK_SECONDS:
            self._looked = now
            if self._jobs.ended(self._job):
                return True
            if now - self._said > SAID_EVERY:
                self._said = now
                self._jobs.say_alive(self._job)
        return False


def _xml(document: bytes) -> Response:
    return Response(document, headers={"Cache-Control": "no-store"}, media_type=_XML)


def _url(request: Request, job_id: str = "") -> str:
    """The URL of the list of jobs, or of a job."""
    base = f"{service_of(request).access.proxies.origin_of(request)}/tap/async"
    return f"{base}/{job_id}" if job_id else base


def _to_job(request: Request, job_id: str) -> Response:
    return RedirectResponse(_url(request, job_id), 303)
