"""The schemas reject fields that a cluster would drop silently."""

import copy
from typing import Any

import pytest
import yaml
from schemas import Schemas

GOOD = {
    "Deployment": """
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: a, labels: {b: c}}
        spec:
          selector: {matchLabels: {b: c}}
          template:
            metadata: {labels: {b: c}}
            spec:
              containers:
                - name: a
                  image: a:1
                  resources: {limits: {memory: 1Gi, cpu: 0.5}}
                  livenessProbe: {httpGet: {path: /, port: http}}
    """,
    "Service": """
        apiVersion: serving.knative.dev/v1
        kind: Service
        metadata: {name: a}
        spec:
          template:
            metadata: {annotations: {autoscaling.knative.dev/min-scale: "1"}}
            spec:
              tolerations: [{key: a, operator: Exists}]
              containers: [{image: a:1, env: [{name: A, value: b}]}]
              volumes: [{name: a, emptyDir: {medium: Memory, sizeLimit: 1Gi}}]
    """,
    "ScaledObject": """
        apiVersion: keda.sh/v1alpha1
        kind: ScaledObject
        metadata: {name: a}
        spec:
          scaleTargetRef: {name: a}
          maxReplicaCount: 2
          triggers: [{type: kafka, metadata: {lagThreshold: "5"}, authenticationRef: {name: a}}]
    """,
    "Trigger": """
        apiVersion: eventing.knative.dev/v1
        kind: Trigger
        metadata: {name: a}
        spec:
          broker: a
          filters: [{any: [{exact: {type: a}}, {not: {prefix: {subject: b}}}]}]
          subscriber: {uri: "http://a"}
          delivery: {retry: 1, backoffPolicy: linear, backoffDelay: PT1S}
    """,
    "KafkaSource": """
        apiVersion: sources.knative.dev/v1
        kind: KafkaSource
        metadata: {name: a}
        spec:
          topics: [a]
          bootstrapServers: ["a:9092"]
          ordering: unordered
          sink: {ref: {apiVersion: v1, kind: Service, name: a}}
          net: {sasl: {enable: true, user: {secretKeyRef: {name: a, key: user}}}}
          delivery: {retry: 1, deadLetterSink: {uri: "http://a"}}
    """,
    "PodMonitor": """
        apiVersion: monitoring.coreos.com/v1
        kind: PodMonitor
        metadata: {name: a}
        spec: {selector: {matchLabels: {a: b}}, podMetricsEndpoints: [{port: http, interval: 30s}]}
    """,
}

# Kind, path, a wrong value, and the path that the error names.
BAD: list[tuple[str, str, Any, str]] = [
    ("Deployment", "metadata.label", {}, "metadata"),
    ("Deployment", "spec.template.spec.container", [], "spec.template.spec"),
    ("Deployment", "spec.template.spec.containers.0.imagePolicy", "Always", "containers.0"),
    ("Deployment", "spec.template.spec.containers.0.resources.limits.memory", "1 GB", "memory"),
    ("Deployment", "spec.replicas", "2", "spec.replicas"),
    ("Deployment", "spec.selector", None, "spec"),
    ("Service", "spec.template.metadata.annotations.a", 1, "annotations.a"),
    ("Service", "spec.template.spec.tolerations.0.effects", "x", "tolerations.0"),
    ("Service", "spec.template.spec.restartPolicy", "Never", "spec.template.spec"),
    ("Service", "spec.template.spec.volumes.0.emptyDir.size", "1Gi", "emptyDir"),
    ("Service", "spec.traffic", {}, "spec.traffic"),
    ("Deployment", "spec.template.spec.containers.0.args", "serve", "args"),
    ("ScaledObject", "spec.maxReplicas", 2, "spec"),
    ("ScaledObject", "spec.triggers.0.metadata.lagThreshold", 5, "lagThreshold"),
    ("Trigger", "spec.filters.0.any.0.exactly", {}, "any.0"),
    ("Trigger", "spec.filters.0.any.1.not.prefix.subject", 1, "subject"),
    ("Trigger", "spec.delivery.retries", 1, "spec.delivery"),
    ("KafkaSource", "spec.delivery.retries", 1, "spec.delivery"),
    ("KafkaSource", "spec.ordering", "none", "spec.ordering"),
    ("KafkaSource", "spec.net.sasl.user", "me", "user"),
    ("KafkaSource", "spec.topic", "a", "spec"),
    ("PodMonitor", "spec.podMetricsEndpoints.0.interval", "30", "interval"),
    ("PodMonitor", "spec.podMetricsEndpoint", [], "spec"),
]


@pytest.mark.parametrize("kind", GOOD)
def test_a_valid_object(schemas: Schemas, kind: str) -> None:
    assert schemas.problems(yaml.safe_load(GOOD[kind])) == []


@pytest.mark.parametrize(("kind", "path", "value", "place"), BAD)
def test_an_invalid_object(
    schemas: Schemas, kind: str, path: str, value: object, place: str
) -> None:
    wrong = copy.deepcopy(yaml.safe_load(GOOD[kind]))
    *parents, last = path.split(".")
    parent = wrong
    for name in parents:
        parent = parent[int(name)] if isinstance(parent, list) else parent[name]
    if value is None:
        del parent[last]
    else:
        parent[last] = value
    (problem,) = schemas.problems(wrong)
    assert problem.partition(":")[0].endswith(place)


def test_an_unknown_kind(schemas: Schemas) -> None:
    assert schemas.problems({"apiVersion": "v2", "kind": "Pod"}) == ["no schema of v2 Pod"]
