"""A renderer without a cluster, such as Argo CD's, gives the same manifests each time."""

import json
import os
import re
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from rendering import CHART, ROOT, Object, containers, objects, pods, rendered, template

EXAMPLES = ROOT / "docs" / "how-to" / "gitops"
# As Argo CD renders: it tells the cluster's versions, and `lookup` finds nothing.
TOLD = ("--api-versions", "serving.knative.dev/v1", "--api-versions", "v1/Secret")
KAFKA = '{"kind": "kafka", "epoch": "1", "bootstrapServers": ["kafka:9092"], "topics": ["a"]}'
GIVEN = (
    *("--set", "store.url=http://ceph:8000/stampede,store.existingSecret=ceph-keys"),
    *("--set", "image.repository=registry.example.org/stampede"),
)
# What the chart looks up: its own Secret, and for the notes the Services of Knative.
RESOURCES = {"/api/v1": "Secret", "/apis/serving.knative.dev/v1": "Service"}
SCRIPT = CHART / "files" / "senders.py"


def example(name: str) -> list[Object]:
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


def argocd() -> tuple[str, dict[str, Any]]:
    """Path of the chart and its values in the example of Argo CD."""
    (application,) = example("argocd.yaml")
    assert (application["apiVersion"], application["kind"]) == (
        "argoproj.io/v1alpha1",
        "Application",
    )
    source = application["spec"]["source"]
    return source["path"], source["helm"]["valuesObject"]


def flux() -> tuple[str, dict[str, Any]]:
    """The same of Flux."""
    repository, release = example("flux.yaml")
    assert (release["apiVersion"], release["kind"]) == (
        "helm.toolkit.fluxcd.io/v2",
        "HelmRelease",
    )
    chart = release["spec"]["chart"]["spec"]
    assert chart["sourceRef"] == {
        "kind": repository["kind"],
        "name": repository["metadata"]["name"],
    }
    return chart["chart"], release["spec"]["values"]


