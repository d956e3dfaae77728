"""manifests/stress.yaml: a Job that tests the site's Ceph and leaves no objects."""

import re
import shlex
from pathlib import Path

import pytest

from e2e.commands import until
from e2e.on_cluster.__main__ import KEYS, image
from e2e.on_cluster.release import Release
from e2e.places import ROOT
from stampede.store.conformance import CHECKS

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

MANIFEST = ROOT / "manifests" / "stress.yaml"
STORE = "http://ceph.site.svc:8000/stress"  # a bucket that does not exist yet
LIST = f"""
from stampede.config.settings import Settings
from stampede.store.open import open_objects
for info in open_objects(Settings(store={STORE!r})).list(""):
    print(info.key)
"""


def commands(directory: Path) -> list[list[str]]:
    """The commands in its header, with `--quick` and with the store and its keys filled in."""
    text = MANIFEST.read_text()
    quick = directory / "stress.yaml"
    quick.write_text(text.replace("[stress, ", "[stress, --quick, "))
    access, secret = KEYS["ceph"]
    head = text.partition("apiVersion")[0].replace("\\\n#", "")
    for blank, filled in (
        ("https://HOST/BUCKET", STORE),
        ("access-key=…", f"access-key={access}"),
        ("secret-key=…", f"secret-key={secret}"),
        ("manifests/stress.yaml", str(quick)),
    ):
        assert blank in head
        head = head.replace(blank, filled)
    return [shlex.split(line) for line in re.findall(r"^#   kubectl (.+)", head, re.MULTILINE)]


def test_stress_as_a_job(release: Release, tmp_path: Path) -> None:
    kubectl = release.cluster.kubectl
    release.cluster.backend.load(image("stampede-bench"))
    secret, apply, wait, logs, delete = commands(tmp_path)
    kubectl(*delete, "--ignore-not-found")  # left over from a killed run
    try:
        kubectl(*secret)
        kubectl(*apply)
        kubectl(*wait, seconds=400)
        output = kubectl(*logs, seconds=600).output  # until it ends
        until(lambda: conditions(release) & {"Complete", "Failed"}, 60, 0.5)
        assert "Complete" in conditions(release), output
    finally:
        kubectl(*delete, "--ignore-not-found")
    assert "stress --quick" in output
    assert f"{STORE}, under stress-" in output
    met = re.findall(r"^\| stress \| what works \|.*: met \|", output, re.MULTILINE)
    assert len(met) == len(CHECKS), output
    assert re.search(r"^\| stored \| \d,\d{3} \| objects \|", output, re.MULTILINE), output
    assert release.python(LIST) == ""


def conditions(release: Release) -> set[str]:
    """The conditions of the Job that are true."""
    (job,) = release.get("jobs", "stress")
    found = job["status"].get("conditions", ())
    return {each["type"] for each in found if each["status"] == "True"}
