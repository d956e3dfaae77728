"""The name of files' content: nothing but the content decides it."""

import re
from pathlib import Path

import pytest

from stampede.errors import SetupError
from stampede.ingest.identity import identify


def written(path: Path, *contents: bytes) -> list[Path]:
    path.mkdir(parents=True, exist_ok=True)
    files = [path / f"{number}.avro" for number in range(len(contents))]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    return files


def test_the_same_content_has_the_same_name(tmp_path: Path) -> None:
    one = identify(written(tmp_path / "one", b"a", b"b")).topic
    assert identify(written(tmp_path / "autre été", b"a", b"b")).topic == one
    assert re.fullmatch("files-[0-9a-f]{24}", one)  # characters that a topic's name may have


@pytest.mark.parametrize(
    "other", [[b"b", b"a"], [b"ab"], [b"ab", b""], [b"a"], [b"a", b"b", b""], [b"a", b"c"]]
)
def test_other_content_has_another_name(tmp_path: Path, other: list[bytes]) -> None:
    name = identify(written(tmp_path / "one", b"a", b"b")).topic
    assert identify(written(tmp_path / "two", *other)).topic != name


def test_reading_tells_how_far_it_is_and_can_be_stopped(tmp_path: Path) -> None:
    files = written(tmp_path, bytes(3 << 20), bytes(5))
    told: list[int] = []
    assert identify(files, progress=lambda done: not told.append(done)).topic
    assert told == [1 << 20, 2 << 20, 3 << 20, (3 << 20) + 5]
    assert identify(files, progress=lambda done: done < 2 << 20).topic == ""


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="gone cannot be read: No such file"):
        identify([tmp_path / "gone"])
