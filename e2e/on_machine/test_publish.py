"""`tools/publish` fills a real registry, and others' programs find, check and use what is there."""

import base64
import hashlib
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.built.binaries import tool
from e2e.places import ROOT
from e2e.registry import Registry, registry
from e2e.small_release import COMMIT, PATH, PUBLISH, VERSION, Dist, make_key, raw, skopeo

sys.path.insert(0, str(ROOT / "tools"))
from releases.archives import pack_chart
from releases.layout import configuration


@pytest.fixture
def dist(tmp_path: Path, address: str) -> Dist:
    return Dist(tmp_path / "dist", f"{address}/{PATH}")


@pytest.fixture
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry, and the login for skopeo and cosign."""
    subprocess.run([ROOT / "tools" / "need", "skopeo"], check=True)
    with registry(tmp_path / "registry") as running:
        monkeypatch.setenv("DOCKER_CONFIG", str(running.logins))
        monkeypatch.setenv("REGISTRY_AUTH_FILE", str(running.logins / "config.json"))
        yield running


@pytest.fixture
def address(filled: Registry) -> str:
    return filled.address


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return make_key(tmp_path / "key.pem")


Publish = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def publish(dist: Dist, address: str) -> Publish:
    def publish(*options: object) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, PUBLISH, f"{address}/{PATH}", "--from", str(dist.directory)]
        return subprocess.run([*line, *map(str, options)], capture_output=True, text=True)

    return publish


def tags(address: str, repository: str) -> list[str]:
    name = f"docker://{address}/{PATH}/{repository}"
    return sorted(json.loads(skopeo("list-tags", "--tls-verify=false", name))["Tags"])


def pushed(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Digests by name, as tools/publish printed them."""
    assert done.returncode == 0, done.stderr
    return dict(line.split("@") for line in done.stdout.splitlines())


def test_others_find_image_and_chart_by_digest(
    publish: Publish, dist: Dist, address: str, tmp_path: Path
) -> None:
    image, chart = pushed(publish()).items()
    assert [name.removeprefix(address) for name, _ in (image, chart)] == [
        f"/{PATH}/stampede:{VERSION}",
        f"/{PATH}/charts/stampede:{VERSION}",
    ]
    for name, digest in (image, chart):
        assert f"sha256:{hashlib.sha256(raw(name)).hexdigest()}" == digest
    by_digest = f"{address}/{PATH}/stampede@{image[1]}"
    for architecture in ("amd64", "arm64"):
        one = (f"--override-arch={architecture}", "inspect", "--tls-verify=false", "--config")
        found = json.loads(skopeo(*one, f"docker://{by_digest}"))
        assert (found["architecture"], found["config"]["User"]) == (architecture, "65532:65532")
        assert app_of(by_digest, architecture, tmp_path) == f"the program of {architecture}"
    helm(tmp_path, "pull", f"oci://{address}/{PATH}/charts/stampede@{chart[1]}")
    name = f"stampede-{VERSION}.tgz"
    (mine,) = dist.directory.glob("*.tgz")
    (pulled,) = tmp_path.glob("stampede*.tgz")
    assert (mine.name, mine.read_bytes()) == (name, pulled.read_bytes())


def app_of(name: str, architecture: str, tmp_path: Path) -> str:
    """The one file of an image, pulled."""
    target = tmp_path / f"pulled-{architecture}"
    line = (f"--override-arch={architecture}", "copy", "--quiet", "--src-tls-verify=false")
    skopeo(*line, f"docker://{name}", f"dir:{target}")
    (layer,) = json.loads((target / "manifest.json").read_text())["layers"]
    with tarfile.open(target / layer["digest"].removeprefix("sha256:")) as tar:
        return tar.extractfile("app").read().decode()


