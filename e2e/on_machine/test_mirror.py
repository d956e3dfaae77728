"""`tools/mirror` carries the images of a release by a directory, from one registry to another."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.places import ROOT
from e2e.registry import Registry, registry
from e2e.small_release import PATH, PUBLISH, VERSION, Dist, make_key, raw, skopeo

sys.path.insert(0, str(ROOT / "tools"))
from releases.mirror import image_list, listed, named_in

MIRROR = str(ROOT / "tools" / "mirror")
QUEUE = "knative-releases/knative.dev/serving/cmd/queue"
SIGNATURES = 4  # of image and chart, each with a statement


class Two:
    """A registry that has a release, signed, and one that is empty, and a login for both."""

    def __init__(self, source: Registry, target: Registry, tmp_path: Path) -> None:
        self.source, self.target = source, target
        self.images = tmp_path / "images"
        self.list = tmp_path / "images.txt"
        queue = f"{source.address}/{QUEUE}:v1.23.0\n"
        address = f"{source.address}/{PATH}"
        self.list.write_text(image_list(VERSION, address, f"# Knative Serving\n{queue}"))

    def save(self, *options: object, status: int = 0) -> list[str]:
        given = options or ("--list", self.list)
        return run("save", self.images, *given, status=status)

    def load(self, status: int = 0) -> list[str]:
        return run("load", self.images, f"{self.target.address}/mirror", status=status)


def run(*arguments: object, status: int = 0) -> list[str]:
    """Run tools/mirror; the lines on stderr."""
    line = [sys.executable, MIRROR, *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stderr.splitlines()


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Two]:
    subprocess.run([ROOT / "tools" / "need", "skopeo"], check=True)
    with registry(tmp_path / "source") as source, registry(tmp_path / "target") as target:
        logins = [
            json.loads((each.logins / "config.json").read_text()) for each in (source, target)
        ]
        both = {"auths": logins[0]["auths"] | logins[1]["auths"]}
        (tmp_path / "config.json").write_text(json.dumps(both))
        monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "config.json"))
        dist = Dist(tmp_path / "dist", f"{source.address}/{PATH}")
        key = str(make_key(tmp_path / "key.pem"))
        release = f"{source.address}/{PATH}"
        subprocess.run(
            [sys.executable, PUBLISH, release, "--from", str(dist.directory), "--key", key],
            check=True, capture_output=True,
        )  # fmt: skip
        image = f"docker://{release}/stampede:{VERSION}"
        put(image, f"docker://{source.address}/{QUEUE}:v1.23.0")
        yield Two(source, target, tmp_path)


def put(image: str, name: str) -> None:
    """Give another name to an image, with all architectures."""
    tls = ("--src-tls-verify=false", "--dest-tls-verify=false")
    skopeo("copy", "--all", "--preserve-digests", *tls, image, name)


def test_every_image_arrives_with_its_digest_and_signatures(two: Two) -> None:
    assert [line.partition(" ")[0] for line in two.save()] == ["1/3", "2/3", "3/3"]
    two.source.directory.joinpath("users").write_text("")  # nobody may read there any more
    assert len(two.load()) == 3 + SIGNATURES
    for name in (f"{PATH}/stampede:{VERSION}", f"{PATH}/charts/stampede:{VERSION}"):
        repository, _, _ = name.rpartition(":")
        mirrored = f"{two.target.address}/mirror/{repository}"
        listed_tags = json.loads(skopeo("list-tags", "--tls-verify=false", f"docker://{mirrored}"))
        (signature,) = (each for each in listed_tags["Tags"] if each.endswith(".sig"))
        digest = signature.removesuffix(".sig").replace("-", ":")
        assert raw(f"{mirrored}@{digest}") == raw(f"{mirrored}:{VERSION}")
        (layer,) = json.loads(raw(f"{mirrored}:{signature}"))["layers"]
        assert layer["annotations"]["dev.cosignproject.cosign/signature"]
    index = json.loads(raw(f"{two.target.address}/mirror/{QUEUE}:v1.23.0"))
    assert [each["platform"]["architecture"] for each in index["manifests"]] == ["amd64", "arm64"]


def test_doing_it_again_copies_nothing(two: Two) -> None:
    two.save()
    two.load()
    kept, filled = stats(two.images), two.target.contents()
    (two.images / "cut-off.partial").mkdir()  # as an interrupted run leaves it
    two.save()
    two.load()
    assert stats(two.images) == kept
    assert two.target.contents() == filled


def stats(directory: Path) -> dict[str, int]:
    """When each file was written."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path): path.stat().st_mtime_ns for path in files}


