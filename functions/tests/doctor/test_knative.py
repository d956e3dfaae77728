"""doctor: each fault of Knative that an API server shows is named, with what repairs it."""

import copy
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from stampede.config.settings import Settings
from stampede.doctor import checks, kubernetes
from stampede.doctor import processes as processes_module
from stampede.doctor.checks import Result, Step, examine
from stampede.doctor.finding import Installation
from stampede.doctor.knative import knative
from stampede.handlers.audit import status as status_module
from stampede_local.tls import make_certificate

Objects = dict[str, Any]
"""What the API server has, by path. A list has no end of its path's name."""
TOKEN = "a token of the toolbox"
ACCOUNT = "system:serviceaccount:sky:night"
CONFIG = "/api/v1/namespaces/{}/configmaps/{}"
SERVING, EVENTING = (
    {name: CONFIG.format(f"knative-{part}", f"config-{name}") for name in names}
    for part, names in (
        ("serving", ("features", "defaults", "autoscaler")),
        ("eventing", ("features",)),
    )
)
SERVICES = "/apis/serving.knative.dev/v1/namespaces/sky/services"
TRIGGERS = "/apis/eventing.knative.dev/v1/namespaces/sky/triggers"
SINKBINDINGS = "/apis/sources.knative.dev/v1/namespaces/sky/sinkbindings"
INGRESSES = "/apis/networking.internal.knative.dev/v1alpha1/namespaces/sky/ingresses"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/sky/networkpolicies"
LISTS = [
    *(SERVICES, TRIGGERS, SINKBINDINGS, TRIGGERS.replace("triggers", "brokers")),
    *(INGRESSES, POLICIES),
]


class ApiServer(ThreadingHTTPServer):
    """Answers as the API server of Kubernetes: strangers, what is forbidden, what is not there."""

    def __init__(self, certificate: Path, key: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: Objects = {}
        self.forbidden: set[str] = set()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)


class Handler(BaseHTTPRequestHandler):
    server: ApiServer

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return self.reply(401, status("Unauthorized"))
        if url.path in self.server.forbidden:
            return self.reply(403, status(f'{url.path} is forbidden: User "{ACCOUNT}" cannot'))
        found = self.server.objects.get(url.path)
        if found is None:
            return self.reply(404, status("the server could not find the requested resource"))
        if "items" in found:
            selectors = parse_qs(url.query).get("labelSelector", ())
            labels = [selector.split("=") for selector in selectors]
            labelled = [
                each
                for each in found["items"]
                if all(each["metadata"]["labels"].get(name) == value for name, value in labels)
            ]
            found = {"items": labelled}
        self.reply(200, found)

    def reply(self, code: int, document: Objects) -> None:
        body = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


def status(message: str) -> Objects:
    return {"kind": "Status", "status": "Failure", "message": message}


def config_map(version: str, **data: str) -> Objects:
    """As in Knative's releases: what is not set is in `_example` only."""
    labels = {"app.kubernetes.io/version": version}
    shown = {name.replace("_", "-"): value for name, value in data.items()}
    return {"metadata": {"labels": labels}, "data": {"_example": "a: b", **shown}}


def made(name: str, spec: Objects, ready: str = "True", **more: str) -> Objects:
    labels = {"app.kubernetes.io/name": "stampede"}
    conditions = [{"type": "Ready", "status": ready, **more}]
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"conditions": conditions},
    }


