"""Tokens of senders: functions refuse who is not of the release, and serve those who are."""

import json
from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from e2e.commands import until
from e2e.on_cluster.load import lacking_thumbnails
from e2e.on_cluster.release import Release
from e2e.on_cluster.stranger import answer, answer_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

COUNT, SEED = 60, 43
# Print a function's events by outcome, from within its pod.
EVENTS = """
import re, urllib.request
page = urllib.request.urlopen("http://127.0.0.1:9400/metrics").read().decode()
for outcome, count in re.findall(r'stampede_events_total{.*?outcome="(.*?)"} (\\S+)', page):
    print(outcome, int(float(count)))
"""


@pytest.fixture(scope="module")
def closed(release: Release) -> Iterator[Release]:
    """The release with tokens required, and Knative's feature that gives them to its senders."""
    feature(release, "enabled")
    try:
        until(lambda: not without_account(release), 180, 2)
        release.install(oidc__mode="required", eventPolicy__enabled="true")
        yield release
    finally:
        release.install(oidc__mode="accepted", eventPolicy__enabled="false")
        feature(release, "disabled")
        release.wait_until_ready()


def feature(release: Release, state: str) -> None:
    """Turn Knative's tokens for senders on or off."""
    patch = json.dumps({"data": {"authentication-oidc": state}})
    place = ("configmap", "config-features", "--namespace", "knative-eventing")
    release.cluster.kubectl("patch", *place, "--patch", patch)


def without_account(release: Release) -> list[str]:
    """Senders that Knative has given no service account yet. The sources mount their own token."""
    selector = ("--selector", "app.kubernetes.io/component!=source")
    return [
        each["metadata"]["name"]
        for each in release.get("triggers,pingsources,sinkbindings", *selector)
        if not each.get("status", {}).get("auth", {}).get("serviceAccountName")
    ]


def audience(release: Release) -> str:
    return f"stampede/{release.name}/{release.name}"


def token(release: Release, namespace: str, account: str, audience: str) -> str:
    """A real token of the cluster."""
    line = ("create", "token", account, "--namespace", namespace, "--audience", audience)
    return release.cluster.kubectl(*line).output.strip()


def coverage(release: Release) -> object:
    """What of each topic is stored."""
    return json.loads(release.stampede("audit", "--json").output)["ledger"]


def test_a_pod_of_another_namespace_forges_nothing(closed: Release) -> None:
    closed.wait_until_stored()
    before = coverage(closed)
    key = closed.secret(f"{closed.name}-event-key")["event-key"]
    stranger = token(closed, "site", "default", audience(closed))
    for_another = token(closed, closed.name, closed.name, "another")
    unnamed = token(closed, closed.name, "default", audience(closed))
    for function in ("cutouts", "lightcurves", "thumbnails", "compact"):
        assert answer(closed, function) == "401", function
    assert answer(closed, "deadletters", path="/cutouts") == "401"  # it would store anything
    for bearer in (key, stranger, for_another, unnamed, "a.b.c"):
        assert answer(closed, "cutouts", f"Authorization: Bearer {bearer}") == "401"
    assert answer(closed, "cutouts", f"ce-accesskey: {key}") == "401"
    assert answer(closed, "notifications") == "401"
    # Only the token was wrong: with the right one the function looks at the event, which is none.
    right = token(closed, closed.name, closed.name, audience(closed))
    assert answer(closed, "cutouts", f"Authorization: Bearer {right}") == "400"
    assert coverage(closed) == before


def test_the_broker_takes_no_event_of_a_stranger(closed: Release) -> None:
    """The EventPolicy names who may send; Knative's ingress of the Broker asks for a token."""
    (broker,) = closed.get("brokers")
    address = broker["status"]["address"]
    url = urlsplit(address["url"])
    assert url.hostname
    stranger = token(closed, "site", "default", address["audience"])
    for_another = token(closed, closed.name, closed.name, "another")
    responses = [
        answer_of(closed, url.hostname, *headers, path=url.path)
        for headers in (
            (),
            (f"Authorization: Bearer {for_another}",),
            (f"Authorization: Bearer {stranger}",),
        )
    ]
    assert responses == ["401", "401", "403"]


def test_the_rightful_senders_pass(closed: Release) -> None:
    """The source, the S3 endpoint with the relay, the Broker's Triggers, and timers."""
    assert not without_account(closed)
    before = {function: events(closed, function) for function in ("compact", "reconcile")}
    simulate = ("simulate", "--alerts", COUNT, "--seed", SEED)
    assert f"{COUNT} alerts" in closed.stampede(*simulate).output
    closed.wait_until_stored()
    until(lambda: not lacking_thumbnails(closed), 180, 3)
    for function, earlier in before.items():
        until(lambda f=function, e=earlier: events(closed, f)["stored"] > e["stored"], 180, 3)
        assert events(closed, function)["not-authorized"] == earlier["not-authorized"]


def events(release: Release, function: str) -> Counter[str]:
    """How many events the pod of a function has answered, by outcome."""
    (service,) = release.get("services.serving.knative.dev", f"{release.name}-{function}")
    revision = service["status"]["latestReadyRevisionName"]
    label = f"serving.knative.dev/revision={revision}"
    *_, pod = release.live_pods(label)
    line = ("exec", pod["metadata"]["name"], "--container", function, "--", "python3", "-c", EVENTS)
    output = release.kubectl(*line).output
    return Counter({name: int(count) for name, count in map(str.split, output.splitlines())})
