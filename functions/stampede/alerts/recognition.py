"""Whose alert a schema describes: by the schema's name, its namespace and its fields.

Alerts of other surveys look much like ZTF's: PGIR's, WINTER's and TURBO's have a `candidate` too,
with other filters and magnitudes on another system. So a schema that names another survey is
refused, whatever its fields. Brokers export alerts again under names of no survey, for example
Spark's ``topLevelRecord``; then the fields decide alone.
"""

import re
from collections.abc import Mapping

import pyarrow as pa

from stampede.alerts import schemas
from stampede.alerts.arrays import chosen
from stampede.alerts.readable import Readable
from stampede.alerts.schemas import Schema
from stampede.alerts.surveys import surveys
from stampede.alerts.surveys.survey import Survey
from stampede.errors import UnknownSurvey, Unusable

# Words in the names of schemas that say nothing about the survey.
_NEUTRAL = {"alert", "alerts", "packet", "record", "root", "schema", "toplevelrecord", "value"}
_VERSION = re.compile(r"v?\d+(_\d+)*")
_LONGEST_NAME = 80


def survey_of(name: str, schema: Schema) -> Survey:
    """The survey whose alerts have this schema.

    Parameters
    ----------
    name
        The full name that the writer gave the schema.
    schema
        The schema of a record, simplified.

    Raises
    ------
    UnknownSurvey
        It is not one of a survey that Stampede knows, or fits several; the message says why.
    """
    fields = schemas.record_fields(schema, schema) or {}
    named = _named_survey(name)
    reasons, fitting = {}, []
    for survey in surveys():
        missing = _missing(survey, fields, schema)
        if missing:
            reasons[survey.NAME] = f"no field {missing}"
        elif named not in ("", survey.NAME):
            reasons[survey.NAME] = "its schema has another name"
        else:
            fitting.append(survey)
    specific = [one for one in fitting if all(_is_as_specific(one, other) for other in fitting)]
    if len(specific) == 1:
        return specific[0]
    if fitting:
        several = " and ".join(f"{survey.NAME.upper()}'s" for survey in fitting)
        raise UnknownSurvey(f"the schema {_shown(name)} has the fields of {several} alerts alike")
    neither = " nor ".join(f"{each.upper()}'s ({reason})" for each, reason in reasons.items())
    shown = _shown(name)
    if named and named not in reasons:
        whose = f"this is a {_shown(named).upper()} alert (schema {shown})"
    else:
        whose = f"the schema {shown} is of no survey" if shown else "the schema is of no survey"
    *others, last = (each.upper() for each in reasons)
    names = f"{', '.join(others)} and {last}"
    raise UnknownSurvey(f"{whose}, Stampede knows {names}: it is neither {neither}")


def check_columns(survey: Survey, found: Readable) -> None:
    """Raise `Unusable` for a schema in which a field that Stampede reads has an unfit type.

    The survey's own functions judge it, by what they ask of a table of no alerts. So all functions
    refuse the same alerts for the same reason, before they decode any.
    """
    columns = found.all_columns
    table = pa.table([pa.array([], column.type) for column in columns], columns)
    own = table[survey.OWN_FIELD].type
    if not pa.types.is_struct(own):
        raise Unusable(f"the schema's field {survey.OWN_FIELD} is not a record")
    names = survey.head_columns(
        dict.fromkeys(columns.names), dict.fromkeys(field.name for field in own)
    )
    try:
        survey.detections(table, survey.head(chosen(table, names)))
        for kind, name in survey.CUTOUT_FIELDS.items():
            if name in columns.names and survey.cutout(table, kind).type != pa.binary():
                raise Unusable(f"the schema's field {name} holds no bytes of an image")
    except Unusable:
        raise
    except Exception as error:  # of a type that nobody thought of
        raise Unusable(f"the schema has a type that cannot be read: {error!r:.300}") from error


def _named_survey(name: str) -> str:
    """The survey that a schema's full name tells of, as `Survey.NAME`; empty if of none.

    The name of a survey that Stampede does not know is as the schema has it.
    """
    telling = telling_words(name)
    for survey in surveys():
        if any(word.startswith(survey.NAME) for word in telling):
            return survey.NAME
    return telling[0] if telling else ""


def telling_words(name: str) -> list[str]:
    """The words in a schema's full name that may tell its survey, in small letters."""
    words = [word for word in name.lower().split(".") if not _VERSION.fullmatch(word)]
    return [word for word in words if word and word not in _NEUTRAL]


def _missing(survey: Survey, fields: Mapping[str, Schema], schema: Schema) -> str:
    """The first field that the survey's alerts have and these have not; empty if none."""
    for alternatives in ((survey.OWN_FIELD,), *survey.REQUIRED_FIELDS):
        if not any(_has(fields, field, schema) for field in alternatives):
            return " or ".join(alternatives)
    return ""


def _is_as_specific(one: Survey, other: Survey) -> bool:
    """Whether one survey asks for each field that another asks for."""
    own = [{one.OWN_FIELD}, *map(set, one.REQUIRED_FIELDS)]
    return all(
        any(names & {*wanted} for names in own)
        for wanted in ((other.OWN_FIELD,), *other.REQUIRED_FIELDS)
    )


def _has(fields: Mapping[str, Schema], path: str, schema: Schema) -> bool:
    first, _, rest = path.partition(".")
    if first not in fields:
        return False
    inner = schemas.record_fields(fields[first], schema) if rest else None
    return not rest or (inner is not None and _has(inner, rest, schema))


def _shown(name: str) -> str:
    """A name that anybody may have chosen, in ASCII and of bounded length."""
    text = name.encode("ascii", "backslashreplace").decode()
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}…"
