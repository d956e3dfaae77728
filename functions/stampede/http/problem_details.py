"""Problem documents: how Stampede reports an error over HTTP (RFC 9457)."""

import json

from stampede.errors import StampedeError


def problem_document(
    error: StampedeError, detail: str | None = None
) -> dict[str, str | int | list[str]]:
    """The members of an error's problem document, `detail` in place of the error's message.

    The ``type`` of an error is stable: ``urn:stampede:problem:`` and the error's name.
    """
    return {
        "type": f"urn:stampede:problem:{error.name}",
        "title": error.name.replace("-", " ").capitalize(),
        "status": error.status,
        # Before the detail: a sender may keep the beginning of the document alone.
        **({"tables": list(error.tables)} if error.tables else {}),
        "detail": error.message if detail is None else detail,
    }


def problem_json(error: StampedeError, detail: str | None = None) -> bytes:
    """An error's problem document as JSON, ``application/problem+json``."""
    return json.dumps(problem_document(error, detail)).encode()
