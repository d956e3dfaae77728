"""Two tenants by the values of the how-to: what they share a Ceph and a Kafka with differs."""

import re
from pathlib import Path

import pytest
import yaml
from rendering import CHART, KUBERNETES, LOADER, ROOT, containers, environment, helm, pods

PAGE = (ROOT / "docs" / "how-to" / "two-tenants.md").read_text()
(VALUES,) = re.findall(r"```yaml\n(.+?)```", PAGE, re.DOTALL)
(INSTALL,) = re.findall(r"^\$ helm install (.+)$", PAGE, re.MULTILINE)
OWN = {"STAMPEDE_GROUP", "STAMPEDE_INSTALLATION", "STAMPEDE_NOTIFICATIONS", "STAMPEDE_TOPICS"}


def values_of(tenant: str, folder: Path) -> dict[str, set[str]]:
    """The values of the settings `OWN` in all pods of a tenant's release, by setting."""
    (folder / "north.yaml").write_text(VALUES.replace("north", tenant))
    words = INSTALL.replace("charts/stampede", str(CHART)).split()
    at = words.index("--namespace")
    words[at + 1], words[-1] = tenant, str(folder / "north.yaml")
    # Without access to a cluster the chart can keep no key that it drew.
    key = ("--set", f"eventKey.value={tenant}-is-16-letters")
    done = helm("template", *words, "--kube-version", KUBERNETES, *key)
    assert done.returncode == 0, done.stderr
    found: dict[str, set[str]] = {name: set() for name in OWN}
    for each in filter(None, yaml.load_all(done.stdout, LOADER)):
        named = each["metadata"]
        # Roles of the doctor are in Knative's namespaces, which tenants share.
        assert named.get("namespace", tenant) == tenant or named["name"].startswith(f"{tenant}-")
        for container in (one for pod in pods(each) for one in containers(pod)):
            given = environment(container)
            for name in OWN & given.keys():
                found[name].add(given[name] or "")
    return found


@pytest.mark.parametrize("name", sorted(OWN))
def test_no_two_tenants_share_a_name(name: str, tmp_path: Path) -> None:
    north, south = (values_of(tenant, tmp_path)[name] for tenant in ("north", "south"))
    assert north
    assert not north & south
