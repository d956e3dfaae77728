"""Route of the search field: an id, its beginning, a designation, or a position."""

import re
from collections.abc import Sequence
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from stampede.alerts.bounds import MOST_ID, OBJECT_ID
from stampede.alerts.moving.designations import is_designation, path_form, standard_form
from stampede.errors import NotFound
from stampede.lookup.errors import BadParameter
from stampede.lookup.lookup import Lookup
from stampede.read.pages import page as pages
from stampede.read.service import service_of
from stampede.read.web.parameters import DETECTION_NAME, OBJECT_NAME

RADIUS = "5"
"""Arcseconds around a position that is typed without a radius."""
MOST = 50
"""Objects that are listed of those whose ids begin with what was typed."""
HINT = "Try an id such as ZTF21abiuvdk or its beginning, or a position such as 10.68 41.27 or \
00:03:15.4 +16:08:44, with a radius such as 5 or 2arcmin after it, or a body of the solar system \
such as 2011 UW158"
_ANGLE = re.compile(r"[-+]?[0-9.][0-9.:°'′\"″a-z]*")
_UNIT = re.compile(r"\s+(arcsec|arcmin|deg|[\"″'′°])$")
_JOINED = re.compile(r"([0-9.:]+:[0-9.:]+)([-+][0-9.:]+)")
# A name that says where its object is, as the IAU recommends: JHHMMSS.s+DDMMSS.
_NAMED = re.compile(r"(?:\S+\s+)?J(\d\d)(\d\d)(\d\d(?:\.\d+)?)([-+]\d\d)(\d\d)(\d\d(?:\.\d+)?)")
# The ids in an address: of ZTF's objects, and long numbers.
_IN_ADDRESS = re.compile(r"ZTF\d\d[a-z]{7}|(?<!\d)\d{15,19}(?!\d)")
_OF_TNS = re.compile(r"(?:SN|AT|TDE)\s*\d{4}[A-Za-z]{1,5}", re.IGNORECASE)


async def find(request: Request) -> Response:
    """`/find?id=`: redirects to an object, an alert or a position, or lists what may be meant."""
    service = service_of(request)
    text = id_in(request.query_params.get("id", "").strip())
    if position := position_in(text):
        return RedirectResponse(f"/cone?{urlencode(position)}", 302)
    if not OBJECT_ID.fullmatch(text) and not is_designation(text):
        what = f"{text[:40]!r} is neither an id nor a position. " if text else ""
        raise BadParameter("id", f"{_of_tns(text) or what}{HINT}.")
    found = await service.run(_found, service.lookup, text)
    if len(found) == 1:
        return RedirectResponse(next(iter(found.values())), 302)
    return pages.html(pages.page("search_results.html", text=text, found=found, most=MOST))


def id_in(text: str) -> str:
    """The id in an address of a broker's page, or in a name of Rubin's; else the text itself."""
    if text.startswith(("http://", "https://")):
        return next(iter(_IN_ADDRESS.findall(text)), text)
    of_rubin = OBJECT_NAME.fullmatch(text) or DETECTION_NAME.fullmatch(text)
    return of_rubin[1] if of_rubin else text


def position_in(text: str) -> dict[str, str] | None:
    """The parameters of `/cone` in what was typed; None if it is no position.

    A position is two words, or six of sexagesimal parts; one more is a radius. It may also be a
    name such as J000315.4+160844.
    """
    if named := _NAMED.fullmatch(text):
        parts = named.groups()
        return {"ra": ":".join(parts[:3]), "dec": ":".join(parts[3:]), "radius": RADIUS}
    words = _UNIT.sub(r"\1", _JOINED.sub(r"\1 \2", text.replace(",", " "))).split()
    if len(words) in (6, 7):
        words = [":".join(words[:3]), ":".join(words[3:6]), *words[6:]]
    if len(words) not in (2, 3) or not all(map(_ANGLE.fullmatch, words)):
        return None
    return dict(zip(("ra", "dec", "radius"), [*words, RADIUS], strict=False))


def _found(lookup: Lookup, text: str) -> dict[str, str]:
    """The addresses of what this id, its beginning or this designation may mean, by their names.

    Of objects one more than `MOST` if there are more. Raises `NotFound`.
    """
    # ZTF writes its ids as ZTF21abiuvdk, whatever a reader types.
    spellings = dict.fromkeys((text, text[:3].upper() + text[3:].lower(), text.upper()))
    if found := _body(lookup, text) | _named(lookup, text, [*spellings]):
        return found
    names = {key for one in spellings for key in lookup.detections.keys_with_prefix(one, MOST + 1)}
    if not names:
        what = (
            f"no alert of the body {standard_form(text)} is stored. "
            if not text.isdigit() and is_designation(text)
            else f"{text} was taken for an id or its beginning: no object's id begins with it, and "
            "no alert has it. "
        )
        raise NotFound(f"{_of_tns(text) or what}{HINT}.")
    return {name: _object(name) for name in sorted(names)}


def _named(lookup: Lookup, text: str, spellings: Sequence[str]) -> dict[str, str]:
    """The object of that id; else the alerts of that id, one of each survey."""
    stored = set(lookup.detections.lookup(spellings)["object_id"].to_pylist())
    for name in spellings:
        if name in stored:
            return {name: _object(name)}
    if not text.isdigit() or not 0 < int(text) <= MOST_ID:
        return {}
    surveys = sorted({one.survey for one in lookup.locations([int(text)])})
    if len(surveys) == 1:
        return {f"alert {text}": f"/alerts/{int(text)}"}
    url = f"/alerts/{int(text)}?survey="
    return {f"alert {text} of {one.upper()}": f"{url}{one}" for one in surveys}


def _body(lookup: Lookup, text: str) -> dict[str, str]:
    """The body of the solar system of that designation, if alerts show it."""
    if not is_designation(text):
        return {}
    name = standard_form(text)
    known = lookup.moving.lookup([name]).num_rows
    return {f"body {name}": f"/moving/{quote(path_form(name))}"} if known else {}


def _of_tns(text: str) -> str:
    """What to say of a name of the Transient Name Server; nothing of another text."""
    if not _OF_TNS.fullmatch(text):
        return ""
    return f"{text} is a name of the Transient Name Server, which alerts do not have. "


def _object(name: str) -> str:
    return f"/objects/{quote(name, safe='')}"
