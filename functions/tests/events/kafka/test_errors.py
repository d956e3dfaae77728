"""Errors of Kafka's client as sentences."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from stampede.events.kafka.errors import ADVICE, reason


@pytest.mark.parametrize("code", sorted(ADVICE))
def test_advice_in_place_of_codes(code: int) -> None:
    for error in (KafkaError(code), KafkaException(KafkaError(code))):
        assert reason(error) == ADVICE[code]
        assert "KafkaError" not in reason(error)


def test_an_error_without_advice_is_kafkas_own_sentence() -> None:
    error = KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
    assert reason(error) == "Message size too large"
    assert reason(KafkaException("odd")) == "odd"
