"""`tools/image` does what a Dockerfile says: here with a root file system of a few programs."""

import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from rendering import ROOT

sys.path.insert(0, str(ROOT / "tools"))
from images.archive import write_image, write_layer
from images.context import Context
from images.dockerfile import Copy, Run, Stage, read
from images.layers import Builder, Image, Layer

FUNCTIONS = ROOT / "functions" / "Dockerfile"
BENCH = ROOT / "functions" / "bench.Dockerfile"
SITE = ROOT / "manifests" / "site" / "Dockerfile"
PROGRAMS = ("sh", "rm", "mkdir", "cat", "touch")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="overlays and chroot need root")


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """A root file system with a few programs of this machine and their libraries."""
    layer = Layer("small", tmp_path_factory.mktemp("small"))
    for name in ("proc", "dev", "run", "tmp", "etc"):
        (layer.files / name).mkdir(parents=True)
    for name in ("resolv.conf", "hosts"):
        (layer.files / "etc" / name).touch()
    for program in PROGRAMS:
        path = shutil.which(program)
        assert path
        linked = subprocess.check_output(["ldd", path], text=True)
        libraries = re.findall(r"(/\S+) \(0x", linked)
        for file, to in ((path, f"bin/{program}"), *((each, each[1:]) for each in libraries)):
            target = layer.files / to
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
    (layer.directory / "sha256").write_text(write_layer(layer.files, layer.tar))
    return Image((layer,), {"PATH": "/bin"})


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory to build from."""
    project = tmp_path / "project"
    (project / "code" / "__pycache__").mkdir(parents=True)
    (project / "code" / "main").write_text("one\n")
    (project / "code" / "link").symlink_to("main")
    (project / "code" / "__pycache__" / "main.pyc").write_text("old")
    (project / "secret").write_text("hidden")
    (project / ".dockerignore").write_text("# all but\n*\n!code\n**/__pycache__\n")
    (project / "Dockerfile").write_text("""
ARG BASE=nobody/knows
FROM ${BASE} AS base
RUN echo kept > /kept && mkdir /gone && touch /gone/a

FROM base AS other
ENV WHAT=built
RUN mkdir /out \\
 # a comment between
 && echo $WHAT > /out/$WHAT

FROM base
RUN rm -r /gone
COPY code /opt/code
COPY --from=other /out /opt/out
ENV GREETING="hello there" \\
    LEVEL=2
