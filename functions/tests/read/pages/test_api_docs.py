"""Each command of the page of the API runs as it is, with ids that exist."""

import html as entities
import io
import re
import shutil
import subprocess
from contextlib import redirect_stdout

import astropy.io.fits
import astropy.table
import httpx
import pytest

from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from tests.support.read.html_page import html
from tests.support.read.read_service import LSST_ALERT, LSST_OBJECT, serving


def commands(text: str, language: str) -> list[str]:
    return [entities.unescape(one) for one in re.findall(rf'class="{language}">(.*?)</code>', text)]


@pytest.fixture
def text(read) -> str:
    return html(read("/docs"))[1]


def test_each_route_is_there_with_ids_of_the_latest_alert(read, text):
    paths = read("/openapi.json").json()["paths"]
    operations = [(method.upper(), path) for path, item in paths.items() for method in item]
    shown = re.findall(r'method">(\w+)</span> <code>(.*?)</code>', text)
    assert sorted(shown) == sorted(operations)
    assert f"/v1/alerts/{LSST_ALERT}/cutouts/science" in text
    assert f"/v1/objects/{LSST_OBJECT}/lightcurve" in text
    assert f"URL={read.url}" in text


def test_each_python_line_runs(read, text):
    names = {"URL": read.url, "httpx": httpx, "astropy": astropy}
    lines = commands(text, "python")
    assert len(lines) > 20
    with redirect_stdout(io.StringIO()):
        for line in lines:
            assert eval(line, names) is not None, line


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_each_curl_command_runs(read, text, tmp_path):
    lines = commands(text, "curl")
    assert len(lines) > 20
    script = "\n".join(f"{line} || echo failed: {line} >&2" for line in ["set -u", *lines])
    done = subprocess.run(
        ["bash", "-c", script],
        env={"URL": read.url, "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        errors="replace",
    )
    assert "failed" not in done.stderr, done.stderr
    assert (tmp_path / "thumbnail.png").read_bytes().startswith(b"\x89PNG")


def test_without_alerts_the_page_says_so():
    for read in serving(make_app(Settings(), MemoryObjects())):
        assert "No alert is stored here yet" in html(read("/docs"))[1]
