"""manifests/stress.yaml: a Job that tests the site's Ceph and leaves no objects."""

import re
import shlex
from pathlib import Path

import pytest

from e2e.commands import until
from e2e.on_cluster.__main__ import KEYS, image
from e2e.on_cluster.kubernetes import Command
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


def commands(directory: Path, kubectl: str) -> list[str]:
    """The commands in its header, with `--quick` and with the store and its keys filled in.

    The pods request less than a core: a test's cluster has few.
    """
    text = MANIFEST.read_text()
    quick = directory / "stress.yaml"
    small = text.replace("[stress, ", "[stress, --quick, ")
    small = small.replace('{cpu: "1", memory: 512Mi}', "{cpu: 10m, memory: 128Mi}")
    assert "cpu: 10m" in small
    quick.write_text(small)
    access, secret = KEYS["ceph"]
    head = text.partition("apiVersion")[0].replace("\\\n#", "")
    for blank, filled in (
        ("https://HOST/BUCKET", STORE),
        ("access-key=…", f"access-key={access}"),
        ("secret-key=…", f"secret-key={secret}"),
        ("manifests/stress.yaml", shlex.quote(str(quick))),
        ("kubectl -n stampede", kubectl),
        ("PODS=1 ", ""),  # the environment has it
    ):
        assert blank in head
        head = head.replace(blank, filled)
    return [line for line in re.findall(r"^#   (.+)", head, re.MULTILINE) if kubectl in line]


@pytest.mark.parametrize("pods", [1, 8])
def test_stress_as_a_job(release: Release, tmp_path: Path, pods: int) -> None:
    backend = release.cluster.backend
    backend.load(image("stampede-bench"))
    kubectl = f"{shlex.quote(str(backend.kubectl))} -n {release.name}"
    bash = Command(Path("/bin/bash"), backend.kubeconfig, PODS=str(pods))
    secret, apply, wait, logs, delete = commands(tmp_path, kubectl)
    bash("-c", f"{delete} --ignore-not-found")  # left over from a killed run
    until(lambda: not release.get("pods", "--selector", "job-name=stress"), 180, 1)
    try:
        bash("-c", secret)
        bash("-c", f"set -o pipefail; {apply}")
        bash("-c", wait, seconds=400)
        output = bash("-c", logs, seconds=600).output  # until it ends
        until(lambda: conditions(release) & {"Complete", "Failed"}, 90, 0.5)
        assert "Complete" in conditions(release), output
    finally:
        bash("-c", f"{delete} --ignore-not-found")
    assert "stress --quick" in output
    assert f"{STORE}, under stress-" in output
    met = re.findall(r"^\| stress \| what works \|.*: met \|", output, re.MULTILINE)
    assert len(met) == len(CHECKS), output
    assert re.search(r"^\| stored \| \d,\d{3} \| objects \|", output, re.MULTILINE), output
    of_all = "" if pods == 1 else f", of {pods} pods"
    for method in ("PUT", "GET"):
        subject = f"{method} of 15,000 bytes, 1,000 at once{of_all}"
        assert re.search(rf"^\| stress \| {subject} \| failed \|.*: met \|", output, re.MULTILINE)
    assert release.python(LIST) == ""


def conditions(release: Release) -> set[str]:
    """The conditions of the Job that are true."""
    (job,) = release.get("jobs", "stress")
    found = job["status"].get("conditions", ())
    return {each["type"] for each in found if each["status"] == "True"}
