"""Route of ``/llms.txt``: what this server has, for programs that read for people.

The form is that of https://llmstxt.org: a heading, a summary, and lists of links.
"""

from collections.abc import Iterator

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from stampede.alerts import surveys
from stampede.alerts.columns import KINDS, MOVING
from stampede.lookup.cone_search import FOUND
from stampede.read.formats.light_curves import COLUMNS
from stampede.read.service import service_of

SUMMARY = """# Stampede

> Cutout images and light curves of every alert of a sky survey, by id and by position. Read only.

- Surveys: {surveys}. An alert's id is Rubin's diaSourceId or ZTF's candid; an object's id is
  Rubin's diaObjectId or ssObjectId, or ZTF's objectId such as ZTF21abiuvdk. Ids have 64 bits: keep
  them as text. An asteroid or comet has its number or designation, such as 45685, 2011 UW158 or
  C/2017 K2; names such as Ceres are not known.
- Fluxes are AB in nJy on the difference image, so they may be negative. Magnitude = 31.4 - 2.5
  log10(flux), for a positive flux alone. A limit is no detection: its flux is null.
- Any other survey is an archive of light curves that the site imported: no alerts, and where its
  points have no flux their total_flux is what was measured.
- Times are MJD in TAI; UTC is 37 s less. Positions are ICRS degrees.
- There are no classifications, cross-matches or redshifts: ask a broker for these.
- An error is a problem document (RFC 9457) with a `detail` to show. Status 404 says that nothing
  of that id is stored; an empty list says that there is nothing at that place. A response with the
  header Stampede-Incomplete may lack what is stored.
- A site may demand a token (401) and limit how often you ask (429, Retry-After).
"""
LINKS = (
    ("/v1/alerts?limit=12", "the latest alerts, JSON"),
    ("/v1/alerts/ALERT", "an alert: object, time, cutouts, all fields that the survey sent, JSON"),
    ("/v1/alerts/ALERT/cutouts/KIND?format=png", "an image, north up; KIND is {kinds}"),
    ("/v1/objects/OBJECT/lightcurve?format=csv", "all points of an object; also json, votable"),
    ("/v1/moving/BODY?format=csv", "what alerts show of an asteroid or comet; BODY is 2011_UW158"),
    ("/v1/cone?ra=10.68&dec=41.27&radius=5", "objects around a position, radius in arcsec, JSON"),
    ("/v1/ledger", "which alerts of the stream are stored, dead-lettered or missing, JSON"),
    ("/openapi.json", "all routes, parameters and formats"),
    ("/docs", "the same as a page, with commands to copy"),
    ("/objects/OBJECT", "the page of an object, to show to a person"),
    ("/alerts/ALERT", "the page of an alert, to show to a person"),
)


async def get_guide(request: Request) -> Response:
    """What this server has, how to ask for it, and what its columns mean."""
    origin = service_of(request).access.proxies.origin_of(request)
    text = SUMMARY.format(surveys=", ".join(surveys.names()))
    text += "\n## Routes\n\n" + "".join(
        f"- [{path}]({origin}{path}): {what.format(kinds=', '.join(KINDS))}\n"
        for path, what in LINKS
    )
    text += "\n## Columns of a light curve\n\n" + "".join(_described(COLUMNS))
    text += "\n## Columns of a body of the solar system\n\n" + "".join(_described(MOVING))
    text += "\n## Columns of a cone\n\n" + "".join(_described(FOUND))
    return PlainTextResponse(text, headers={"Cache-Control": "no-cache"})


def _described(fields: list[pa.Field] | pa.Schema) -> Iterator[str]:
    for field in fields:
        metadata = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
        unit = f" [{metadata['unit']}]" if "unit" in metadata else ""
        yield f"- {field.name}{unit}: {metadata.get('doc', '')}\n"
