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

pytestmark = pytest.mark.timeout(1800)
PERMISSIVE = re.compile(
    r"Apache|MIT|BSD|ISC|PSF|Python Software Foundation|MPL-2\.0|Mozilla|Zlib|CC0|HPND|Unlicense"
)


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two releases of the same commit, without the image."""
    outs = [tmp_path_factory.mktemp("release") / name for name in ("one", "two")]
    program = str(ROOT / "tools" / "release")
    for out in outs:
        command = [sys.executable, program, "--without-image", "--out", str(out)]
        subprocess.run(command, check=True)
    return outs


def test_two_releases_of_a_commit_are_the_same_bytes(releases: list[Path]) -> None:
    one, two = ({path.name: path.read_bytes() for path in out.iterdir()} for out in releases)
    assert one == two
    assert {Path(name).suffix for name in one} >= {".whl", ".tgz", ".json", ".txt"}
    sums = one["SHA256SUMS"].decode().splitlines()
    assert len(sums) == len(one) - 1
    for line in sums:
        digest, name = line.split()
        assert hashlib.sha256(one[name]).hexdigest() == digest


def test_the_sbom_has_every_pinned_package_with_a_permissive_licence(releases: list[Path]) -> None:
    (sbom,) = releases[0].glob("*.cdx.json")
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
    (wheel,) = releases[0].glob("stampede_client-*.whl")
    client = listed["stampede-client", wheel.name.split("-")[1]]
    assert client["hashes"][0]["content"] == hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert not any(path in sbom.read_text() for path in ("file:", str(ROOT)))


@pytest.mark.parametrize("package", ["stampede_alerts", "stampede_client"])
def test_a_wheel_says_what_it_is(releases: list[Path], package: str) -> None:
    (wheel,) = releases[0].glob(f"{package}-*.whl")
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


def test_the_chart_is_one_that_helm_reads(releases: list[Path]) -> None:
    (chart,) = releases[0].glob("*.tgz")
    with tarfile.open(chart) as tar:
        names = tar.getnames()
    assert names[0] == "stampede/Chart.yaml"
    helm = subprocess.run(
        [sys.executable, "-m", "e2e.cluster", "tool", "helm"],
        cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE,
    ).stdout.split()[-1]  # fmt: skip
    subprocess.run([helm, "lint", chart], check=True)


def test_the_wheel_runs(releases: list[Path], tmp_path: Path) -> None:
    (wheel,) = releases[0].glob("stampede_alerts-*.whl")
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


def test_the_wheel_of_the_client_runs_alone(releases: list[Path]) -> None:
    (wheel,) = releases[0].glob("stampede_client-*.whl")
    code = "import stampede_client as s; print(s.__file__); s.connect('http://127.0.0.1:9')"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={"PYTHONPATH": str(wheel)}, cwd="/", capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(wheel))