def service(name: str, **pod: object) -> Objects:
    """A Knative Service as the chart makes it."""
    volumes = [{"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}]
    spec = {"timeoutSeconds": 600, "containers": [{"env": []}], "volumes": volumes, **pod}
    return made(name, {"template": {"spec": spec}})


def ingress(domain: str, side: str = "public") -> Objects:
    """Knative's Ingress, with the status that an ingress's controller writes."""
    addresses = {f"{side}LoadBalancer": {"ingress": [{"domainInternal": domain}]}}
    found = made("night-read", {})
    return {**found, "status": found["status"] | addresses}


def policy(rules: list[Objects], **selector: object) -> Objects:
    """A NetworkPolicy; without a selector one of the chart, for the functions."""
    keys = [{"key": "serving.knative.dev/service", "operator": "In", "values": ["night-read"]}]
    pods = selector or {"matchExpressions": keys}
    found = made("night-functions", {"podSelector": pods, "ingress": rules})
    if selector:
        found["metadata"]["labels"] = {}
    return found


def from_namespaces(*names: str, **more: object) -> Objects:
    key = "kubernetes.io/metadata.name"
    terms = [{"key": key, "operator": "In", "values": [*names]}]
    return {"from": [{"namespaceSelector": {"matchExpressions": terms}}], **more}


METRICS = [{"port": 9090, "protocol": "TCP"}]
# Knative's activator is admitted, and Prometheus, which runs beside the ingress, at its port.
CHART_POLICY = policy([from_namespaces("knative-serving"), from_namespaces("edge", ports=METRICS)])


def healthy() -> Objects:
    objects: Objects = {path: {"items": []} for path in LISTS}
    objects[SERVING["features"]] = config_map("1.22.0")
    objects[SERVING["defaults"]] = config_map("1.22.0")
    objects[SERVING["autoscaler"]] = config_map("1.22.0")
    objects[EVENTING["features"]] = config_map("1.22.0", authentication_oidc="disabled")
    objects[SERVICES]["items"] = [service("night-cutouts"), service("night-read")]
    objects[TRIGGERS]["items"] = [made("night-thumbnails", {})]
    return objects


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("api")
    files = folder / "tls.crt", folder / "tls.key"
    make_certificate(*files)
    return files


@pytest.fixture
def api(
    certificate: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ApiServer]:
    """An API server, and what a pod has to reach it."""
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text(TOKEN)
    (account / "namespace").write_text("sky")
    (account / "ca.crt").write_bytes(certificate[0].read_bytes())
    with ApiServer(*certificate) as server:
        server.objects = healthy()
        monkeypatch.setattr(kubernetes, "ACCOUNT", account)
        monkeypatch.setattr(checks, "CHECKS", {"Knative": Step(knative)})
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.server_port))
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def result() -> Result:
    (found,) = examine(Installation(Settings(), {}))
    return found


def lines(found: Result) -> list[str]:
    return [f"{each.level} {each.fault} -> {each.repair}" for each in found.findings]


def put(path: str, document: Objects) -> Callable[[Objects], None]:
    return lambda objects: objects.update({path: document})


def add(path: str, document: Objects) -> Callable[[Objects], None]:
    return lambda objects: objects[path]["items"].append(document)


def with_variable(name: str, value: str) -> Objects:
    return service("night-scrub", containers=[{"env": [{"name": name, "value": value}]}])


