"""ADQL 2.1 as far as this service has it: text to a tree of known nodes alone.

https://www.ivoa.net/documents/ADQL/20231215/. sqlglot reads far more than ADQL, so the tree is held
to a list of nodes and functions; docs/how-to/query-with-tap.md lists them for users. It has no
geometry, whose functions `geometry` translates.
"""

import logging
from collections.abc import Iterator
from typing import ClassVar

from sqlglot import TokenType, exp, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from stampede.read.tap.errors import BadAdql

MOST_CHARACTERS = 1_000_000
MOST_DEPTH = 60
"""Of nested expressions; a chain of AND or OR counts once."""
MOST_SELECTS = 20
logging.getLogger("sqlglot").setLevel(logging.ERROR)


class Adql(Dialect):
    """What of ADQL's tokens the default dialect lacks."""

    TYPED_DIVISION = True

    class Tokenizer(tokens.Tokenizer):
        """TOP is a keyword."""

        KEYWORDS: ClassVar = {**tokens.Tokenizer.KEYWORDS, "TOP": TokenType.TOP}


_CLAUSES = (
    *(exp.Select, exp.From, exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered, exp.Limit),
    *(exp.Offset, exp.Join, exp.Table, exp.TableAlias, exp.Alias, exp.Subquery, exp.CTE, exp.With),
    *(exp.Union, exp.Intersect, exp.Except, exp.Distinct),
)
_VALUES = (
    *(exp.Star, exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren),
    *(exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between),
    *(
        exp.In,
        exp.Like,
        exp.ILike,
        exp.Is,
        exp.Exists,
        exp.Add,
        exp.Sub,
        exp.Mul,
        exp.Div,
        exp.Neg,
        exp.DPipe,
    ),
    *(exp.Case, exp.If, exp.Cast, exp.DataType, exp.DataTypeParam),
)
FUNCTIONS: dict[type[exp.Expr], str] = {
    exp.Abs: "abs",
    exp.Ceil: "ceil",
    exp.Floor: "floor",
    exp.Round: "round",
    exp.Trunc: "trunc",
    exp.Sqrt: "sqrt",
    exp.Exp: "exp",
    exp.Ln: "ln",
    exp.Log: "log",
    exp.Pow: "power",
    exp.Mod: "mod",
    exp.Pi: "pi",
    exp.Degrees: "degrees",
    exp.Radians: "radians",
    exp.Sin: "sin",
    exp.Cos: "cos",
    exp.Tan: "tan",
    exp.Asin: "asin",
    exp.Acos: "acos",
    exp.Atan: "atan",
    exp.Atan2: "atan2",
    exp.Cot: "cot",
    exp.Lower: "lower",
    exp.Upper: "upper",
    exp.Coalesce: "coalesce",
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
}
"""The functions that may be called, and their names in DataFusion."""
AGGREGATES = (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max)
GEOMETRY = ("POINT", "CIRCLE", "CONTAINS", "INTERSECTS", "DISTANCE", "COORD1", "COORD2")
_TYPES = ["SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "CHAR", "VARCHAR", "BOOLEAN"]
_PARTS: dict[type[exp.Expr], frozenset[str]] = {
    exp.Select: frozenset(
        [
            "expressions",
            "distinct",
            "from_",
            "joins",
            "where",
            "group",
            "having",
            "order",
            "limit",
            "offset",
            "with_",
        ]
    ),
    exp.Table: frozenset(["this", "db", "alias"]),
    exp.Join: frozenset(["this", "side", "kind", "on", "using", "method"]),
    exp.Group: frozenset(["expressions"]),
    exp.Distinct: frozenset(["expressions"]),
    exp.Subquery: frozenset(["this", "alias"]),
    exp.With: frozenset(["expressions"]),
    exp.CTE: frozenset(["this", "alias"]),
    exp.In: frozenset(["this", "expressions", "query"]),
    exp.Limit: frozenset(["expression"]),
}
"""Of nodes with parts that ADQL lacks those parts that it has."""
_SETS = frozenset(["this", "expression", "distinct", "with_", "order", "limit", "offset"])


def parse(text: str) -> exp.Query:
    """The tree of a query, with nodes of this service's ADQL alone.

    Raises `BadAdql`, which names what is wrong or not there.
    """
    if len(text) > MOST_CHARACTERS:
        raise BadAdql(f"the query has more than {MOST_CHARACTERS:,} characters: upload a table")
    try:
        statements = [one for one in Adql().parse(text) if one is not None]
    except SqlglotError as error:
        where = getattr(error, "errors", None) or [{}]
        line = f", line {where[0]['line']}, column {where[0]['col']}" if where[0] else ""
        reason = where[0].get("description") or str(error)
        raise BadAdql(f"this is no ADQL{line}: {reason.partition('<Token')[0][:200]}") from None
    except RecursionError:
        raise BadAdql("the query is nested too deeply") from None
    if len(statements) != 1:
        raise BadAdql(f"one query at a time: these are {len(statements)}")
    [tree] = statements
    if not isinstance(tree, exp.Select | exp.SetOperation):
        raise BadAdql(f"a query begins with SELECT or WITH, not {tree.key.upper()}")
    _check_depth(tree)
    selects = 0
    for node in tree.walk():
        _check(node)
        selects += isinstance(node, exp.Select)
    if selects > MOST_SELECTS:
        raise BadAdql(f"the query has {selects} times SELECT, at most {MOST_SELECTS} are read")
    return tree


def _check_depth(tree: exp.Expr) -> None:
    """Raise `BadAdql` if the tree is deeper than `MOST_DEPTH`."""
    waiting: list[tuple[exp.Expr, int]] = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > MOST_DEPTH:
            raise BadAdql(f"the query is nested deeper than {MOST_DEPTH} levels")
        for child in node.iter_expressions():
            chain = isinstance(child, exp.Connector) and type(child) is type(node)
            waiting.append((child, depth + (not chain)))


def _check(node: exp.Expr) -> None:
    kind = type(node)
    if kind is exp.Anonymous or kind is exp.Contains:
        name = "CONTAINS" if kind is exp.Contains else str(node.this).upper()
        if name not in GEOMETRY:
            raise _unknown(f"the function {name}")
        return
    if kind in FUNCTIONS:
        return
    if kind not in _CLAUSES and kind not in _VALUES:
        raise _unknown(_name(node))
    parts = _SETS if isinstance(node, exp.SetOperation) else _PARTS.get(kind)
    if parts is not None:
        for part, value in node.args.items():
            if value not in (None, False, []) and part not in parts:
                raise _unknown(f"{part.strip('_').upper()} of {_name(node)}")
    _check_more(node)


def _check_more(node: exp.Expr) -> None:
    """Raise `BadAdql` at what a node's kind does not tell."""
    if isinstance(node, exp.DataType) and node.this.value not in _TYPES:
        raise _unknown(f"the type {node.this.value}")
    if isinstance(node, exp.Table) and not isinstance(node.this, exp.Identifier):
        raise _unknown(f"the table {_name(node.this)}")
    if isinstance(node, exp.Join):
        if node.args.get("method") not in (None, "", "NATURAL"):
            raise _unknown(f"{node.method} JOIN")
        if node.side not in ("", "LEFT", "RIGHT", "FULL") or node.kind not in (
            *("", "INNER", "OUTER", "CROSS"),
        ):
            raise _unknown(f"{node.side} {node.kind} JOIN".strip())
    if isinstance(node, exp.Limit | exp.Offset) and not node.expression.name.isdecimal():
        raise BadAdql(f"{node.key.upper()} takes a whole number")
    if isinstance(node, exp.Literal) and not node.is_string and not _is_number(node.name):
        raise BadAdql(f"{node.name[:40]} is no number")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return len(text) <= 40


def _name(node: exp.Expr) -> str:
    if isinstance(node, exp.Func):
        return f"the function {node.sql_name()}"
    return node.key.upper()


def _unknown(what: str) -> BadAdql:
    return BadAdql(f"{what} is not in the ADQL of this service: see docs/how-to/query-with-tap.md")


def conjuncts(condition: exp.Expr | None) -> Iterator[exp.Expr]:
    """The conditions that AND connects."""
    waiting = [condition] if condition is not None else []
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.Where | exp.Paren):
            waiting.append(node.this)
        elif isinstance(node, exp.And):
            waiting += [node.this, node.expression]
        else:
            yield node
