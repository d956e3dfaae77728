"""The schema registry: does it answer, and accept the login?"""

from collections.abc import Iterator

from stampede.doctor.finding import Finding, Installation, error
from stampede.errors import SchemaRegistryDown
from stampede.events.kafka.schema_registry import SchemaRegistry

REPAIR = (
    "correct STAMPEDE_SCHEMA_REGISTRY or what begins so; on a cluster the Secret of "
    "schemaRegistry.existingSecret has user and password, or token"
)


def registry(installation: Installation) -> Iterator[Finding]:
    """The schema registry answers, and its login may read."""
    try:
        SchemaRegistry(installation.settings).check()
    except SchemaRegistryDown as failure:
        yield error(failure.message, REPAIR)
