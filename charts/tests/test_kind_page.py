"""docs/how-to/kind.md: its commands match files, versions, ports and the programs' options."""

import json
import re
import shlex
import subprocess
import sys
from urllib.parse import urlsplit

import pytest
import yaml
from rendering import ROOT, Object
from rendering import program as helm

sys.path.insert(0, str(ROOT))
from e2e.cluster import manifests
from e2e.cluster.built import binaries, go_modules, images, kind_image
from e2e.cluster.places import INGRESS_PORT
from e2e.skaffold import FILE, configs, profile

PAGE = (ROOT / "docs" / "how-to" / "kind.md").read_text()
COMMANDS = re.findall(r"^\$ (.+)$", PAGE, re.MULTILINE)
WORDS = [shlex.split(each) for each in COMMANDS]
TRAEFIK: list[Object] = [
    *yaml.safe_load_all((ROOT / "manifests" / "knative" / "traefik.yaml").read_text())
]


def of_kind(kind: str) -> list[Object]:
    return [each for each in TRAEFIK if each["kind"] == kind]


def patches() -> dict[str, dict[str, str]]:
    """What the page puts into Knative's ConfigMaps."""
    return {
        words[words.index("configmap") + 1]: json.loads(words[-1])["data"]
        for words in WORDS
        if "patch" in words
    }


def flags(words: list[str]) -> set[str]:
    return {word.partition("=")[0] for word in words if word.startswith("--")}


def subcommand(words: list[str]) -> str:
    """The first word of a command of kubectl that is neither an option nor its value."""
    rest = iter(words[1:])
    for word in rest:
        if not word.startswith("--"):
            return word
        if "=" not in word:
            next(rest)
    raise AssertionError(words)


def test_the_programs_are_those_that_the_page_asks_for() -> None:
    asked = set(re.findall(r"`(\w+)`", PAGE.partition("```console")[0]))
    assert {words[0] for words in WORDS} <= asked | {"curl"}
    assert asked == {"kind", "kubectl", "helm", "skaffold"}
    assert f"`kind` ({minor(go_modules.pinned_version(kind_image.KIND))} or later)" in PAGE


def minor(version: str) -> str:
    return ".".join(version.removeprefix("v").split(".")[:2])


def test_files_exist_and_releases_are_those_that_the_tests_run() -> None:
    named = [words[words.index("--filename") + 1] for words in WORDS if "--filename" in words]
    urls = [each for each in named if "://" in each]
    assert [each for each in named if each not in urls] == ["manifests/knative/traefik.yaml"]
    for url in urls:
        found = re.fullmatch(
            r"https://github\.com/knative/(serving|eventing)/releases/download/"
            r"knative-v1\.(\d+)\.0/[a-z-]+\.yaml",
            url,
        )
        assert found is not None, url
        # Release 1.N is built from the modules 0.(N + 27).
        pinned = go_modules.pinned_version(f"knative.dev/{found[1]}")
        assert pinned.split(".")[1] == str(int(found[2]) + 27)
    assert len(urls) == 6


@pytest.mark.parametrize("words", WORDS, ids=COMMANDS)
def test_each_option_exists(words: list[str]) -> None:
    if words[0] == "kubectl":
        program = binaries.kubectl()
        texts = [
            subprocess.run([program, *line], capture_output=True, text=True, check=True).stdout
            for line in ((subcommand(words), "--help"), ("options",))
        ]
        known = set(re.findall(r"--[a-z-]+", " ".join(texts)))
    elif words[0] == "kind":
        assert words[1:3] == ["create", "cluster"]
        folder = go_modules.pinned_sources(kind_image.KIND) / "pkg/cmd/kind/create/cluster"
        source = (folder / "createcluster.go").read_text()
        known = {f"--{name}" for name in re.findall(r'"([a-z-]+)",\n', source)}
        assert words[4] == "e2e/kind.yaml"
    elif words[0] == "skaffold":
        assert words[1:] == ["run", "--profile", "kind"]
        profile(configs()["stampede"], words[3])
        assert f"skaffold {' '.join(words[1:])} " in FILE.read_text()
        known = {"--profile"}
    else:
        known = {"--fail"}
    assert flags(words) <= known


def test_helm_has_the_command_of_the_page() -> None:
    assert "`helm test stampede --namespace stampede`" in PAGE
    shown = subprocess.run([helm(), "test", "--help"], capture_output=True, text=True, check=True)
    assert "--namespace" in shown.stdout


def test_the_url_leads_by_the_mapped_port_to_traefik() -> None:
    (url,) = (urlsplit(words[-1]) for words in WORDS if words[0] == "curl")
    (domain,) = patches()["config-domain"]
    (release,) = profile(configs()["stampede"], "kind")["deploy"]["helm"]["releases"]
    assert url.hostname == f"{release['name']}-read.{release['namespace']}.{domain}"
    assert f"Host: {url.hostname}" in PAGE
    kind = yaml.safe_load((ROOT / "e2e" / "kind.yaml").read_text())
    (mapping,) = (each for node in kind["nodes"] for each in node.get("extraPortMappings", ()))
    assert domain == f"{mapping['listenAddress']}.sslip.io"
    (node_port,) = (
        port["nodePort"]
        for each in of_kind("Service")
        for port in each["spec"]["ports"]
        if "nodePort" in port
    )
    assert url.port == mapping["hostPort"]
    assert {mapping["containerPort"], node_port} == {INGRESS_PORT}


def test_the_tests_cluster_has_the_same_ingress() -> None:
    ours = manifests.CONFIGURATION["config-network"]
    assert patches()["config-network"] == ours
    (used,) = (each for each in manifests.ingress() if each["kind"] == "Deployment")
    (theirs,) = of_kind("Deployment")
    image = theirs["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image == f"docker.io/library/traefik:{images.TRAEFIK.version}"
    assert images.TRAEFIK.image("traefik") in str(used)
    assert "docker.io" not in str([*manifests.ingress()])


def test_by_default_each_known_ingress_is_admitted() -> None:
    values = yaml.safe_load((ROOT / "charts" / "stampede" / "values.yaml").read_text())
    usual = {"traefik", "kourier-system", "istio-system", "contour-external"}
    assert usual <= set(values["networkPolicy"]["fromNamespaces"])
    assert {each["metadata"]["namespace"] for each in of_kind("Service")} <= usual
    kind = yaml.safe_load((ROOT / "e2e" / "on_cluster" / "values.yaml").read_text())
    assert "fromNamespaces" not in kind["networkPolicy"]


def test_the_job_runs_the_commands_of_the_page() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "kind.yml").read_text())
    *_, last = workflow["jobs"]["kind"]["steps"]
    assert last["name"] == "docs/how-to/kind.md"
    assert last["run"].splitlines() == COMMANDS
