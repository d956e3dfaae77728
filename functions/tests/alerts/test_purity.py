"""Decoding does no I/O of its own: its callers hand in files, the clock and randomness."""

import ast
from pathlib import Path

import stampede.alerts

IMPURE = {"datetime", "http", "io", "os", "pathlib", "random", "requests", "secrets", "socket"} | {
    *("subprocess", "tempfile", "time", "urllib", "urllib3", "uuid"),
}
ALLOWED = {("framing.py", "io")}  # io.BytesIO: `whole_record` reads a record from memory


def test_alerts_import_nothing_that_does_io() -> None:
    folder = Path(stampede.alerts.__path__[0])
    found = set()
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {(file.name, alias.name.partition(".")[0]) for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add((file.name, (node.module or "").partition(".")[0]))
    assert len(found) > 20
    assert {(file, name) for file, name in found if name in IMPURE} == ALLOWED