FEATURES = "`kubectl patch configmap config-features --namespace knative-{} --type merge --patch "
FAULTS: dict[str, tuple[Callable[[Objects], None], str]] = {
    "Serving too old": (
        put(SERVING["features"], config_map("1.19.7")),
        "error Knative Serving is version 1.19.7, older than 1.20 -> upgrade it",
    ),
    "Eventing too old": (
        put(EVENTING["features"], config_map("v1.9.0")),
        "error Knative Eventing is version v1.9.0, older than 1.20 -> upgrade it",
    ),
    "timeout": (
        add(SERVICES, service("night-bulk", timeoutSeconds=3600)),
        "error night-bulk has timeoutSeconds 3600, and Serving allows 600: it cannot be changed or "
        "installed anew -> `kubectl patch configmap config-defaults --namespace knative-serving "
        """--type merge --patch '{"data": {"max-revision-timeout-seconds": "3600"}}'`""",
    ),
    "lowered timeout": (
        put(SERVING["defaults"], config_map("1.22.0", max_revision_timeout_seconds="300")),
        "error night-cutouts has timeoutSeconds 600, and Serving allows 300",
    ),
    "node selector": (
        add(SERVICES, service("night-bulk", nodeSelector={"disk": "fast"})),
        "error night-bulk cannot be changed or installed anew: Serving's feature "
        "kubernetes.podspec-nodeselector is disabled -> "
        + FEATURES.format("serving")
        + """'{"data": {"kubernetes.podspec-nodeselector": "enabled"}}'`""",
    ),
    "memory-backed volume": (
        put(
            SERVING["features"],
            {
                "metadata": {"labels": {}},
                "data": {"kubernetes.podspec-volumes-emptydir": "Disabled"},
            },
        ),
        "error night-cutouts, night-read cannot be changed or installed anew: Serving's feature "
        "kubernetes.podspec-volumes-emptydir is disabled",
    ),
    "tokens required": (
        add(SERVICES, with_variable("STAMPEDE_SENDER_TOKENS_ONLY", "true")),
        "error oidc.mode is required, but Eventing's feature authentication-oidc is disabled",
    ),
    "tokens accepted": (
        add(SERVICES, with_variable("STAMPEDE_SENDER_ISSUER", "https://kubernetes.default.svc")),
        "warning oidc.mode is accepted, but Eventing's feature authentication-oidc is disabled",
    ),
    "nothing sleeps": (
        put(SERVING["autoscaler"], config_map("1.22.0", enable_scale_to_zero="false")),
        "warning Serving scales nothing to zero",
    ),
    "late sleep": (
        put(
            SERVING["autoscaler"],
            config_map("1.22.0", scale_to_zero_pod_retention_period="1h30m"),
        ),
        "warning Serving keeps idle pods for 5400 s (scale-to-zero-pod-retention-period)",
    ),
    "Service": (
        add(
            SERVICES,
            made("night-bulk", {}, "False", reason="RevisionFailed", message="no such image"),
        ),
        "error the service night-bulk is not ready: RevisionFailed: no such image -> "
        "`kubectl --namespace sky describe services.serving.knative.dev night-bulk`",
    ),
    "Trigger": (
        add(TRIGGERS, made("night-tables", {}, "False", reason="BrokerDoesNotExist")),
        "error the trigger night-tables is not ready: BrokerDoesNotExist -> ",
    ),
    "SinkBinding": (
        add(SINKBINDINGS, {**made("night-toolbox", {}), "status": {}}),
        "warning the sinkbinding night-toolbox is not ready yet: Knative has not looked at it",
    ),
    "ingress": (
        lambda objects: (
            add(INGRESSES, ingress("traefik.edge.svc.cluster.local"))(objects),
            add(POLICIES, CHART_POLICY)(objects),
        )[0],
        "error the NetworkPolicy does not admit the ingress of edge: requests to the functions end "
        "in 502 -> add edge to networkPolicy.fromNamespaces",
    ),
    "private ingress": (
        lambda objects: (
            add(INGRESSES, ingress("kourier-internal.own.svc.cluster.local", "private"))(objects),
            add(POLICIES, CHART_POLICY)(objects),
        )[0],
        "error the NetworkPolicy does not admit the ingress of own: ",
    ),
    "no Eventing": (
        lambda objects: objects.pop(EVENTING["features"]),
        "warning there is no ConfigMap config-features in the namespace knative-eventing",
    ),
}


def test_a_healthy_cluster_has_no_findings(api: ApiServer) -> None:
    found = result()
    assert (found.findings, found.skipped) == ([], "")


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named(api: ApiServer, fault: str) -> None:
    seed, words = FAULTS[fault]
    seed(api.objects)
    found = lines(result())
    assert any(line.startswith(words) for line in found), found


def test_what_is_allowed_is_no_fault(api: ApiServer) -> None:
    """Features may be `allowed`, a build from the sources has no number, others do not count."""
    pod = {"affinity": {"nodeAffinity": {}}, "timeoutSeconds": 900}
    add(SERVICES, service("night-bulk", **pod))(api.objects)
    allowed = {"kubernetes.podspec-affinity": "Allowed"}
    api.objects[SERVING["features"]]["data"] |= allowed
    api.objects[SERVING["features"]]["metadata"]["labels"]["app.kubernetes.io/version"] = "devel"
    api.objects[SERVING["defaults"]]["data"]["max-revision-timeout-seconds"] = "900"
    required = with_variable("STAMPEDE_SENDER_TOKENS_ONLY", "true")
    add(SERVICES, required)(api.objects)
    api.objects[EVENTING["features"]]["data"]["authentication-oidc"] = "enabled"
    other = copy.deepcopy(made("other", {}, "False"))
    other["metadata"]["labels"]["app.kubernetes.io/name"] = "other"
    add(SERVICES, other)(api.objects)
    assert lines(result()) == []


