"""skaffold.yaml is valid, and refers only to files and objects that exist."""

import re
import sys

import pytest
import yaml
from jsonschema import Draft202012Validator
from rendering import LOADER, ROOT, template
from schemas import describe
from skaffold import CONFIG

sys.path.insert(0, str(ROOT / "tools"))
sys.path.insert(0, str(ROOT))
from e2e.skaffold import Config, artifacts, configs, profile
from images.dockerfile import read

PROFILES = ("kind", "cluster")


def problems(config: Config) -> list[str]:
    return [describe(error) for error in Draft202012Validator(CONFIG).iter_errors(config)]


@pytest.mark.parametrize("name", ["site", "stampede"])
def test_the_configs_are_valid(name: str) -> None:
    assert problems(configs()[name]) == []


@pytest.mark.parametrize("name", PROFILES)
def test_the_configs_are_valid_with_a_profile(name: str) -> None:
    assert problems(profile(configs()["stampede"], name)) == []


def test_a_wrong_field_is_found() -> None:
    config = configs()["stampede"]
    config["build"]["artifacts"][0]["docker"]["file"] = "Dockerfile"
    config["deploy"]["helm"]["releases"][0]["wait"] = "yes"
    del config["verify"][0]["container"]["image"]
    found = "\n".join(problems(config))
    assert "build.artifacts.0.docker: " in found
    assert "deploy.helm.releases.0.wait: " in found
    assert "verify.0.container: 'image' is a required property" in found


def test_images_have_existing_dockerfiles() -> None:
    site, stampede = profile(configs()["site"], "kind"), configs()["stampede"]
    known = artifacts(site, stampede)
    for each in known.values():
        docker = each["docker"]
        path = ROOT / docker["dockerfile"]
        stages = read(path, {})
        names = [stage.name for stage in stages]
        assert docker.get("target", names[-1]) in names
        for needed in each.get("requires", ()):
            assert needed["image"] in known
            assert re.search(rf"^ARG {needed['alias']}=", path.read_text(), re.M)


def test_the_site_s_manifests_use_the_built_images() -> None:
    site = profile(configs()["site"], "kind")
    listed = site["manifests"]["rawYaml"]
    files = {str(each.relative_to(ROOT)) for each in (ROOT / "manifests" / "site").glob("*.yaml")}
    assert set(listed) == files
    assert listed[0].endswith("namespace.yaml")
    used = {
        match.rpartition(":")[0]
        for name in listed
        for match in re.findall(r"image:(?: &\w+)? (dev\.local/\S+)", (ROOT / name).read_text())
    }
    assert used == set(artifacts(site))


@pytest.mark.parametrize("name", PROFILES)
def test_the_chart_accepts_the_values(name: str) -> None:
    release = profile(configs()["stampede"], name)["deploy"]["helm"]["releases"][0]
    image = {"image.repository": "a/b", "image.tag": "c"}
    assert set(release["setValueTemplates"]) == set(image)
    sets = release.get("setValues", {}) | image
    files = [each.replace("{{.STAMPEDE_VALUES}}", MINIMAL) for each in release["valuesFiles"]]
    done = template(
        *(word for file in files for word in ("--values", ROOT / file)),
        *(word for key, value in sets.items() for word in ("--set-string", f"{key}={value}")),
        chart=ROOT / release["chartPath"],
    )
    assert done.returncode == 0, done.stderr
    assert "image: a/b:c" in done.stdout


MINIMAL = "charts/stampede/ci/minimal.yaml"


def test_the_keys_are_those_of_the_site() -> None:
    sets = profile(configs()["stampede"], "kind")["deploy"]["helm"]["releases"][0]["setValues"]
    for store, name in (("store", "ceph"), ("replica", "second-ceph")):
        text = (ROOT / "manifests" / "site" / f"{name}.yaml").read_text()
        secret = next(yaml.load_all(text, LOADER))
        assert secret["stringData"] == {
            "access-key": sets[f"{store}.accessKey"],
            "secret-key": sets[f"{store}.secretKey"],
        }


def test_verify_queries_the_deployed_release() -> None:
    stampede = configs()["stampede"]
    release = stampede["deploy"]["helm"]["releases"][0]
    (verify,) = stampede["verify"]
    assert verify["container"]["image"] in artifacts(stampede)
    (code,) = verify["container"]["args"]
    assert f"http://{release['name']}-read.{release['namespace']}.svc/" in code
    compile(code, "verify", "exec")
