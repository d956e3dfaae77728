"""Errors of Kafka's client in words, with what to do about them."""

from confluent_kafka import KafkaError, KafkaException

_SILENT = "no broker answers there (is it running, and is the address right?)"
_REFUSED = "it refuses the credentials: check STAMPEDE_KAFKA_KEYS or STAMPEDE_KAFKA_OPTIONS"
# What a client says that has no connection, whatever the reason.
SILENT = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}
ADVICE = dict.fromkeys(SILENT, _SILENT) | {
    KafkaError._MSG_TIMED_OUT: "it took no message in time",
    KafkaError._RESOLVE: "no host has that name",
    KafkaError._AUTHENTICATION: _REFUSED,
    KafkaError.SASL_AUTHENTICATION_FAILED: _REFUSED,
    KafkaError._SSL: "TLS fails: check STAMPEDE_KAFKA_OPTIONS, ssl.ca.location for example",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "it does not let us use the topic: check its ACLs",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "it does not let us use the group: check its ACLs",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "it has no such topic",
    KafkaError._UNKNOWN_TOPIC: "it has no such topic",
}


def reason(error: KafkaException | KafkaError) -> str:
    """What went wrong, as a sentence without codes."""
    cause = error.args[0] if isinstance(error, KafkaException) else error
    if not isinstance(cause, KafkaError):
        return str(cause)
    return ADVICE.get(cause.code()) or cause.str().removeprefix("Local: ").removeprefix("Broker: ")
