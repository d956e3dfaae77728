"""What an S3 endpoint's refusal means, or its silence, and what to do about it."""

import re

from urllib3.exceptions import MaxRetryError, NewConnectionError

from stampede.errors import NoBucket, StoreDown, StoreRefused

_KEYS = (
    "check STAMPEDE_ACCESS_KEY and STAMPEDE_SECRET_KEY, or the files in STAMPEDE_KEYS (of a second "
    "site, STAMPEDE_REPLICA_ACCESS_KEY, STAMPEDE_REPLICA_SECRET_KEY and STAMPEDE_REPLICA_KEYS)"
)
_NO_KEY = f"it does not know the access key: {_KEYS}"
# Codes of https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html that no other attempt
# can change.
ADVICE = {
    "AccessDenied": f"the keys may not do this: {_KEYS}",
    "InvalidAccessKeyId": _NO_KEY,
    "XAdminUserNotFound": _NO_KEY,  # versitygw's own code
    "SignatureDoesNotMatch": f"the secret key is wrong: {_KEYS}",
    "NoSuchBucket": "it has no such bucket: correct the URL of the store, or make the bucket with "
    "`stampede setup`",
    "AuthorizationHeaderMalformed": "set STAMPEDE_REGION to the region of the store",
    "RequestTimeTooSkewed": "its clock and the one of this machine differ: set the wrong one",
}
# Space may become free before anybody raises the quota: retention deletes. So trying again helps.
QUOTA = (
    "a quota of the bucket or of its owner is used up: raise it with `radosgw-admin quota set`, or "
    "keep less with STAMPEDE_CUTOUT_DAYS; runbooks/StampedeBucketNearQuota.md"
)
_POOL = re.compile(r"^(HTTPS?Connection(Pool)?\([^)]*\)|<[^>]*>): ")
_CODE = re.compile(r"<Code>(\w+)</Code>|\"Code\":\"(\w+)\"")
_NUMBER = re.compile(r"^\[Errno -?\d+\] ")


def refusal(endpoint: str, code: str, key: str) -> StoreDown:
    """The error for a response of the endpoint with an error code."""
    response = f"{endpoint} answered {code}{_at(key)}"
    if advice := ADVICE.get(code):
        if code == "NoSuchBucket":
            return NoBucket(f"{response}; {advice}")
        return StoreRefused(f"{response}; {advice}")
    return StoreDown(f"{response}; {QUOTA}" if code == "QuotaExceeded" else response)


def answer_of(status: int, body: bytes) -> str:
    """Status and S3's error code of a response, for a message; without a code, how it begins."""
    text = body.decode(errors="replace")
    found = _CODE.search(text)
    code = next(filter(None, found.groups())) if found else " ".join(text[:200].split())
    return f"{status} {code}".strip()


def failure(endpoint: str, key: str, error: Exception) -> StoreDown:
    """The error for a request without a proper answer."""
    return StoreDown(f"{endpoint} failed{_at(key)}: {_reason(error)}")


def _at(key: str) -> str:
    """Where, unless it is the whole bucket."""
    return f" at {key}" if key else ""


def _reason(error: BaseException) -> str:
    """Why a request failed, without the names of the HTTP library's classes."""
    while isinstance(error, MaxRetryError) and error.reason is not None:
        error = error.reason
    if isinstance(error, NewConnectionError):
        return f"cannot connect ({_cause(error)}); is it running, and is the address right?"
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return f"{_cause(error)}; set STAMPEDE_CA_FILE to the authority of its certificate"
    return _POOL.sub("", str(error))


def _cause(error: BaseException) -> str:
    cause = error.__cause__
    text = str(cause) if cause else str(error).rpartition(": ")[2]
    return _NUMBER.sub("", text)
