"""Write the bucket of a release to tests/fixtures: ``python -m tests.support.releases [VERSION]``.

The same commit and the same libraries give the same bytes. A bucket that is there is never made
again: it is what a release has written.
"""

import json
import sys
from collections import Counter
from pathlib import Path

from stampede import __version__
from stampede_local.demo import oracle
from tests.support.releases import contents
from tests.support.releases.bucket import PROGRAMMES, fill
from tests.support.releases.kept import Release
from tests.support.releases.sent import mixed, names_of, stored


def main() -> None:
    """Make the bucket, hold what it says to what was sent, and write that beside it."""
    release = Release.of(sys.argv[1] if len(sys.argv) > 1 else __version__)
    if release.bucket.exists():
        sys.exit(f"{release.bucket} is there: a release's bucket is made once")
    release.bucket.mkdir(parents=True)
    settings = fill(release.bucket)
    (release.bucket / ".under-way").rmdir()
    messages = stored()
    names = names_of(messages)
    said = contents.said(settings, names)
    check(said, messages)
    objects = {key: facts(release.bucket / key) for key in contents.keys(release.bucket)}
    document = {"ztf_programids": PROGRAMMES, "names": names._asdict(), **said, "objects": objects}
    release.file.write_text(json.dumps(document, indent=1) + "\n")
    size = sum(path.stat().st_size for path in release.bucket.rglob("*") if path.is_file())
    print(f"{len(objects)} objects, {size:,} bytes: {release.bucket}")


def check(said: dict, messages: list[bytes]) -> None:
    """Raise `AssertionError` unless what a bucket says is what was sent."""
    whole = {contents.digest(each) for each in messages if each not in mixed()}
    replayed = Counter(each for night in said["nights"].values() for each in night)
    assert whole <= replayed.keys()
    assert replayed.total() == len(messages)
    for message in messages:
        head = oracle.head(message)
        parts = said["alerts"][f"{head['survey']}/{head['alert_id']}"]
        for kind, fits in oracle.cutouts(message).items():
            expected = None if fits is None else contents.digest(fits)
            assert parts[f"cutouts/{kind}"] == expected, (head, kind)
        assert parts["packet"] in replayed
        assert head["object_id"] in said["light_curves"]
    assert said["ledger"]["missing"] == 0
    assert all(said["cones"])


def facts(path: Path) -> list:
    """The digest of an object, and when it was stored, in seconds since 1970-01-01 UTC."""
    return [contents.digest(path.read_bytes()), int(path.stat().st_mtime)]


if __name__ == "__main__":
    main()