@pytest.mark.parametrize("read", [argocd, flux])
def test_the_examples_render_the_same_each_time(read: Any, tmp_path: Path) -> None:
    path, values = read()
    assert (ROOT / path).resolve() == CHART
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    first, second = (template("--values", file, *TOLD) for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    assert "kind: PingSource" in first.stdout


def test_no_key_is_drawn_without_a_cluster() -> None:
    done = template(*GIVEN, *TOLD)
    assert done.returncode
    reason = [line for line in done.stderr.splitlines() if line.startswith("Error:")]
    assert len(reason) == 1
    assert "Make a Secret with event-key and name it, or give the value" in reason[0]


def test_a_key_in_a_secret_is_nowhere_else() -> None:
    made = rendered("gitops")
    assert not [each for each in made if each["kind"] == "Secret"]
    assert "accesskey" not in json.dumps([each for each in made if each["kind"] == "PingSource"])
    readers = [
        container["env"]
        for each in made
        for pod in pods(each)
        for container in containers(pod)
        if "STAMPEDE_EVENT_KEY" in json.dumps(container.get("env", ()))
    ]
    assert len(readers) > 8
    assert all("senders-key" in json.dumps(env) for env in readers)


def test_a_hook_gives_the_key_to_every_timer_and_may_do_nothing_else() -> None:
    timers = set(objects("gitops", "PingSource"))
    job = objects("gitops", "Job")["night-senders"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "post-install,post-upgrade"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"][2] == SCRIPT.read_text()
    assert set(container["command"][5:]) == timers
    assert objects("gitops", "Role")["night-senders"]["rules"] == [
        {
            "apiGroups": ["sources.knative.dev"],
            "resources": ["pingsources"],
            "resourceNames": sorted(timers),
            "verbs": ["patch"],
        }
    ]


@pytest.mark.parametrize(
    "values",
    [
        ("--set", "oidc.mode=required"),  # timers have tokens
        ("--set", "eventKey.enabled=false,eventKey.existingSecret="),
        ("--set", "eventKey.value=a-key-of-the-tests,eventKey.existingSecret="),
    ],
)
def test_there_is_no_hook_that_is_not_needed(values: tuple[str, ...]) -> None:
    made = rendered("gitops", *values)
    assert not [each for each in made if each["metadata"]["name"] == "night-senders"]


def test_a_kafka_source_never_begins_without_the_key() -> None:
    """It would commit what the functions refuse."""
    given = ("--values", CHART / "ci" / "gitops.yaml", "--set-json", f'sources={{"a": {KAFKA}}}')
    done = template(*given)
    assert done.returncode
    assert "sources.a: a KafkaSource holds the key of events as text" in done.stderr
    assert template(*given, "--set", "oidc.mode=required").returncode == 0


def test_a_service_account_comes_before_what_uses_it() -> None:
    """`kubectl apply` takes objects in their order."""
    kinds = [each["kind"] for each in rendered("gitops")]
    assert kinds.index("ServiceAccount") < kinds.index("Service")
    assert kinds.index("ServiceAccount") < kinds.index("Deployment")


def test_a_dry_run_uses_an_account_that_exists() -> None:
    """As the how-to says: Knative tries the pods of a dry run at the API server."""
    (option,) = re.findall(
        r"--set (serviceAccount\S+)", (EXAMPLES.parent / "gitops.md").read_text()
    )
    made = rendered("gitops", "--no-hooks", "--set", option)
    assert not [each for each in made if each["kind"] in ("ServiceAccount", "Job")]
    accounts = {pod["spec"]["serviceAccountName"] for each in made for pod in pods(each)}
    assert accounts == {"default"}


class Cluster(NamedTuple):
    """An API server that has Secrets, and what it was asked."""

    url: str
    certificate: Path
    secrets: dict[str, dict[str, str]]
    patched: list[tuple[str, str, Any]]


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[Cluster]:
    """The three answers of Kubernetes' API on which the chart relies; a cluster's are in e2e."""
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2"),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    secrets: dict[str, dict[str, str]] = {}
    patched: list[tuple[str, str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self, status: int, body: Any) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            found, _, name = path.partition("/namespaces/sky/secrets")
            if resource := RESOURCES.get(path):
                version = path.removeprefix("/api/").removeprefix("/apis/")
                names = {"name": f"{resource.lower()}s", "kind": resource, "namespaced": True}
                body = {"kind": "APIResourceList", "groupVersion": version, "resources": [names]}
                self.answer(200, body)
            elif found == "/api/v1" and not name:
                self.answer(200, {"apiVersion": "v1", "kind": "SecretList", "items": []})
            elif name.strip("/") in secrets:
                data = secrets[name.strip("/")]
                self.answer(200, {"apiVersion": "v1", "kind": "Secret", "data": data})
            else:
                missing = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
                self.answer(404, {"apiVersion": "v1", **missing})

        def do_PATCH(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            patched.append((self.path, self.headers["Authorization"], body))
            self.answer(404 if self.path.endswith("/unknown") else 200, {})

        def log_message(self, *_: Any) -> None:
            pass

    with serving(Handler, certificate, key) as url:
        yield Cluster(url, certificate, secrets, patched)


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], certificate: Path, key: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def on(kubernetes: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Render as `helm install` does, with a cluster that answers."""
    server = ("--kube-apiserver", kubernetes.url, "--kube-ca-file", str(kubernetes.certificate))
    return template(*GIVEN, "--dry-run=server", *server, *arguments)


def test_a_cluster_without_the_secret_gets_a_random_key(kubernetes: Cluster) -> None:
    keys = set()
    for _ in range(2):
        done = on(kubernetes)
        assert done.returncode == 0, done.stderr
        made = [each for each in yaml.safe_load_all(done.stdout) if each]
        (secret,) = (each for each in made if each["metadata"]["name"] == "night-event-key")
        key = secret["stringData"]["event-key"]
        assert len(key) == 40
        pings = [each for each in made if each["kind"] == "PingSource"]
        assert pings
        assert {each["spec"]["ceOverrides"]["extensions"]["accesskey"] for each in pings} == {key}
        keys.add(key)
    assert len(keys) == 2


@pytest.mark.parametrize("given", [(), ("--set", "eventKey.existingSecret=mine")])
def test_a_cluster_with_the_secret_keeps_its_key(
    kubernetes: Cluster, given: tuple[str, ...]
) -> None:
    name = "mine" if given else "night-event-key"
    kubernetes.secrets[name] = {"event-key": "YS1rZXktdGhhdC1zdGF5cw=="}
    done = on(kubernetes, *given)
    assert done.returncode == 0, done.stderr
    assert 'accesskey: "a-key-that-stays"' in done.stdout
    assert "night-senders" not in done.stdout


def test_a_cluster_that_lacks_the_named_secret(kubernetes: Cluster) -> None:
    done = on(kubernetes, "--set", "eventKey.existingSecret=mine")
    assert done.returncode
    assert "there is no Secret mine with event-key" in done.stderr


def run_script(kubernetes: Cluster, account: Path, *names: str) -> subprocess.CompletedProcess[str]:
    account.mkdir()
    (account / "ca.crt").write_bytes(kubernetes.certificate.read_bytes())
    (account / "namespace").write_text("sky")
    (account / "token").write_text("a-token\n")
    return subprocess.run(
        [sys.executable, "-c", SCRIPT.read_text(), kubernetes.url, account, *names],
        env=os.environ | {"STAMPEDE_EVENT_KEY": "a-key-of-the-tests"},
        capture_output=True,
        text=True,
    )


def test_the_hook_patches_each_timer(kubernetes: Cluster, tmp_path: Path) -> None:
    done = run_script(kubernetes, tmp_path / "account", "night-compact", "night-scrub")
    assert done.returncode == 0, done.stderr
    path = "/apis/sources.knative.dev/v1/namespaces/sky/pingsources"
    patch = {"spec": {"ceOverrides": {"extensions": {"accesskey": "a-key-of-the-tests"}}}}
    assert kubernetes.patched == [
        (f"{path}/{name}", "Bearer a-token", patch) for name in ("night-compact", "night-scrub")
    ]
    assert "a-key-of-the-tests" not in done.stdout


def test_a_timer_that_is_not_there_fails_the_hook(kubernetes: Cluster, tmp_path: Path) -> None:
    done = run_script(kubernetes, tmp_path / "account", "unknown")
    assert done.returncode == 1
    assert done.stderr.startswith("PingSource unknown: HTTP Error 404")
