"""Errors of queries in ADQL."""

from stampede.errors import BadQuery, StampedeError


class BadAdql(BadQuery):
    """The query is no ADQL, or uses what this service's subset does not have."""

    name = "bad-adql"


class QueryTooLarge(BadQuery):
    """The query takes more time, memory or rows than one query may."""

    name = "query-too-large"


class QueryFailed(StampedeError):
    """The process of a query ended, and not by the query's own limits: try again."""

    name, status = "query-failed", 503