def helm(cwd: Path, *arguments: object) -> str:
    logins = f"--registry-config={os.environ['REGISTRY_AUTH_FILE']}"
    line = [str(tool("helm")), *map(str, arguments), logins, "--plain-http"]
    done = subprocess.run(line, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_helm_installs_from_the_registry(publish: Publish, address: str, tmp_path: Path) -> None:
    image, _ = pushed(publish()).items()
    values = {
        "store.url": "http://s3.example.org/stampede",
        "store.existingSecret": "store-keys",
        "image.digest": image[1],
        "eventKey.value": "the-key-of-this-test",
    }
    rendered = helm(
        tmp_path,
        *("template", "sky", f"oci://{address}/{PATH}/charts/stampede", f"--version={VERSION}"),
        *("--kube-version=1.35", "--api-versions=serving.knative.dev/v1"),
        *(f"--set={key}={value}" for key, value in values.items()),
    )
    named = {line.split()[-1] for line in rendered.splitlines() if " image: " in line}
    assert named == {f"{image[0].rpartition(':')[0]}@{image[1]}"}


def test_a_chart_takes_its_image_from_its_home(tmp_path: Path) -> None:
    home = "registry.test:5000/sky"
    pack_chart(ROOT / "charts" / "stampede", str(tool("helm")), tmp_path, 1, home)
    (chart,) = tmp_path.glob("stampede-*.tgz")
    with tarfile.open(chart) as tar:
        about, values = (
            yaml.safe_load(tar.extractfile(f"stampede/{name}.yaml")) for name in ("Chart", "values")
        )
    assert values["image"]["repository"] == f"{home}/stampede"
    (image,) = yaml.safe_load(about["annotations"]["artifacthub.io/images"])
    assert image["image"] == f"{home}/stampede:{VERSION}"


def test_the_same_release_again_changes_nothing(
    publish: Publish, filled: Registry, address: str, key: Path
) -> None:
    first = pushed(publish("--key", key))
    files = filled.contents()
    again = publish("--key", key)
    assert pushed(again) == first
    assert "push " not in again.stderr
    assert filled.contents() == files
    assert len(tags(address, "stampede")) == len(tags(address, "charts/stampede")) == 3


def test_another_content_of_a_version_is_refused(
    publish: Publish, dist: Dist, filled: Registry
) -> None:
    pushed(publish())
    files = filled.contents()
    _, theirs = configuration(dist.directory / f"stampede-{VERSION}.arm64.image.tar")
    _, mine = configuration(dist.add_image("arm64", "another program"))
    refused = publish()
    assert refused.returncode == 1
    for part in (f"{PATH}/stampede:{VERSION} is there", theirs, mine, "as a new version"):
        assert part in refused.stderr
    dist.add_image("arm64", "the program")
    assert pushed(publish())
    (chart,) = dist.directory.glob("*.tgz")
    chart.write_bytes(chart.read_bytes() + b"\0")
    dist.sum()
    assert f"{PATH}/charts/stampede:{VERSION} is there" in publish().stderr
    assert filled.contents() == files


def test_a_version_is_not_half_another(publish: Publish, dist: Dist, address: str) -> None:
    """The chart is another, and the image is not there: neither is pushed."""
    pushed(publish())
    dist.pack(f"{address}/other")
    name = f"docker://{address}/{PATH}/charts/stampede:{VERSION}"
    other = name.replace(PATH, "other")
    skopeo("copy", "--src-tls-verify=false", "--dest-tls-verify=false", name, other)
    line = [sys.executable, PUBLISH, f"{address}/other"]
    done = subprocess.run([*line, "--from", dist.directory], capture_output=True, text=True)
    assert done.returncode == 1
    assert "other/charts/stampede" in done.stderr
    listed = json.loads(skopeo("list-tags", "--tls-verify=false", other.rpartition(":")[0]))
    assert listed["Tags"] == [VERSION]
    with pytest.raises(subprocess.CalledProcessError):
        raw(f"{address}/other/stampede:{VERSION}")


def test_openssl_verifies_signature_and_provenance(
    publish: Publish, address: str, key: Path, tmp_path: Path
) -> None:
    """By what the formats say alone: a key, a message and a signature."""
    for name, digest in pushed(publish("--key", key)).items():
        repository = name.rpartition(":")[0]
        payload, annotations = signed(f"{repository}:{digest.replace(':', '-')}.sig", tmp_path)
        signature = annotations["dev.cosignproject.cosign/signature"]
        assert verifies(key, payload, signature, tmp_path)
        assert not verifies(key, payload + b" ", signature, tmp_path)
        critical = json.loads(payload)["critical"]
        assert critical["image"] == {"docker-manifest-digest": digest}
        envelope, _ = signed(f"{repository}:{digest.replace(':', '-')}.att", tmp_path)
        statement = json.loads(envelope)
        body = base64.b64decode(statement["payload"])
        kind = statement["payloadType"]
        message = f"DSSEv1 {len(kind)} {kind} {len(body)} ".encode() + body
        assert verifies(key, message, statement["signatures"][0]["sig"], tmp_path)
        subject = {"name": repository, "digest": {"sha256": digest.removeprefix("sha256:")}}
        assert json.loads(body)["subject"] == [subject]
        made = json.loads(body)["predicate"]["buildDefinition"]["resolvedDependencies"]
        assert made[0]["digest"] == {"gitCommit": COMMIT}


def signed(name: str, tmp_path: Path) -> tuple[bytes, dict[str, Any]]:
    """The one layer of an artefact, and its annotations."""
    (layer,) = json.loads(raw(name))["layers"]
    target = tmp_path / name.rpartition(":")[2] / str(len(layer["digest"]))
    target.parent.mkdir(exist_ok=True)
    skopeo("copy", "--quiet", "--src-tls-verify=false", f"docker://{name}", f"dir:{target}")
    content = (target / layer["digest"].removeprefix("sha256:")).read_bytes()
    for file in target.iterdir():
        file.unlink()
    return content, layer["annotations"]


def verifies(key: Path, message: bytes, signature: str, tmp_path: Path) -> bool:
    (tmp_path / "message").write_bytes(message)
    (tmp_path / "signature").write_bytes(base64.b64decode(signature))
    line = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", key.with_suffix(".pub"), "-rawin"]
    files = ["-in", tmp_path / "message", "-sigfile", tmp_path / "signature"]
    return subprocess.run([*line, *files], capture_output=True).returncode == 0


@pytest.mark.nightly  # it builds cosign, the first time
@pytest.mark.timeout(1800)
def test_cosign_verifies_signature_and_provenance(
    publish: Publish, key: Path, tmp_path: Path
) -> None:
    cosign = subprocess.check_output([ROOT / "tools" / "cosign" / "build"], text=True).strip()
    other = make_key(tmp_path / "other.pem")
    # There is no log of signatures on loopback, and no TLS.
    options = ("--insecure-ignore-tlog=true", "--allow-http-registry")
    for name in pushed(publish("--key", key)):
        for command in (("verify",), ("verify-attestation", "--type=slsaprovenance1")):
            for each, status in ((key, 0), (other, 1)):
                line = [cosign, *command, f"--key={each.with_suffix('.pub')}", *options, name]
                done = subprocess.run(line, capture_output=True, text=True)
                assert min(done.returncode, 1) == status, done.stderr


def test_a_signature_of_another_key_is_not_replaced(
    publish: Publish, key: Path, tmp_path: Path
) -> None:
    pushed(publish("--key", key))
    refused = publish("--key", make_key(tmp_path / "other.pem"))
    assert refused.returncode == 1
    assert ".sig is another signature" in refused.stderr


def test_what_cannot_be_published_is_named(
    publish: Publish, dist: Dist, address: str, tmp_path: Path
) -> None:
    def refusal(*options: object) -> str:
        done = publish(*options)
        assert (done.returncode, done.stdout) == (1, ""), done.stderr
        (line,) = done.stderr.splitlines()
        return line

    dist.pack("registry.test/sky")
    assert "the chart was made for the image registry.test/sky/stampede: make it" in refusal()
    dist.pack("")
    assert "the chart was made for no registry: make it with tools/release" in refusal()
    dist.pack(f"{address}/{PATH}")
    (tmp_path / "no-key").write_text("hello")
    assert "no-key is not a private key in PEM" in refusal("--key", tmp_path / "no-key")
    dist.add_provenance(changed=True)
    assert f"not those of commit {COMMIT}" in refusal()
    dist.add_provenance(changed=False)
    dist.add_image("arm64", "another", "again")
    assert "are both of arm64" in refusal()
    (dist.directory / f"stampede-{VERSION}.again.image.tar").write_text("cut off")
    assert "again.image.tar is not the file that SHA256SUMS names" in refusal()
    (dist.directory / f"stampede-{VERSION}.again.image.tar").unlink()
    assert "lacks " in refusal()
    dist.sum()
    assert publish().returncode == 0


def test_without_a_login_the_registry_refuses(
    publish: Publish, monkeypatch: pytest.MonkeyPatch, filled: Registry
) -> None:
    for name in ("DOCKER_CONFIG", "REGISTRY_AUTH_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    done = publish()
    assert done.returncode == 1
    assert "unauthorized" in done.stderr.lower()
    assert not filled.contents()


def test_a_registry_that_does_not_answer_is_named(dist: Dist) -> None:
    dist.pack("127.0.0.1:1/sky")
    line = [sys.executable, PUBLISH, "127.0.0.1:1/sky", "--from", str(dist.directory)]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 1
    assert "tools/publish: 127.0.0.1:1/sky/stampede:" in done.stderr
    assert "connection refused" in done.stderr
