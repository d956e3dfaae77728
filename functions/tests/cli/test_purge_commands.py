"""The commands of the how-to about programmes, on two real Cephs."""

import json
import re
from pathlib import Path

from stampede.config.settings import Settings
from stampede.store.open import open_objects, open_replica
from stampede.store.programmes.keys import programids_of
from tests.cli.conftest import run
from tests.support.alerts.mixed_programmes import mixed_alert, programmes_in
from tests.support.store.stored_packets import store
from tests.support.store.two_sites import environment, second_ceph, sites

__all__ = ["run", "second_ceph", "sites"]  # fixtures
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "programmes.md"
COMMANDS = re.findall(r"^\$ STAMPEDE_ZTF_PROGRAMIDS=1 stampede (.+)$", PAGE.read_text(), re.M)
CANDID, OTHER = 2430301980815015000, 2430301980815015100


def test_a_programme_is_withheld_and_then_removed_at_both_sites(
    run, serve, sites: Settings
) -> None:
    env = {f"STAMPEDE_{name}": value for name, value in environment(sites).items()}
    partners = sites.model_copy(update={"ztf_programids": "1,2,3"})
    store(partners, [mixed_alert(CANDID), mixed_alert(OTHER, 2, [2], object_id="ZTF18bbbbbbb")])
    assert run("reconcile", "--all", **env, STAMPEDE_ZTF_PROGRAMIDS="1,2,3").status == 0

    given = {name.removeprefix("STAMPEDE_"): value for name, value in env.items()}
    read = serve("read", **given, ZTF_PROGRAMIDS="1")

    def get(path: str) -> tuple[int, bytes]:
        response = read.http.request("GET", f"{read.url}{path}", retries=False)
        return response.status, response.data

    def programmes() -> set[int]:
        points = json.loads(get("/v1/objects/ZTF18aaaaaaa/lightcurve")[1])["detections"]
        return {point["programid"] for point in points}

    assert programmes() == {1}
    assert get("/v1/objects/ZTF18bbbbbbb/lightcurve")[0] == 404
    assert get(f"/v1/alerts/{OTHER}/cutouts/science")[0] == 404
    assert get(f"/v1/alerts/{CANDID}/cutouts/science")[0] == 200

    check, purge = COMMANDS
    env["STAMPEDE_ZTF_PROGRAMIDS"] = "1"
    assert run(*check.split(), **env).status == 1
    assert run(*purge.split(), **env).status == 0
    assert run(*check.split(), **env).status == 0
    for site in (open_objects(sites), open_replica(sites)):
        assert {id for info in site.list("") for id in programids_of(info.key)} == {1}
    assert run("reconcile", "--all", **env).status == 0
    assert run("audit", "--deep", **env).status == 0
    assert programmes() == {1}
    status, packet = get(f"/v1/alerts/{CANDID}/packet")
    assert (status, programmes_in(packet)) == (200, [1, 1, 1])