USER 65532:65532
ENTRYPOINT ["/bin/sh", "-c"]
""")
    return project


@pytest.fixture
def progress() -> list[str]:
    return []


@pytest.fixture
def builder(project: Path, tmp_path: Path, progress: list[str]) -> Builder:
    return Builder(Context(project), tmp_path / "cache", progress.append)


@pytest.fixture
def build(project: Path, builder: Builder, small: Image) -> Callable[..., Image]:
    def build(target: str = "", builder: Builder = builder) -> Image:
        stages = read(project / "Dockerfile", {"BASE": "small"})
        return builder.build(stages, target, {"small": small})

    return build


def steps(progress: list[str]) -> list[str]:
    """The steps that ran, without the lines that say how long they took."""
    return [line for line in progress if not line.startswith(" ")]


def unpacked(archive: Path) -> dict[str, str]:
    """The content of each file of an image by name, as a container would see it."""
    files: dict[str, str] = {}
    with tarfile.open(archive) as image:
        (manifest,) = json.load(image.extractfile("manifest.json"))
        for layer in manifest["Layers"][1:]:  # the built layers, not the base
            with tarfile.open(fileobj=image.extractfile(layer)) as tar:
                for member in tar:
                    folder, _, name = member.name.rpartition("/")
                    if name.startswith(".wh."):
                        gone = f"{folder}/{name[4:]}".lstrip("/")
                        files = {k: v for k, v in files.items() if f"{k}/".find(f"{gone}/") != 0}
                    elif member.isreg():
                        files[member.name] = tar.extractfile(member).read().decode()
                    elif member.issym():
                        files[member.name] = f"-> {member.linkname}"
    return files


@needs_root
def test_an_image_holds_what_its_dockerfile_says(build, tmp_path: Path) -> None:
    image = build()
    write_image(image, "a/b:c", tmp_path / "image.tar")
    assert unpacked(tmp_path / "image.tar") == {
        "kept": "kept\n",
        "opt/code/main": "one\n",
        "opt/code/link": "-> main",
        "opt/out/built": "built\n",
    }
    with tarfile.open(tmp_path / "image.tar") as archive:
        (manifest,) = json.load(archive.extractfile("manifest.json"))
        assert manifest["RepoTags"] == ["a/b:c"]
        about = json.load(archive.extractfile(manifest["Config"]))
        for name, digest in zip(manifest["Layers"], about["rootfs"]["diff_ids"], strict=True):
            content = archive.extractfile(name).read()
            assert f"sha256:{hashlib.sha256(content).hexdigest()}" == digest
    assert about["config"]["User"] == "65532:65532"
    assert about["config"]["Entrypoint"] == ["/bin/sh", "-c"]
    assert {"GREETING=hello there", "LEVEL=2"} < set(about["config"]["Env"])


@needs_root
def test_the_same_files_give_the_same_bytes(build, project: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        builder = Builder(Context(project), tmp_path / name, print)
        write_image(build(builder=builder), "a/b:c", tmp_path / f"{name}.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "other.tar").read_bytes()


@needs_root
def test_only_changed_steps_run_again(build, project: Path, progress: list[str]) -> None:
    first = build()
    assert len(steps(progress)) == 5
    progress.clear()
    assert build() == first
    assert steps(progress) == []
    (project / "secret").write_text("not looked at")
    assert build() == first
    (project / "code" / "main").write_text("two\n")
    second = build()
    assert steps(progress) == ["COPY code /opt/code", "COPY /out /opt/out"]
    assert second.layers[:3] == first.layers[:3]


@needs_root
def test_layers_that_no_build_needs_are_deleted(
    build, builder: Builder, project: Path, tmp_path: Path
) -> None:
    first = build()
    builder.keep("an image")
    (project / "code" / "main").write_text("two\n")
    later = Builder(Context(project), tmp_path / "cache", print)
    second = build(builder=later)
    later.keep("an image")
    left = {path.name for path in (tmp_path / "cache" / "layers").iterdir()}
    assert {layer.key for layer in second.layers} - {"small"} <= left
    assert not left & {layer.key for layer in first.layers[3:]}


@needs_root
def test_a_failed_step_reports_its_output_and_leaves_nothing(
    build, project: Path, tmp_path: Path, progress: list[str]
) -> None:
    with (project / "Dockerfile").open("a") as file:
        file.write("RUN echo about to fail && cat /nowhere\n")
    with pytest.raises(RuntimeError, match=r"(?s)cat /nowhere.*about to fail.*No such file"):
        build()
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {"layers"}
    assert len(list((tmp_path / "cache" / "layers").iterdir())) == 5  # the steps before it
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


@needs_root
def test_a_command_cannot_see_files_of_this_machine(build, project: Path) -> None:
    with (project / "Dockerfile").open("a") as file:
        file.write(f"RUN cat {project}/secret\n")
    with pytest.raises(RuntimeError, match=r"cat: \S+/secret: No such file"):
        build()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ADD a b", "line 3: cannot do `ADD`"),
        ("HEALTHCHECK NONE", "line 3: cannot do `HEALTHCHECK`"),
        ("COPY --chown=1 a b", "its only option is --from"),
        ("ENTRYPOINT stampede", "line 3: cannot do `ENTRYPOINT`"),
    ],
)
def test_unknown_instructions_are_refused(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(f"FROM a\n# a comment\n{line}\n")
    with pytest.raises(ValueError, match=re.escape(message)):
        read(path)


def test_without_a_registry_only_debian_is_possible(build, project: Path) -> None:
    (project / "Dockerfile").write_text("FROM somebody/else:1\n")
    with pytest.raises(ValueError, match="only debian:SUITE-slim can be made"):
        build()


# -- our own Dockerfiles


@pytest.mark.parametrize(
    ("path", "target"), [(FUNCTIONS, ""), (BENCH, ""), (SITE, "ceph"), (SITE, "kafka")]
)
def test_images_run_as_an_unprivileged_user(path: Path, target: str) -> None:
    stages = read(path)
    final = next(stage for stage in reversed(stages) if not target or stage.name == target)
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", str(final.user))
    assert final.entrypoint


def test_the_final_image_has_no_build_tools() -> None:
    *_, final = read(FUNCTIONS)
    stages = {stage.name: stage for stage in read(FUNCTIONS)}
    commands = [step.command for step in stages[final.parent].steps if isinstance(step, Run)]
    assert not re.search(r"pip|gcc|build-essential|-dev\b", " ".join(commands))
    assert not [step for step in final.steps if isinstance(step, Run)]
    assert all(step.stage for step in final.steps if isinstance(step, Copy))


def test_every_dependency_is_checked_by_its_hash() -> None:
    stages = {stage.name: stage for stage in read(FUNCTIONS)}
    (install,) = [
        step.command
        for step in stages["dependencies"].steps
        if isinstance(step, Run) and "pip install" in step.command
    ]
    assert "--require-hashes --requirement /requirements.txt" in install
    assert "--only-binary :all:" in install


def test_no_test_and_no_bytecode_of_this_machine_goes_in() -> None:
    context = Context(ROOT)
    taken = {str(path) for path in context.files("functions")}
    assert "functions/stampede/cli/main.py" in taken
    assert not [path for path in taken if re.search("/tests?[/_]|__pycache__", path)]
    assert list(context.files("e2e")) == []


def our_packages(*stages: Stage) -> dict[str, str]:
    """The Python packages that stages copy from the repository: target by source."""
    return {
        source: step.target
        for stage in stages
        for step in stage.steps
        if isinstance(step, Copy) and step.stage is None
        for source in step.sources
        if source.startswith("functions/")
    }


def test_the_production_image_holds_only_stampede_and_its_simulator() -> None:
    assert our_packages(*read(FUNCTIONS)) == {
        f"functions/{name}": f"/opt/stampede/functions/{name}"
        for name in ("stampede", "stampede_simulator")
    }


def test_the_production_image_has_the_command_of_the_simulator(tmp_path: Path) -> None:
    """Run what the Dockerfile writes as an entry point, with an interpreter that has no other."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    simulate = project["entry-points"]["stampede.commands"]["simulate"]
    written = f"[stampede.commands]\nsimulate = {simulate}\n"
    assert f"printf {written!r}" in FUNCTIONS.read_text()
    folder = tmp_path / "stampede_simulator.dist-info"
    folder.mkdir()
    (folder / "entry_points.txt").write_text(written)
    code = "import importlib.metadata as m; print(*m.entry_points(group='stampede.commands'))"
    command = [sys.executable, "-S", "-c", code]
    run = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert simulate in run.stdout, run.stderr


