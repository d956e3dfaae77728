"""Triggers: which events go to which function, as Knative Eventing defines it.

The file is the one that is applied to a cluster, `eventing/triggers.yaml`: the API
``eventing.knative.dev/v1``, its `filters` in the dialects of CloudEvents' subscriptions API
(https://knative.dev/docs/eventing/features/new-trigger-filters/). An unknown field is an error:
if it were ignored, a Trigger could mean one thing on a cluster and another here.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from stampede.errors import SetupError
from stampede.events.cloudevents.s3_events import text_of

DIALECTS = ("exact", "prefix", "suffix", "all", "any", "not")

Attributes = Mapping[str, Any]


def check_attribute_name(name: str) -> str:
    """The name, if CloudEvents allows it. Raises `ValueError`."""
    if not re.fullmatch("[a-z][a-z0-9]*", name):
        raise ValueError(f"{name!r} is not an attribute name: lower-case letters and digits")
    return name


Values = Annotated[
    dict[Annotated[str, AfterValidator(check_attribute_name)], Annotated[str, Field(min_length=1)]],
    Field(min_length=1),
]


class Strict(BaseModel):
    """A model that refuses unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Filter(Strict):
    """An expression in one dialect; if it has several attributes, all must match."""

    exact: Values | None = None
    prefix: Values | None = None
    suffix: Values | None = None
    all: Annotated[tuple["Filter", ...], Field(min_length=1)] | None = None
    any: Annotated[tuple["Filter", ...], Field(min_length=1)] | None = None
    negated: "Filter | None" = Field(None, alias="not")

    @model_validator(mode="after")
    def one_dialect(self) -> Self:
        """Like Knative, refuse an expression of two dialects or none."""
        if len(self.model_fields_set) != 1:
            raise ValueError(f"a filter has exactly one of {', '.join(DIALECTS)}")
        return self

    def matches(self, attributes: Attributes) -> bool:
        """Whether the expression holds. A missing attribute matches nothing."""
        if self.all:
            return all(each.matches(attributes) for each in self.all)
        if self.any:
            return any(each.matches(attributes) for each in self.any)
        if self.negated:
            return not self.negated.matches(attributes)
        wanted, holds = next(
            (values, test)
            for values, test in (
                (self.exact, str.__eq__),
                (self.prefix, str.startswith),
                (self.suffix, str.endswith),
            )
            if values
        )
        return all(
            attributes.get(name) is not None and holds(text_of(attributes[name]), value)
            for name, value in wanted.items()
        )


class AttributesFilter(Strict):
    """The older `filter`: attributes that must be equal; an empty value matches any."""

    attributes: dict[Annotated[str, AfterValidator(check_attribute_name)], str] = Field(
        default_factory=dict
    )

    def matches(self, attributes: Attributes) -> bool:
        """Whether all attributes match."""
        return all(
            attributes.get(name) is not None and value in ("", text_of(attributes[name]))
            for name, value in self.attributes.items()
        )


class Ref(Strict):
    """An object of the cluster that takes events."""

    apiVersion: str
    kind: str
    name: str
    namespace: str | None = None


class Destination(Strict):
    """Where events go: an object of the cluster and a path of its URL, or a URL."""

    ref: Ref | None = None
    uri: str | None = None

    @model_validator(mode="after")
    def ref_or_uri(self) -> Self:
        """Require one of the two."""
        if not (self.ref or self.uri):
            raise ValueError("a destination has a ref or a uri")
        return self

    def url(self, subscribers: Mapping[str, str]) -> str | None:
        """The URL, given those of objects by name; None if they lack the object of `ref`."""
        if self.ref is None:
            return self.uri
        base = subscribers.get(self.ref.name)
        return base and base.rstrip("/") + "/" + (self.uri or "").lstrip("/")


class DeliverySpec(Strict):
    """How often an event is tried, and where it goes after the last try."""

    retry: Annotated[int, Field(ge=0)] = 0
    backoffPolicy: Literal["linear", "exponential"] = "exponential"
    backoffDelay: Annotated[timedelta, Field(ge=timedelta(0))] = timedelta(seconds=0.2)
    timeout: timedelta | None = None
    deadLetterSink: Destination | None = None

    def pause(self, retry: int) -> float:
        """Seconds before the `retry`-th try after the first."""
        times = retry if self.backoffPolicy == "linear" else 2**retry
        return self.backoffDelay.total_seconds() * times


class Spec(Strict):
    """The `spec` of a Trigger."""

    broker: str
    filter: AttributesFilter = AttributesFilter()
    filters: tuple[Filter, ...] = ()
    subscriber: Destination
    delivery: DeliverySpec = DeliverySpec()


class Metadata(BaseModel):
    """The `metadata` of a Trigger; only the name is used."""

    name: str


class Trigger(Strict):
    """One Trigger."""

    apiVersion: Literal["eventing.knative.dev/v1"]
    kind: Literal["Trigger"]
    metadata: Metadata
    spec: Spec

    def matches(self, attributes: Attributes) -> bool:
        """Whether an event matches all `filters`, or without any the older `filter`."""
        if self.spec.filters:
            return all(each.matches(attributes) for each in self.spec.filters)
        return self.spec.filter.matches(attributes)


def read_triggers(path: Path) -> list[Trigger]:
    """The Triggers of a YAML file.

    Raises
    ------
    SetupError
        The file cannot be read or a Trigger is wrong. The message names file, Trigger and field.
    """
    try:
        documents = [each for each in yaml.safe_load_all(path.read_text()) if each is not None]
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SetupError(f"{path}: {' '.join(str(error).split())}") from None
    return [_trigger(path, number, each) for number, each in enumerate(documents, 1)]


def _trigger(path: Path, number: int, document: Any) -> Trigger:
    try:
        return Trigger.model_validate(document)
    except ValidationError as error:
        try:
            name = document["metadata"]["name"]
        except (KeyError, TypeError):
            name = f"document {number}"
        wrong = "; ".join(map(_problem, error.errors()))
        raise SetupError(f"{path}: Trigger {name}: {wrong}") from None


def _problem(error: ErrorDetails) -> str:
    field = ".".join(map(str, error["loc"])) or "the Trigger"
    return f"{field}: {'unknown field' if error['type'] == 'extra_forbidden' else error['msg']}"