def test_a_tag_that_was_moved_is_copied_again(two: Two) -> None:
    two.save()
    two.load()
    moved = f"{two.source.address}/{QUEUE}:v1.23.0"
    put(f"docker://{two.source.address}/{PATH}/charts/stampede:{VERSION}", f"docker://{moved}")
    two.save()
    two.load()
    assert raw(f"{two.target.address}/mirror/{QUEUE}:v1.23.0") == raw(moved)


def test_images_of_a_manifest_are_copied_by_digest(two: Two, tmp_path: Path) -> None:
    """Also those that Knative's controllers get as variables and from ConfigMaps."""
    digest = skopeo(
        *("inspect", "--tls-verify=false", "--format={{.Digest}}"),
        f"docker://{two.source.address}/{QUEUE}:v1.23.0",
    ).decode().strip()  # fmt: skip
    file = tmp_path / "serving-core.yaml"
    image = f"{two.source.address}/{QUEUE}@{digest}"
    file.write_text(f"kind: ConfigMap\ndata:\n  queue-sidecar-image: {image}\n---\nkind: Other\n")
    two.save("--manifest", file)
    two.load()
    by_digest = f"{two.target.address}/mirror/{QUEUE}@{digest}"
    assert raw(by_digest) == raw(image)
    file.write_text("kind: ConfigMap\n")
    assert two.save("--manifest", file, status=1) == [f"tools/mirror: {file} names no image"]


def test_what_fails_is_named_after_all_others_were_copied(two: Two) -> None:
    absent = f"{two.source.address}/knative-releases/absent:v1"
    two.list.write_text(f"{absent}\n{two.list.read_text()}")
    *_, last = two.save(status=1)
    assert last == f"tools/mirror: {absent} is not there"
    assert len(two.load()) == 3 + SIGNATURES
    (two.target.directory / "users").write_text("")
    lines = [line for line in two.load(status=1) if line.startswith("tools/mirror: ")]
    assert len(lines) == 3 + SIGNATURES
    assert all("cannot be read: " in line for line in lines)


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "images.txt"
    file.write_text("# fine\ngcr.io/a/b:1\nstampede\n")
    assert run("save", tmp_path / "out", "--list", file, status=1) == [
        f"tools/mirror: {file}: line 3: stampede is not the name of an image: "
        "HOST/PATH:TAG or HOST/PATH@DIGEST"
    ]
    assert run("save", tmp_path / "out", status=1) == [
        "tools/mirror: no image is named: give --list images.txt or --manifest FILE.yaml"
    ]
    (line,) = run("load", tmp_path / "out", "127.0.0.1:1", status=1)
    assert line == f"tools/mirror: {tmp_path}/out has no images: run `tools/mirror save` first"


def test_the_list_of_a_release_has_what_the_cluster_of_the_tests_runs() -> None:
    """The release of Knative is the one that manifests/knative installs."""
    line = [sys.executable, "-m", "e2e.cluster", "images"]
    needed = subprocess.check_output(line, cwd=ROOT, text=True)
    names = [str(each) for each in listed(image_list(VERSION, "registry.test/sky", needed))]
    assert names[:2] == [
        f"registry.test/sky/stampede:{VERSION}",
        f"registry.test/sky/charts/stampede:{VERSION}",
    ]
    page = (ROOT / "manifests" / "knative" / "README.md").read_text()
    (release,) = set(re.findall(r"/knative-v([\d.]+\d)", page))
    knative = "gcr.io/knative-releases/knative.dev"
    for program in ("serving/cmd/queue", "serving/cmd/activator", "eventing/cmd/broker/filter"):
        assert f"{knative}/{program}:v{release}" in names
    for name in ("docker.io/library/traefik:v", "ghcr.io/kedacore/keda:"):
        assert [each for each in names if each.startswith(name)], name


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("image: gcr.io/a/b:1", ["gcr.io/a/b:1"]),
        ("- {name: X, value: 'localhost:5000/a@sha256:" + "0" * 64 + "'}",
         ["localhost:5000/a@sha256:" + "0" * 64]),
        ("apiVersion: serving.knative.dev/v1", []),
        ("url: http://example.org/a:1", []),
        ("text: see gcr.io/a/b:1 for more", []),
    ],
)  # fmt: skip
def test_names_are_found_in_manifests(text: str, names: list[str]) -> None:
    assert [str(each) for each in named_in(text)] == names
