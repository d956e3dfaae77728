"""The pages of proofs: what they say of a sound proof, and of one that is not."""

import html as entities
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.proofs.night_proof import NightProof, signed
from stampede.read.app import make_app
from stampede.read.pages import proofs as proof_pages
from stampede.store.integrity.proof_keys import proof_key
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects
from stampede.store.runs.run_name import digest
from tests.support.proofs import KEY, alerts, bodies, prove, settings_in
from tests.support.read.html_page import html
from tests.support.read.read_service import Reader, serving
from tests.support.store.stored_packets import store

BROWSER = {"Accept": "text/html"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path)


@pytest.fixture
def objects(settings: Settings) -> Objects:
    return open_objects(settings)


@pytest.fixture
def made(settings: Settings, objects: Objects) -> list[NightProof]:
    """Proofs of revision 1; Kafka has nothing of the offsets 40 to 49."""
    sent = bodies(alerts(60))
    store(settings, sent[:40])
    store(settings, sent[40:], first=50)
    return prove(objects)


@pytest.fixture
def read(settings: Settings, made: list[NightProof]) -> Iterator[Reader]:
    yield from serving(make_app(settings))


def pages_of(settings: Settings, path: str) -> str:
    """A page of a service that is started now."""
    (text,) = (html(read(path, headers=BROWSER))[1] for read in serving(make_app(settings)))
    return text


def path_of(proof: NightProof, sha256: str = "") -> str:
    return f"/proofs/{proof.survey}/{proof.night}" + (f"?sha256={sha256}" if sha256 else "")


def table(text: str) -> dict[str, tuple[int, int]]:
    rows = re.findall(r'"text">([a-z ]+)</td><td[^>]*>([\d,]+)</td><td>([\d,]+)</td>', text)
    return {what: tuple(int(n.replace(",", "")) for n in counts) for what, *counts in rows}


def last_of(made: list[NightProof], survey: str) -> NightProof:
    return max((each for each in made if each.survey == survey), key=lambda each: each.night)


def test_a_page_says_what_its_proof_says(read: Reader, made: list[NightProof]) -> None:
    for proof in made:
        page, text = html(read(path_of(proof)))
        assert proof.root.hex() in text
        assert f"<code>{entities.escape(KEY.public_key)}</code></dd>" in text
        assert '<span class="good">signed</span>' in text
        assert f"<dt>alerts</dt><dd>{proof.alerts}</dd>" in text
        said = {
            name.replace("_", " "): sum(
                high - low for spans in partitions.values() for low, high in spans
            )
            for name, partitions in proof.statement["offsets"].items()
        }
        assert {what: offsets for what, (offsets, _) in table(text).items()} == said
        links = {a["href"] for a in page.all("a")}
        assert f"/v1{path_of(proof)}" in links
        if proof.previous:
            night, sha256 = proof.previous
            assert f"/proofs/{proof.survey}/{night}?sha256={sha256}" in links
        answers = {link: read(link).status for link in links if link.startswith("/")}
        assert set(answers.values()) == {200}, answers
        assert not page.all("script")
    assert {10, 0} == {table(html(read(path_of(each)))[1])["missing"][0] for each in made}


def test_a_revision_that_is_replaced_says_so(
    settings: Settings, objects: Objects, made: list[NightProof]
) -> None:
    store(settings, bodies(alerts(60, seed=9)), first=500)
    proof = last_of([each for each in prove(objects) if each.revision == 2], "lsst")
    (replaced,) = proof.replaces
    text = pages_of(settings, path_of(proof))
    assert f'<a href="{path_of(proof, replaced)}">revision 1</a>' in text
    assert "is replaced" not in text
    earlier = pages_of(settings, path_of(proof, replaced))
    assert "is replaced" in earlier
    assert f'href="/v1{path_of(proof, replaced)}"' in earlier
    assert f"<code>{replaced}</code>" in earlier


def test_the_list_has_the_latest_nights_and_leads_to_the_others(
    read: Reader, made: list[NightProof], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof_pages, "PROOFS", 1)
    seen: list[tuple[str, int]] = []
    path = "/proofs"
    while path:
        page, text = html(read(path))
        found = re.findall(r'href="/proofs/(\w+)/(\d+)"', text)
        assert found
        seen += [(survey, int(night)) for survey, night in found]
        path = next((a["href"] for a in page.all("a") if a.get("rel") == "next"), "")
    nights = [night for _, night in seen]
    assert nights == sorted(nights, reverse=True)
    assert sorted(seen) == sorted((each.survey, each.night) for each in made)


def test_a_signature_that_does_not_hold_is_said(
    settings: Settings, objects: Objects, made: list[NightProof]
) -> None:
    proof, other = last_of(made, "ztf"), last_of(made, "lsst")
    stolen = signed(proof.statement | {"revision": 2, "replaces": [proof.sha256]}, KEY)
    data = stolen.data.replace(stolen.signature.encode(), other.signature.encode())

    objects.put(proof_key("ztf", proof.night, 2, digest(data)), data)
    text = pages_of(settings, path_of(proof))
    assert text.count("the signature is not that of") == 2
    assert '<span class="good">signed</span>' not in text
    unsigned = signed(proof.statement | {"revision": 3, "replaces": [stolen.sha256]}, None)
    objects.put(unsigned.key, unsigned.data)
    text = pages_of(settings, path_of(proof))
    assert '<span class="bad">not signed</span>' in text
    assert "no key" in text


def test_a_damaged_proof_is_said_and_not_sent(
    settings: Settings, objects: Objects, made: list[NightProof]
) -> None:
    proof = last_of(made, "ztf")
    objects.put(proof.key, proof.data.replace(b'"alerts":', b'"alerts": '))
    for read in serving(make_app(settings)):
        got = read(path_of(proof), headers=BROWSER)
        assert got.status == 422
        _, text = html(got)
        assert "does not have the digest in its name" in text
        assert proof.root.hex() not in text
        _, listed = html(read("/proofs"))
        assert listed.count("damaged") == 1
        assert listed.count("signed") >= len(made) - 1


def test_damaged_entries_are_said(
    settings: Settings, objects: Objects, made: list[NightProof]
) -> None:
    proof = last_of(made, "ztf")
    objects.put(proof.leaves_key, objects.get(proof.leaves_key)[:-1] + b"\0")
    assert "does not have the root of its proof" in pages_of(settings, path_of(proof))
    objects.delete(proof.leaves_key)
    assert "cannot be read" in pages_of(settings, path_of(proof))


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/proofs/ztf/1", 404, "night 1 of ztf has no proof."),
        ("/proofs/%3Cb%3E/1", 404, "night 1 of &lt;b&gt; has no proof."),
        ("/proofs/ztf/x", 400, "Not a night"),
        ("/proofs?before=x", 400, "Not a night"),
    ],
)
def test_what_there_is_not(read: Reader, path: str, status: int, said: str) -> None:
    got = read(path, headers=BROWSER)
    assert got.status == status
    _, text = html(got)
    assert said.lower() in text.lower()
    if status == 404:
        assert ">The latest proofs</a>" in text


def test_a_sha256_of_no_revision(read: Reader, made: list[NightProof]) -> None:
    got = read(path_of(made[0], "00" * 32), headers=BROWSER)
    assert got.status == 404
    assert "has no proof with this SHA-256" in html(got)[1]


def test_without_proofs_the_list_says_so(settings: Settings) -> None:
    assert "No night has a proof yet" in pages_of(settings, "/proofs")
