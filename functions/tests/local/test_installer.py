import hashlib
from pathlib import Path

import pytest

from stampede.errors import SetupError
from stampede_local import installer


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a shell script first on the PATH, and the cache in a new directory."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "bin").mkdir()

    def make(name: str, script: str) -> None:
        path = tmp_path / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return make


def test_present_programs_are_not_installed() -> None:
    installer.ensure({"sh": "dash"}, install=True, progress=pytest.fail)


def test_without_consent_the_error_has_the_command() -> None:
    with pytest.raises(SetupError) as caught:
        installer.ensure({"sh": "dash", "no-such-program": "some-package"})
    assert "lacks no-such-program." in caught.value.message
    assert "apt-get install --yes --no-install-recommends some-package" in caught.value.message


def test_with_consent_it_installs_and_reports_progress(
    program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    program("apt-get", 'echo "$@"; echo Setting up some-package')
    lines: list[str] = []
    installer.ensure({"no-such-program": "some-package"}, install=True, progress=lines.append)
    assert lines == ["installing some-package (about 20 s)", "  Setting up some-package"]


def test_a_failed_installation_is_reported_with_its_output(
    program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    program("apt-get", "echo E: no network >&2; exit 100")
    with pytest.raises(SetupError, match=r"(?s)`apt-get update` failed.*E: no network"):
        installer.ensure({"no-such-program": "p"}, install=True, progress=lambda line: None)


def test_an_old_java_is_refused(program) -> None:
    program("java", "echo 'openjdk version \"11.0.2\"' >&2")
    with pytest.raises(SetupError, match=r"needs Java 17, .*11\.0\.2"):
        installer.kafka_jars()


FETCH = 'for a in "$@"; do case $a in -DoutputDirectory=*) d=${a#*=};; esac; done; mkdir $d'


@pytest.fixture
def jar_of_letters(program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kafka is one jar, with the bytes ``abc``."""
    program("java", "echo 'openjdk version \"21.0.1\"' >&2")
    digests = tmp_path / "digests"
    digests.write_text(f"{hashlib.sha256(b'abc').hexdigest()}  kafka.jar\n")
    monkeypatch.setattr(installer, "KAFKA_DIGESTS", digests)


@pytest.mark.usefixtures("jar_of_letters")
def test_jars_are_fetched_once_and_completely_or_not_at_all(program, tmp_path: Path) -> None:
    program("mvn", f"{FETCH}; touch $d/half.jar; echo no network; exit 1")
    with pytest.raises(SetupError, match="no network"):
        installer.kafka_jars(lambda line: None)
    assert not list((tmp_path / "cache" / "stampede").iterdir())

    program("mvn", f"{FETCH}; printf abc > $d/kafka.jar")
    jars = installer.kafka_jars(lambda line: None)
    assert [jar.name for jar in jars.iterdir()] == ["kafka.jar"]
    assert installer.kafka_jars(pytest.fail) == jars


@pytest.mark.usefixtures("jar_of_letters")
@pytest.mark.parametrize(
    ("fetched", "named"),
    [
        ("printf abd > $d/kafka.jar", "kafka.jar"),
        ("printf abc > $d/kafka.jar; touch $d/other.jar", "other.jar"),
        ("true", "kafka.jar"),
    ],
)
def test_other_jars_than_the_tested_ones_are_refused(
    program, tmp_path: Path, fetched: str, named: str
) -> None:
    program("mvn", f"{FETCH}; {fetched}")
    with pytest.raises(SetupError, match=f"not Kafka .* as it was tested: {named}"):
        installer.kafka_jars(lambda line: None)
    assert not list((tmp_path / "cache" / "stampede").iterdir())
