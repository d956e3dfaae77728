"""`make release`: the same commit gives the same bytes, and the wheel works."""

import email
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from e2e.places import ROOT

pytestmark = [pytest.mark.timeout(1800), pytest.mark.nightly]
PERMISSIVE = re.compile(
    r"Apache|MIT|BSD|ISC|PSF|Python Software Foundation|MPL-2\.0|Mozilla|Zlib|CC0|HPND|Unlicense"
)


def make_release(out: Path) -> Path:
    """A release without the image."""
    program = str(ROOT / "tools" / "release")
    subprocess.run([sys.executable, program, "--without-image", "--out", str(out)], check=True)
    return out


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_release(tmp_path_factory.mktemp("release") / "one")


def files(release: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in release.iterdir()}


def test_two_releases_of_a_commit_are_the_same_bytes(release: Path, tmp_path: Path) -> None:
    assert files(make_release(tmp_path / "two")) == files(release)


def test_the_sums_are_those_of_all_files(release: Path) -> None:
    one = files(release)
    assert {Path(name).suffix for name in one} >= {".whl", ".tgz", ".json", ".txt"}
    sums = one["SHA256SUMS"].decode().splitlines()
    assert len(sums) == len(one) - 1
    for line in sums:
        digest, name = line.split()
        assert hashlib.sha256(one[name]).hexdigest() == digest


def test_the_sbom_has_every_pinned_package_with_a_permissive_licence(release: Path) -> None:
    (sbom,) = release.glob("*.cdx.json")
    document = json.loads(sbom.read_text())
    assert document["bomFormat"] == "CycloneDX"
    pinned = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.txt").read_text(), re.M)
    listed = {(each["name"].lower().replace("_", "-"), each["version"]): each
              for each in document["components"]}  # fmt: skip
    for name, version in pinned:
        component = listed[name.lower().replace("_", "-"), version]
        licences = json.dumps(component["licenses"])
        assert PERMISSIVE.search(licences), f"{name}: {licences}"
        assert "GPL" not in licences.replace("LGPL", ""), name
    (wheel,) = release.glob("stampede_client-*.whl")
    client = listed["stampede-client", wheel.name.split("-")[1]]
    assert client["hashes"][0]["content"] == hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert not any(path in sbom.read_text() for path in ("file:", str(ROOT)))


@pytest.mark.parametrize("package", ["stampede_alerts", "stampede_client"])
def test_a_wheel_says_what_it_is(release: Path, package: str) -> None:
    (wheel,) = release.glob(f"{package}-*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        said = email.message_from_bytes(file.read(metadata))
    assert said["Name"].replace("-", "_") == package
    assert f"-{said['Version']}-" in wheel.name
    assert said["License-Expression"] == "Apache-2.0"
    assert said["License-File"] == "LICENSE"
    assert [name for name in names if name.endswith("licenses/LICENSE")]
    assert said["Author"] == "The Stampede authors"
    assert said["Requires-Python"] == ">=3.11"
    assert said["Description-Content-Type"] == "text/markdown"
    assert said.get_payload().startswith("# ")
    assert len(said["Summary"]) > 40
    assert "light curves" in said["Keywords"]
    assert "Topic :: Scientific/Engineering :: Astronomy" in said.get_all("Classifier")
    assert [name for name in names if name.endswith("py.typed")]


def test_the_chart_is_one_that_helm_reads(release: Path) -> None:
    (chart,) = release.glob("*.tgz")
    with tarfile.open(chart) as tar:
        names = tar.getnames()
    assert names[0] == "stampede/Chart.yaml"
    helm = subprocess.run(
        [sys.executable, "-m", "e2e.cluster", "tool", "helm"],
        cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE,
    ).stdout.split()[-1]  # fmt: skip
    subprocess.run([helm, "lint", chart], check=True)


def test_the_wheel_runs(release: Path, tmp_path: Path) -> None:
    (wheel,) = release.glob("stampede_alerts-*.whl")
    venv.create(tmp_path / "new", with_pip=False)
    packages = next((ROOT / "build" / "release" / "packages").glob("lib/python3*/site-packages"))
    code = "from stampede.cli.main import main; main()"
    asked = ["settings", "--data", str(tmp_path)]  # of none of the systems that other tests run
    done = subprocess.run(
        [tmp_path / "new" / "bin" / "python", "-c", code, *asked],
        env={"PYTHONPATH": f"{wheel}:{packages}"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "STAMPEDE_STORE" in done.stdout


def test_the_wheel_of_the_client_runs_alone(release: Path) -> None:
    (wheel,) = release.glob("stampede_client-*.whl")
    code = "import stampede_client as s; print(s.__file__); s.connect('http://127.0.0.1:9')"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={"PYTHONPATH": str(wheel)}, cwd="/", capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(wheel))
