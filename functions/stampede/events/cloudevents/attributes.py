"""Checks of a CloudEvent's attributes: all are text, in bounds, and mean what they seem to mean.

What passes can be stored, logged and sent on as it is.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

# A Kafka record's headers become attributes, hence so many, and of any length; the length of an
# HTTP header is bounded by the server.
MOST = 256
NAME_LENGTH = 256
LENGTH = 256 << 10
# Of `kafkarecord`: a byte of `record_bytes.MOST_BYTES` takes at most 6 characters of JSON, and 8 of
# base64.
RECORD_LENGTH = 9 << 20
# Those that are stored in columns of their own, logged, or name an object.
SHORT_LENGTH = 1024
SHORT = frozenset({"specversion", "id", "source", "type", "subject", "time", "datacontenttype"})
# What a KafkaSource makes of a record's key and headers, which may be any bytes.
ANY_BYTES = ("key", "partitionkey", "kafkaheader")

# At most as many digits as Kafka's partitions (32 bits) and offsets (64 bits) have.
SUBJECT = re.compile(r"partition:([0-9]{1,9})#([0-9]{1,18})")
TOPIC_ID = re.compile("[A-Za-z0-9_-]{1,64}")
COUNT = re.compile("[0-9]{1,18}")
# A year of five digits or more: Kafka's time in microseconds, taken for milliseconds.
FAR_YEAR = re.compile(r"[+-]?[0-9]{5,}-")
_NAME = re.compile(rf"[a-z0-9]{{1,{NAME_LENGTH}}}")
_ODD = re.compile("[\0-\x1f\x7f-\x9f\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def checked(attributes: Mapping[str, Any]) -> dict[str, str]:
    """The attributes as text; those that are null are left out.

    Integers and truth values become text as CloudEvents defines it (specification 1.0.2, "Type
    system").

    Raises
    ------
    ValueError
        An attribute is wrong. The message names it.
    """
    if len(attributes) > MOST:
        raise ValueError(f"it has {len(attributes)} attributes, more than {MOST}")
    texts = {}
    for name, value in attributes.items():
        if value is not None:
            _check_name(name)
            texts[name] = _text(name, value)
    for name, text in texts.items():
        if len(text) > SHORT_LENGTH:
            _check_length(name, text)
    if _ODD.search("".join(texts.values())):  # one search: every event passes here
        for name, text in texts.items():
            _check_characters(name, text)
    for name, check in _CHECKS.items():
        if name in texts:
            check(texts[name])
    return texts


def shown(text: str) -> str:
    """A text from outside, short and printable."""
    return ascii(text[:60])


@lru_cache(1024)
def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{shown(name)} is not an attribute's name: at most {NAME_LENGTH} lower-case letters "
            "and digits"
        )


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    raise ValueError(f"{name}: not text, a whole number or a truth value")


def _check_length(name: str, text: str) -> None:
    most = SHORT_LENGTH if name in SHORT else RECORD_LENGTH if name == "kafkarecord" else LENGTH
    if len(text) > most:
        raise ValueError(f"{name}: {len(text):,} characters, the limit is {most:,}")


def _check_characters(name: str, text: str) -> None:
    if _SURROGATE.search(text):
        raise ValueError(f"{name}: half a character (a surrogate) in {shown(text)}")
    if _ODD.search(text) and not name.startswith(ANY_BYTES):
        raise ValueError(f"{name}: a control character in {shown(text)}")


def _check_subject(subject: str) -> None:
    if subject.startswith("partition:") and not SUBJECT.fullmatch(subject):
        raise ValueError(f"subject: {shown(subject)} is not partition:NUMBER#OFFSET")
    if not {".", ".."}.isdisjoint(subject.split("/")):
        raise ValueError(f"subject: {shown(subject)} has a part . or ..")


def _check_topic_id(topic_id: str) -> None:
    if not TOPIC_ID.fullmatch(topic_id):
        raise ValueError("topicid: not up to 64 letters, digits, '-' and '_'")


def _check_skipped(count: str) -> None:
    if not COUNT.fullmatch(count):
        raise ValueError("skippedoffsets: not a number of up to 18 digits")


_CHECKS = {"subject": _check_subject, "topicid": _check_topic_id, "skippedoffsets": _check_skipped}
