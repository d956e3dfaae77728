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
from stampede.read.openapi import describe
from stampede.read.pages.api_examples import prose
from stampede.store.objects.memory import MemoryObjects
from tests.read.test_app import EXAMPLES
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
    assert "/v1/moving/2011%20UW158" in text
    assert f"URL={read.url}" in text


def test_data_comes_first_and_all_of_it_is_in_the_contents(read, text):
    parts = re.findall('<h2 class="part" id="(.*?)">', text)
    assert parts == ["data", "pages", "the-server"]
    anchors = re.findall('<section id="(.*?)" class="operation">', text)
    assert len(set(anchors)) == len(anchors) > 30
    assert all(f'<a href="#{anchor}">' in text for anchor in (*anchors, *parts))
    places = [text.index(f'id="{name}"') for name in ("get-v1-ledger", "pages", "get-cone")]
    assert places == sorted(places)
    assert text.index('id="get-metrics"') > text.index('id="the-server"')


def test_words_of_the_description_are_shown_as_people_read_them(text):
    assert "`" not in text
    assert "<li><code>tar</code>: <code>unknown_alerts</code> and" in text
    assert (
        '<code>limit</code></dt><dd>The most alerts. <span class="soft">integer from 1 to 100, by'
        in text
    )
    assert text.count("example copied") == text.count("<pre ")


OF_FORMAT = {
    ("/v1/objects/{object_id}/cutouts", "size"): "apng",
    **{
        ("/v1/alerts/{alert_id}/cutouts/{kind}", name): "png"
        for name in ("stretch", "limits", "orient")
    },
}
"""The format that a parameter is for, by route and name."""


def operations() -> list[tuple[str, str, dict]]:
    found = describe()["paths"].items()
    return [(method, path, one) for path, item in found for method, one in item.items()]


@pytest.mark.parametrize(
    ("method", "path", "operation"), operations(), ids=lambda each: str(each)[:60]
)
def test_each_parameter_says_what_it_is_and_what_is_without_it(read, method, path, operation):
    """A default that is stated is what the server does."""
    for each in operation["parameters"]:
        assert len(each["description"].split()) > 1, each["name"]
        if method != "get" or "default" not in each["schema"]:
            continue
        asked = EXAMPLES.get(path, path)
        if f"{each['name']}=" in asked:
            continue
        if form := OF_FORMAT.get((path, each["name"])):
            asked += f"?format={form}"
        value = str(each["schema"]["default"]).lower()
        without = read(asked)
        assert without.status == 200
        given = read(f"{asked}{'&' if '?' in asked else '?'}{each['name']}={value}")
        kind = without.headers["content-type"]
        assert (given.status, given.headers["content-type"]) == (200, kind), each["name"]
        assert given.data == without.data, each["name"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a `b<c` d", "<p>a <code>b&lt;c</code> d</p>"),
        (
            "One.\n\n- a\n- `b`\n\nTwo.",
            "<p>One.</p><ul><li>a</li><li><code>b</code></li></ul><p>Two.</p>",
        ),
        ("", ""),
    ],
)
def test_prose(text, shown):
    assert str(prose(text)) == shown


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
