"""Jobs as XML of UWS 1.1. https://www.ivoa.net/documents/UWS/20161024/."""

from datetime import UTC, datetime
from xml.sax.saxutils import escape, quoteattr

from stampede.read.tap.jobs import Job, Phase

_NAMES = (
    'xmlns:uws="http://www.ivoa.net/xml/UWS/v1.0" xmlns:xlink="http://www.w3.org/1999/xlink" '
    'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
)
_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'


def job_document(job: Job, url: str, seconds: float) -> bytes:
    """A job; `url` is its own, `seconds` how long it may run."""
    end = job.end or {}
    times = {
        "creationTime": job.created,
        "startTime": job.began or None,
        "endTime": end.get("time"),
    }
    body = f"<uws:jobId>{job.id}</uws:jobId><uws:ownerId xsi:nil='true'/>"
    body += f"<uws:phase>{job.phase}</uws:phase><uws:quote xsi:nil='true'/>"
    for name, seconds_of_1970 in times.items():
        if seconds_of_1970 is not None:
            body += f"<uws:{name}>{time_text(seconds_of_1970)}</uws:{name}>"
    body += f"<uws:executionDuration>{seconds:.0f}</uws:executionDuration>"
    body += f"<uws:destruction>{time_text(job.destruction)}</uws:destruction>"
    body += _parameters(job) + _results(job, url)
    if job.phase is Phase.ERROR:
        message = escape(str(end.get("message", "")))
        body += (
            '<uws:errorSummary type="fatal" hasDetail="true">'
            f"<uws:message>{message}</uws:message></uws:errorSummary>"
        )
    return f'{_XML}<uws:job version="1.1" {_NAMES}>{body}</uws:job>\n'.encode()


def no_jobs() -> bytes:
    """The list of jobs, which is always empty: who has a job's URL has the job."""
    return f'{_XML}<uws:jobs version="1.1" {_NAMES}/>\n'.encode()


def parameters_document(job: Job) -> bytes:
    """The parameters of a job."""
    return f"{_XML}{_parameters(job, _NAMES)}\n".encode()


def results_document(job: Job, url: str) -> bytes:
    """The results of a job: one, if it is complete."""
    return f"{_XML}{_results(job, url, _NAMES)}\n".encode()


def time_text(seconds: float) -> str:
    """A time as UWS writes it, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _parameters(job: Job, names: str = "") -> str:
    found = "".join(
        f"<uws:parameter id={quoteattr(name.lower())}>{escape(value)}</uws:parameter>"
        for name, value in job.parameters.items()
    )
    return f"<uws:parameters {names}>{found}</uws:parameters>"


def _results(job: Job, url: str, names: str = "") -> str:
    found = ""
    if job.phase is Phase.COMPLETED:
        href = quoteattr(f"{url}/results/result")
        found = f'<uws:result id="result" xlink:type="simple" xlink:href={href}/>'
    return f"<uws:results {names}>{found}</uws:results>"
