"""The schema of a KafkaSource. Its CRD leaves all fields but one open.

It follows the Go types of eventing-kafka-broker 1.20 (``control-plane/pkg/apis/sources/v1``) and
the checks of its webhook. Fields that all Knative sources share come from Knative's own CRDs.
"""

from schemas import Schema, Schemas, core

VERSIONS = ("sources.knative.dev/v1", "sources.knative.dev/v1beta1")


def add_kafka_source(schemas: Schemas) -> None:
    """Add the schema of a KafkaSource."""
    ping = schemas.schema("sources.knative.dev/v1", "PingSource")["properties"]["spec"]
    trigger = schemas.schema("eventing.knative.dev/v1", "Trigger")["properties"]["spec"]
    spec = {
        "topics": strings(),
        "bootstrapServers": strings(),
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
    """An object with these fields and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


def key() -> Schema:
    """A reference to a key of a Secret."""
    return closed(secretKeyRef=core("core.v1.SecretKeySelector"))


def strings() -> Schema:
    """A non-empty list of non-empty strings."""
    return {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}
