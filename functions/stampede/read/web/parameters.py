"""Parameters of the path and the query, checked; anything else is a 400 (`BadParameter`)."""

import re
from collections.abc import Collection
from enum import StrEnum
from typing import TypeVar

from starlette.datastructures import QueryParams
from starlette.requests import Request

from stampede.alerts import surveys
from stampede.alerts.bounds import MOST_ID, OBJECT_ID, SURVEY_NAME
from stampede.alerts.columns import KINDS
from stampede.lookup.errors import BadParameter
from stampede.read.errors import NotAcceptable
from stampede.read.web.conditional import preferred

Choice = TypeVar("Choice", bound=StrEnum)

_ALERT_ID = re.compile(r"[1-9][0-9]{0,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
# The form in which programs write a large number that is no integer: pandas, for a column of ids
# with a hole. From 2^53 on it may be another id than was meant.
FLOAT = re.compile(r"[0-9]{1,40}(\.[0-9]{0,40}([eE]\+?[0-9]{1,2})?|[eE]\+?[0-9]{1,2})")
EXACT = 2.0**53
# Names in the form that the IAU recommends, of Rubin's Alert Production: prefixes before its ids.
OBJECT_NAME = re.compile(r"LSST-AP-DO-([0-9]{1,19})", re.IGNORECASE)
DETECTION_NAME = re.compile(r"LSST-AP-DS-([0-9]{1,19})", re.IGNORECASE)
ZTF_ID = re.compile(r"ZTF\d\d[a-z]{7}", re.IGNORECASE | re.ASCII)
_REPEATABLE = {"band", "bands", "kinds"}


def check_names(query: QueryParams, known: Collection[str]) -> None:
    """Raise `BadParameter` at a parameter that is not known, or that is given twice.

    ``responseformat`` is known in upper and lower case, as DALI demands.
    """
    seen = set()
    for name, _ in query.multi_items():
        folded = name.lower() if name.lower() == "responseformat" else name
        if folded not in known:
            names = ", ".join(known) if known else "none here"
            raise BadParameter(name[:40], f"unknown parameter {name[:40]!r}. Known: {names}")
        if folded in seen and name not in _REPEATABLE:
            raise BadParameter(name, f"{name} is given more than once")
        seen.add(folded)


def alert_id(text: object, parameter: str = "alert_id") -> int:
    """A candid or diaSourceId: a positive 64-bit integer, as text or number.

    An id has one spelling: no sign, no leading zeros. Rubin's name of a detection,
    ``LSST-AP-DS-`` and the id, is taken too.
    """
    digits = _text_of(text)
    if named := DETECTION_NAME.fullmatch(digits):
        digits = named[1]
    if _ALERT_ID.fullmatch(digits) and (number := int(digits)) <= MOST_ID:
        return number
    plain = digits.lstrip("0")
    if plain != digits and _ALERT_ID.fullmatch(plain):
        raise BadParameter(parameter, f"an alert id has no leading zeros: {plain}")
    raise BadParameter(parameter, f"not an alert id (a 64-bit integer): {digits[:40]!r}")


def object_id(text: object, parameter: str = "object_id") -> str:
    """An objectId, diaObjectId or ssObjectId: letters, digits and ``_ . + -``, up to 64.

    Rubin's name of an object, ``LSST-AP-DO-`` and the id, is taken too, and ZTF's id in small or
    capital letters.
    """
    name = _text_of(text)
    if named := OBJECT_NAME.fullmatch(name):
        return named[1]
    if ZTF_ID.fullmatch(name):
        return name[:3].upper() + name[3:].lower()
    if FLOAT.fullmatch(name) and float(name) >= EXACT:
        raise BadParameter(
            parameter,
            f"{name} is an id that was made a float, and so rounded: send all its digits",
        )
    if OBJECT_ID.fullmatch(name):
        return name
    raise BadParameter(parameter, f"not an object id: {name[:40]!r}")


def _text_of(value: object) -> str:
    """The text of an id; of anything but text and integers a text that is no id."""
    return str(value) if isinstance(value, str) or type(value) is int else f"<{value!r:.40}>"


def choice(query: QueryParams, name: str, kind: type[Choice], default: Choice) -> Choice:
    """The member of the enumeration `kind` that the parameter names."""
    return kind(one_of(query[name], name, tuple(kind))) if name in query else default


def one_of(text: str, name: str, choices: Collection[str]) -> str:
    """`text`, if it is one of the choices."""
    if text in choices:
        return text
    raise BadParameter(name, f"must be one of {', '.join(choices)}: {text[:40]!r}")


def survey(query: QueryParams) -> str | None:
    """The parameter `survey`; None if it is absent."""
    return one_of(query["survey"], "survey", surveys.names()) if "survey" in query else None


def survey_or_archive(query: QueryParams) -> str | None:
    """The parameter `survey` where archives have some too; None if it is absent."""
    text = query.get("survey")
    if text is not None and not SURVEY_NAME.fullmatch(text):
        raise BadParameter("survey", f"must be 2 to 16 small letters and digits: {text[:40]!r}")
    return text


def cutout_kind(text: str) -> str:
    """One of `KINDS`."""
    return one_of(text, "kind", KINDS)


def names(query: QueryParams, name: str) -> list[str]:
    """The names, parted by commas, in a parameter; none if the parameter is absent."""
    if name not in query:
        return []
    found = query[name].split(",")
    if not all(found):
        raise BadParameter(name, f"must be names, parted by commas: {query[name]!r:.40}")
    return found


def flag(query: QueryParams, name: str) -> bool | None:
    """true or false; None if the parameter is absent."""
    text = query.get(name)
    values = {None: None, "true": True, "1": True, "false": False, "0": False}
    if text is not None and text not in values:
        raise BadParameter(name, f"must be true or false: {text[:40]!r}")
    return values[text]


def number(query: QueryParams, name: str, low: float, high: float) -> float | None:
    """A number from `low` to `high`; None if the parameter is absent."""
    text = query.get(name)
    if text is None:
        return None
    value = float(text) if _NUMBER.fullmatch(text) else float("nan")
    if not low <= value <= high:
        raise BadParameter(name, f"must be a number from {low:g} to {high:g}: {text[:40]!r}")
    return value


def whole_number(query: QueryParams, name: str, low: int, high: int) -> int | None:
    """A whole number from `low` to `high`; None if the parameter is absent."""
    value = number(query, name, low, high)
    if value is not None and value != int(value):
        raise BadParameter(name, f"must be a whole number: {query[name][:40]!r}")
    return None if value is None else int(value)


def wanted_format(request: Request, types: dict[str, str]) -> str:
    """The name of a format in `types` (name to media type, the default first).

    The parameter `format` or DALI's RESPONSEFORMAT (a name or a media type) decides, otherwise
    Accept. Raises `BadParameter`, and `NotAcceptable` if Accept has none of the formats.

    JSON alone in the Accept of a POST asks for nothing: curl's `--json` writes it there, by the
    type of the body.
    """
    plain = {media_type.partition(";")[0]: name for name, media_type in types.items()}
    for key, text in request.query_params.items():
        if key.lower() in ("format", "responseformat"):
            wanted = text.lower().partition(";")[0].strip()
            if wanted in types:
                return wanted
            if wanted in plain:
                return plain[wanted]
            raise BadParameter(key, f"must be one of {', '.join(types)}: {text[:40]!r}")
    header = request.headers.get("accept") or "*/*"
    if accepted := preferred(header, tuple(plain)):
        return plain[accepted]
    if request.method == "POST" and header == "application/json":
        return next(iter(types))
    known = ", ".join(f"{name} ({media_type})" for media_type, name in plain.items())
    raise NotAcceptable(f"Accept has none of the formats {known}: {header[:80]!r}")
