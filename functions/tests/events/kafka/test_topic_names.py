"""What a source tells of the topics that Kafka has."""

from datetime import UTC, datetime, timedelta

from prometheus_client import REGISTRY

from stampede.config.settings import Settings
from stampede.events.kafka.topic_names import TopicNames

TOPICS = "lsst-alerts-v11,nights_{YYYYMMDD}_1,!nights_{YYYYMMDD}_2"


def night(days: int, programme: int) -> str:
    return f"nights_{datetime.now(UTC) - timedelta(days):%Y%m%d}_{programme}"


def shown(name: str) -> dict[str, float]:
    """The value of a metric for each family."""
    (metric,) = [each for each in REGISTRY.collect() if each.name == name]
    return {sample.labels["family"]: sample.value for sample in metric.samples}


def test_metrics_tell_what_nobody_reads_until_somebody_does() -> None:
    names = TopicNames(Settings(topics=TOPICS))
    assert names.existing is None
    names.note(frozenset({"lsst-alerts-v12", "lsst-alerts-v13", night(3, 1), night(0, 2)}))
    assert names.existing is not None
    assert shown("stampede_source_unread_topics") == {"lsst-alerts-v{n}": 2}
    assert shown("stampede_source_silent_families") == {"nights_{YYYYMMDD}_1": 1}
    names.note(names.existing | {night(0, 1)} - {"lsst-alerts-v13"})
    assert shown("stampede_source_silent_families") == {}
    names.note(frozenset({"lsst-alerts-v11"}))
    assert shown("stampede_source_unread_topics") == {}
