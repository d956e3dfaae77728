"""ZTF alerts whose histories have points of several observing programmes."""

from collections.abc import Sequence

from stampede.runtime.clock import now_mjd
from tests.support.alerts import made_alerts
from tests.support.alerts.avro_reading import records
from tests.support.alerts.fits_files import ztf_source
from tests.support.store.stored_packets import FIELDS

NIGHT = int(now_mjd()) - 3
PROGRAMMES = (1, 2, 3)


def mixed_alert(
    candid: int,
    own: int = 1,
    history: Sequence[int | None] = PROGRAMMES,
    codec: str = "null",
    object_id: str = "ZTF18aaaaaaa",
) -> bytes:
    """An alert with a detection, a limit and a forced point of each programme in `history`.

    None is a row that names none: only forced points can. The id of each is 7,700 + ten times its
    programme + 1, 2 or 3: so it tells whose it is.
    """
    candidate = made_alerts.ztf_record(candid)["candidate"] | {"programid": own}
    candidate["jd"] = 2400000.5 + NIGHT + 0.5
    detections, limits, forced = [], [], []
    for number, programid in enumerate(history):
        whose = 7700 + 10 * (programid or own)
        at = {"programid": programid or 0, "jd": candidate["jd"] - 1 - number / 10}
        detections.append(candidate | at | {"candid": whose + 1, "pid": whose + 1})
        nothing = {"magpsf": None, "sigmapsf": None, "isdiffpos": None, "candid": None}
        limits.append(candidate | at | nothing | {"pid": whose + 2})
        counts = {"forcediffimflux": 100.0, "forcediffimfluxunc": 5.0, "magzpsci": 26.0}
        mark = {"programid": programid, "procstatus": f"of programme {programid}"}
        forced.append({"fid": 1, "pid": whose + 3, **at, **counts, **mark})
    images = {
        name: {"fileName": name, "stampData": ztf_source(candid + seed)}
        for seed, name in enumerate(FIELDS)
    }
    return made_alerts.ztf_alert(
        candid,
        codec,
        candidate=candidate,
        objectId=object_id,
        prv_candidates=detections + limits,
        fp_hists=forced,
        **images,
    )


def programmes_in(message: bytes) -> list[int | None]:
    """The programme of each history row of a message, in order."""
    [record] = records(message)
    return [
        row["programid"] for name in ("prv_candidates", "fp_hists") for row in record[name] or ()
    ]