ADMITTED = {
    "no policy": [],
    "listed": [policy([from_namespaces("knative-serving", "edge")])],
    "another one's": [CHART_POLICY, policy([from_namespaces("edge")], matchLabels={"a": "b"})],
    "by a label": [
        CHART_POLICY,
        policy([{"from": [{"namespaceSelector": {"matchLabels": {"team": "edge"}}}]}], b="c"),
    ],
    "by address": [policy([{"from": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}])],
    "anybody": [policy([{}])],
    "of other pods": [policy([from_namespaces("site")], matchLabels={"app": "kafka"})],
}


@pytest.mark.parametrize("case", ADMITTED)
def test_an_ingress_that_may_be_admitted_is_no_fault(api: ApiServer, case: str) -> None:
    add(INGRESSES, ingress("traefik.edge.svc.cluster.local"))(api.objects)
    add(INGRESSES, ingress("192.0.2.7"))(api.objects)  # which names no namespace
    api.objects[POLICIES]["items"] = ADMITTED[case]
    assert lines(result()) == []


def test_without_rights_it_says_which_are_missing(api: ApiServer) -> None:
    api.forbidden = set(SERVING.values())
    add(TRIGGERS, made("night-tables", {}, "False", reason="BrokerDoesNotExist"))(api.objects)
    found = result()
    assert f'config-features is forbidden: User "{ACCOUNT}" cannot' in found.skipped
    assert "doctor.knative makes the Roles" in found.skipped
    (line,) = lines(found)  # what it may see is examined
    assert line.startswith("error the trigger night-tables")


def test_a_token_that_the_cluster_does_not_know(api: ApiServer) -> None:
    (kubernetes.ACCOUNT / "token").write_text("of another cluster")
    assert "Unauthorized" in result().skipped


def test_an_api_server_that_is_not_the_cluster_s_gets_no_token(
    api: ApiServer, tmp_path: Path
) -> None:
    make_certificate(tmp_path / "other.crt", tmp_path / "other.key")
    (kubernetes.ACCOUNT / "ca.crt").write_bytes((tmp_path / "other.crt").read_bytes())
    assert "CERTIFICATE_VERIFY_FAILED" in result().skipped


def test_a_pod_without_a_token(api: ApiServer) -> None:
    (kubernetes.ACCOUNT / "token").unlink()
    assert "the chart's value doctor.knative gives it one" in result().skipped


def test_elsewhere_than_on_a_cluster(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    assert result().skipped == "this is no pod of a cluster"


REVISIONS = SERVICES.replace("services", "revisions")


def revision(service: str, **replicas: int) -> Objects:
    labels = {"app.kubernetes.io/name": "stampede", "serving.knative.dev/service": service}
    return {"metadata": {"name": f"{service}-00001", "labels": labels}, "status": replicas}


def test_a_function_without_pods_is_not_asked(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that should have pods is, and so is one of another cluster."""
    asked: list[str] = []
    monkeypatch.setattr(processes_module, "START_SECONDS", 0)
    monkeypatch.setattr(status_module, "is_ready", asked.append)
    monkeypatch.setattr(checks, "CHECKS", {"processes": Step(processes_module.processes)})
    api.objects[REVISIONS] = {
        "items": [
            revision("night-bulk", desiredReplicas=0, actualReplicas=0),
            revision("night-scrub"),
            revision("night-compact", desiredReplicas=0, actualReplicas=1),
            revision("night-read", desiredReplicas=0),
            revision("night-read", desiredReplicas=1, actualReplicas=0),
        ]
    }
    names = ("bulk", "scrub", "compact", "read", "own")
    urls = {name: f"http://night-{name}.sky.svc" for name in names}
    (found,) = examine(Installation(Settings(), urls))
    assert sorted(asked) == [urls[name] for name in ("compact", "own", "read")]
    assert found.skipped == "bulk, scrub: without a pod, which a request starts"
    assert [each.fault for each in found.findings] == [
        f"{name} is not ready" for name in ("compact", "own", "read")
    ]
    api.forbidden = {REVISIONS}  # by the Role of an earlier release
    asked.clear()
    (found,) = examine(Installation(Settings(), urls))
    assert sorted(asked) == sorted(urls.values())
    assert found.skipped == ""