def test_the_benchmarks_image_adds_only_the_benchmarks() -> None:
    (stage,) = read(BENCH, {"STAMPEDE": "dev.local/stampede"})
    assert stage.parent == "dev.local/stampede"
    assert our_packages(stage) == {
        "functions/stampede_bench": "/opt/stampede/functions/stampede_bench"
    }


def imported(path: Path) -> set[str]:
    """The top-level packages that a module imports, at any place in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def test_stampede_imports_no_other_package() -> None:
    """Their commands come through entry points."""
    paths = sorted((ROOT / "functions" / "stampede").rglob("*.py"))
    others = {"stampede_simulator", "stampede_local", "stampede_bench"}
    found = {path: imported(path) & others for path in paths}
    assert paths
    assert {path: names for path, names in found.items() if names} == {}


def test_stress_starts_without_the_local_servers() -> None:
    code = "import sys; sys.modules['stampede_local'] = None; import stampede_bench.storage.stress"
    env = os.environ | {"PYTHONPATH": str(ROOT / "functions")}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)


def test_the_benchmarks_image_has_the_bench_command() -> None:
    """It has no entry points: it runs the package."""
    (stage,) = read(BENCH, {"STAMPEDE": "dev.local/stampede"})
    assert stage.entrypoint == ["python3", "-m", "stampede_bench"]
    env = os.environ | {"PYTHONPATH": str(ROOT / "functions"), "COLUMNS": "200"}
    command = [sys.executable, *stage.entrypoint[1:], "--help"]
    help_text = subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
    assert "stress" in help_text
    assert "--quick" in help_text


def test_the_image_has_the_version_of_kafka_that_local_kafka_starts() -> None:
    from stampede_local.installer import KAFKA_VERSION

    stages = {stage.name: stage for stage in read(SITE)}
    jars = [
        step for step in stages["kafka"].steps if isinstance(step, Copy) and step.stage == "jars"
    ]
    assert [step.sources[0].rpartition("-")[2] for step in jars] == [KAFKA_VERSION]


def test_the_stage_that_fetches_kafka_has_all_that_the_installer_imports(tmp_path: Path) -> None:
    (jars,) = [stage for stage in read(SITE) if stage.name == "jars"]
    for step in jars.steps:
        if isinstance(step, Copy):
            for source in step.sources:
                Context(ROOT).copy(source, tmp_path / step.target.strip("/") / Path(source).name)
    code = "from stampede_local import installer; print(installer.__file__)"
    path = str(tmp_path / "opt" / "jars")
    command = [sys.executable, "-S", "-c", code]  # without the packages of this environment
    run = subprocess.run(command, env={"PYTHONPATH": path}, capture_output=True, text=True)
    assert run.stdout.startswith(path), run.stderr


def test_chart_manifests_and_tool_agree_on_the_tag() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = (ROOT / "charts" / "stampede" / "Chart.yaml").read_text()
    assert re.search(rf'^appVersion: "?{re.escape(version)}"?$', chart, re.M)
    assert re.search(rf'^version: "?{re.escape(version)}"?$', chart, re.M)
    site = (ROOT / "manifests" / "site").iterdir()
    for path in (*site, ROOT / "manifests" / "stress.yaml", BENCH):
        for tag in re.findall(r"dev\.local/[\w-]+:(\S+)", path.read_text()):
            assert tag == version, path


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("CITATION.cff", "version: {}"),
        ("client/pyproject.toml", 'version = "{}"'),
        ("client/stampede_client/__init__.py", '__version__ = "{}"'),
        ("functions/stampede/__init__.py", '__version__ = "{}"'),
    ],
)
def test_all_files_agree_on_the_version(file: str, line: str) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert line.format(version) in (ROOT / file).read_text().splitlines()
