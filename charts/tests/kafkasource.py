"""The schema of a KafkaSource, whose CRD leaves all of its fields but one open.

It is what eventing-kafka-broker 1.20 reads (``control-plane/pkg/apis/sources/v1``) and what its
webhook refuses; where Knative's sources are alike, the parts are those of Knative's own CRDs.
"""

from schemas import Schema, Schemas, core

VERSIONS = ("sources.knative.dev/v1", "sources.knative.dev/v1beta1")


def add_kafka_source(schemas: Schemas) -> None:
    """Have `schemas` know it."""
    ping = schemas.schema("sources.knative.dev/v1", "PingSource")["properties"]["spec"]
    trigger = schemas.schema("eventing.knative.dev/v1", "Trigger")["properties"]["spec"]
    spec = {
        "topics": texts(),
        "bootstrapServers": texts(),
        "consumers": {"type": "integer", "minimum": 0},
        "consumerGroup": {"type": "string"},
        "initialOffset": {"enum": ["earliest", "latest"]},
        "ordering": {"enum": ["ordered", "unordered"]},
        "net": closed(
            sasl=closed(enable={"type": "boolean"}, user=key(), password=key(), type=key()),
            tls=closed(enable={"type": "boolean"}, cert=key(), key=key(), caCert=key()),
        ),
        "delivery": trigger["properties"]["delivery"],
        "sink": ping["properties"]["sink"],
        "ceOverrides": ping["properties"]["ceOverrides"],
    }
    for version in VERSIONS:
        schema = closed(
            apiVersion={"const": version},
            kind={"const": "KafkaSource"},
            metadata=core("meta.v1.ObjectMeta"),
            spec=closed(**spec) | {"required": ["topics", "bootstrapServers", "sink"]},
        )
        schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
        schemas.add(version, "KafkaSource", schema)


def closed(**properties: Schema) -> Schema:
    """An object of these fields and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


def key() -> Schema:
    """A key of a Secret."""
    return closed(secretKeyRef=core("core.v1.SecretKeySelector"))


def texts() -> Schema:
    """Texts, at least one."""
    return {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}
