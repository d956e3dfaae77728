"""From the tree of a query to SQL of DataFusion, and which rows of which tables it needs.

A table of the store is too large to read whole for a query that names an object or a cone. So the
conditions that AND connects are looked through for those that a look-up knows (`Bound`). A bound
may have more rows than the query wants, never fewer: DataFusion sees every condition again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
from sqlglot import exp

from stampede.read.tap import geometry, grammar
from stampede.read.tap.errors import BadAdql
from stampede.read.tap.tables import DATA, OBJECTS, TAP_UPLOAD, TapTable, found

ROW, POSITION = "__row", "__position"
"""Columns that join uploaded positions with the objects around them; no result has them."""
WIDEST = 60 / 3600
"""Degrees of the largest radius around each of uploaded positions, as of `POST /v1/cone`."""
_RANGES = {("alerts", "alert_id"), ("nights", "night")}
_CONES = {"objects", "detections"}


class Bound(NamedTuple):
    """Which rows of a table may be needed.

    Attributes
    ----------
    kind
        ``all``; ``keys``, those whose `column` is one of `values`; ``range``, those whose `column`
        is from `values[0]` to `values[1]`; ``cone`` with ra, dec and radius; ``around``, at most
        `values[0]` degrees from the positions of the upload `of`; ``join``, those whose `column` is
        one of the values of the column `values[0]` of `of`.
    of
        Internal name of another table.
    """

    kind: str = "all"
    column: str = ""
    values: tuple[Any, ...] = ()
    of: str = ""

    @property
    def rank(self) -> int:
        """How many rows to expect: of two bounds that with the lesser rank is taken."""
        return ("around", "keys", "cone", "range", "join", "all").index(self.kind)


EVERYTHING = Bound()


@dataclass
class Source:
    """A table that a query names at one place."""

    name: str
    alias: str
    table: TapTable
    bound: Bound = EVERYTHING
    columns: list[str] = field(default_factory=list)

    @property
    def stored(self) -> bool:
        """Whether its rows come from the store."""
        return self.table in DATA


@dataclass
class Plan:
    """What to read, then what to run.

    Attributes
    ----------
    by_chunk
        Each row of the result depends on one row of the only table: read chunk by chunk.
    metadata
        Of columns of the result that are columns of tables.
    top
        The number after TOP; None without.
    """

    sql: str
    sources: list[Source]
    by_chunk: bool
    metadata: dict[str, Mapping[bytes, bytes]]
    top: int | None = None


def plan(text: str, uploads: Mapping[str, pa.Schema]) -> Plan:
    """The plan of a query. Raises `BadAdql`.

    Parameters
    ----------
    uploads
        Columns of the tables of TAP_UPLOAD by name, in lower case.
    """
    tree = grammar.parse(text)
    _lower(tree)
    _name_results(tree)
    scopes = list(_scopes(tree, uploads))
    sources = [source for scope in scopes for source in scope.sources.values()]
    _check_names(sources, tree)
    of_select = {id(scope.select): scope for scope in scopes}
    for scope in scopes:
        scope.bind(of_select)
    metadata = _metadata(tree, sources)
    by_chunk = _by_chunk(tree, sources)
    geometry.translate(tree)
    _calls(tree)
    limit = tree.args.get("limit")
    top = int(geometry.constant(limit.expression) or 0) if limit else None
    return Plan(tree.sql(dialect="postgres", copy=False), sources, by_chunk, metadata, top)


def _lower(tree: exp.Expr) -> None:
    """Names without quotes are in lower case; all get quotes."""
    for node in tree.find_all(exp.Identifier, exp.Ordered):
        if isinstance(node, exp.Ordered):
            node.set("nulls_first", False)
            continue
        if not node.args.get("quoted"):
            node.set("this", node.name.lower())
            node.set("quoted", True)
        if node.name.startswith("__"):
            raise BadAdql(f"a name does not begin with __: {node.name[:40]}")


def _name_results(tree: exp.Expr) -> None:
    """Name the columns of the result that the query does not name."""
    first = tree if isinstance(tree, exp.Select) else tree.find(exp.Select)
    items = first.expressions if first else []
    names = {item.alias_or_name for item in items}
    for number, item in enumerate(items, 1):
        if isinstance(item, exp.Alias | exp.Column | exp.Star):
            continue
        name = item.key if isinstance(item, grammar.AGGREGATES) else f"column_{number}"
        if name in names:
            name = f"{name}_{number}"
        names.add(name)
        item.replace(exp.alias_(item.copy(), name, quoted=True))


class _Scope:
    """The tables of one SELECT, by alias; those without rows of their own are None."""

    def __init__(self, select: exp.Select) -> None:
        self.select = select
        self.sources: dict[str, Source] = {}
        self.others: set[str] = set()

    def column(self, node: exp.Expr) -> tuple[Source, str] | None:
        """The table and the name of a column; None if it is not a table's, or of several."""
        if not isinstance(node, exp.Column):
            return None
        if node.table:
            source = self.sources.get(node.table)
            return (source, node.name) if source else None
        if self.others:
            return None
        having = [s for s in self.sources.values() if node.name in s.table.columns.names]
        return (having[0], node.name) if len(having) == 1 else None

    def bind(self, of_select: Mapping[int, "_Scope"]) -> None:
        """Find the bounds of the tables; `of_select` has the scope of each SELECT, by its `id`."""
        for condition, only in self._conditions():
            self._bind_position(condition, only)
            for source, bound in chain(self._bounds(condition), self._among(condition, of_select)):
                if only in (None, source.alias) and bound.rank < source.bound.rank:
                    source.bound = bound

    def _conditions(self) -> Iterator[tuple[exp.Expr, str | None]]:
        """Conditions that every row of the result meets, and the only table that they bind."""
        for condition in grammar.conjuncts(self.select.args.get("where")):
            yield condition, None
        joins = self.select.args.get("joins") or []
        outer = {join.side for join in joins} - {"", "LEFT"}
        for join in joins:
            if outer or join.args.get("method"):
                continue
            only = join.this.alias_or_name if join.side else None
            for condition in grammar.conjuncts(join.args.get("on")):
                yield condition, only
            for name in join.args.get("using") or []:
                for alias in self.sources:
                    if alias != join.this.alias_or_name:
                        yield _equal(name.name, alias, join.this.alias_or_name), only

    def _bounds(self, condition: exp.Expr) -> Iterator[tuple[Source, Bound]]:
        if isinstance(condition, exp.EQ):
            for one, other in _both(condition):
                yield from self._equal_to(one, other)
        elif isinstance(condition, exp.In) and (of := self.column(condition.this)):
            values = [_value(of, node) for node in condition.expressions]
            if of[1] in of[0].table.keys and values and None not in values:
                yield of[0], Bound("keys", of[1], tuple(values))
        yield from self._ranges(condition)
        yield from self._cones(condition)

    def _among(
        self, condition: exp.Expr, of_select: Mapping[int, "_Scope"]
    ) -> Iterator[tuple[Source, Bound]]:
        """Of a condition ``key IN (SELECT column FROM …)`` the bound."""
        query = condition.args.get("query") if isinstance(condition, exp.In) else None
        scope = of_select.get(id(query.this)) if isinstance(query, exp.Subquery) else None
        of = self.column(condition.this) if scope else None
        if scope and of and of[0].stored and of[1] in of[0].table.keys:
            values = [scope.column(each.unalias()) for each in scope.select.expressions]
            if len(values) == 1 and values[0]:
                yield of[0], Bound("join", of[1], (values[0][1],), values[0][0].name)

    def _equal_to(self, one: exp.Expr, other: exp.Expr) -> Iterator[tuple[Source, Bound]]:
        of, source = self.column(one), self.column(other)
        if of is None or not of[0].stored:
            return
        value = _value(of, other)
        if value is not None and of[1] in of[0].table.keys:
            yield of[0], Bound("keys", of[1], (value,))
        elif value is not None and (of[0].table.short, of[1]) in _RANGES:
            yield of[0], Bound("range", of[1], (value, value))
        elif source and source[0] is not of[0] and of[1] in of[0].table.keys:
            yield of[0], Bound("join", of[1], (source[1],), source[0].name)

    def _ranges(self, condition: exp.Expr) -> Iterator[tuple[Source, Bound]]:
        if isinstance(condition, exp.Between):
            of = self.column(condition.this)
            ends = [geometry.constant(condition.args[end]) for end in ("low", "high")]
            ranged = of and of[0].stored and (of[0].table.short, of[1]) in _RANGES
            if of and ranged and None not in ends:
                values = [_value(of, condition.args[end]) for end in ("low", "high")]
                if None not in values:
                    yield of[0], Bound("range", of[1], tuple(values))

    def _cones(self, condition: exp.Expr) -> Iterator[tuple[Source, Bound]]:
        if not (found_near := geometry.near(condition)):
            return
        for one, other in ((found_near.one, found_near.other), (found_near.other, found_near.one)):
            source = self._position(one)
            numbers = [geometry.constant(each) for each in (*other, found_near.radius)]
            if source and source.table.short in _CONES and None not in numbers:
                _check_cone(numbers)
                yield source, Bound("cone", values=tuple(numbers))

    def _bind_position(self, condition: exp.Expr, only: str | None) -> None:
        """Replace a condition on uploaded positions and objects around them by a join."""
        found_near = geometry.near(condition)
        if not found_near or (radius := geometry.constant(found_near.radius)) is None:
            return
        for one, other in ((found_near.one, found_near.other), (found_near.other, found_near.one)):
            objects, upload = self._position(one), self._position(other)
            if not objects or not upload or objects.table is not OBJECTS or upload.stored:
                continue
            if objects.bound.kind == "around" or only not in (None, objects.alias):
                continue
            if not 0 <= radius <= WIDEST:
                raise BadAdql(
                    "around uploaded positions a radius is at most 60 arcsec, 1/60 degree"
                )
            columns = (*(each.name for each in other), radius)
            objects.bound = Bound("around", values=columns, of=upload.name)
            condition.replace(_equal(POSITION, objects.alias, upload.alias, ROW))
            return

    def _position(self, point: geometry.Point) -> Source | None:
        """The table whose ra and dec a point is; of an upload any two columns."""
        ra, dec = self.column(point.ra), self.column(point.dec)
        if not ra or not dec or ra[0] is not dec[0]:
            return None
        if ra[0].stored and (ra[1], dec[1]) != ("ra", "dec"):
            return None
        return ra[0]


def _both(node: exp.Binary) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    yield node.this, node.expression
    yield node.expression, node.this


def _equal(name: str, alias: str, other: str, other_name: str | None = None) -> exp.Expr:
    return exp.EQ(
        this=exp.column(name, alias, quoted=True),
        expression=exp.column(other_name or name, other, quoted=True),
    )


def _check_cone(numbers: list[float | None]) -> None:
    ra, dec, radius = (number or 0.0 for number in numbers)
    if not (0 <= ra <= 360 and -90 <= dec <= 90 and 0 <= radius <= 180):
        raise BadAdql("a cone has ra from 0 to 360, dec from -90 to 90, a radius from 0 to 180")


def _value(of: tuple[Source, str], node: exp.Expr) -> Any:
    """The constant that is compared with a column, as the column has it; None if it is none.

    A text is compared with a text: an id of digits may stand without quotes.
    """
    source, name = of
    if name not in source.table.columns.names:
        return None
    is_text = pa.types.is_string(source.table.columns.field(name).type)
    if isinstance(node, exp.Literal) and is_text:
        node.set("is_string", True)
        return node.name
    if (number := geometry.constant(node)) is None:
        return None
    if isinstance(node, exp.Literal) and node.name.isdecimal():
        whole = int(node.name)
        return whole if whole < 1 << 63 else None
    return int(number) if number.is_integer() and abs(number) < 1 << 53 else None


def _scopes(tree: exp.Expr, uploads: Mapping[str, pa.Schema]) -> Iterator[_Scope]:
    """Each SELECT of a query; each table gets an internal name."""
    named = {cte.alias for cte in tree.find_all(exp.CTE)}
    number = 0
    for select in list(tree.find_all(exp.Select)):
        scope = _Scope(select)
        begin = select.args.get("from_")
        joins = select.args.get("joins") or []
        for node in [*([begin.this] if begin else []), *(join.this for join in joins)]:
            alias = node.alias_or_name
            if alias in scope.sources or alias in scope.others:
                raise BadAdql(f"two tables are called {alias}: give one another name by AS")
            if isinstance(node, exp.Table) and (node.db or node.name not in named):
                name = f"t{number}"
                scope.sources[alias] = Source(name, alias, _table(node, uploads))
                node.replace(
                    exp.alias_(exp.table_(name, quoted=True), alias, table=True, quoted=True)
                )
                number += 1
            else:
                scope.others.add(alias)
        for column in select.find_all(exp.Column):
            column.set("db", None)
        yield scope


def _table(node: exp.Table, uploads: Mapping[str, pa.Schema]) -> TapTable:
    """The table that a query names. Raises `BadAdql`."""
    if node.db == TAP_UPLOAD:
        if node.name in uploads:
            return TapTable(f"{TAP_UPLOAD}.{node.name}", "", uploads[node.name])
        raise BadAdql(f"no table {TAP_UPLOAD}.{node.name[:40]} came with the query")
    if table := found(node.db, node.name):
        return table
    named = f"{node.db}.{node.name}" if node.db else node.name
    names = ", ".join(table.short for table in DATA)
    raise BadAdql(f"there is no table {named[:80]}: there are {names}, and those of TAP_SCHEMA")


def _check_names(sources: list[Source], tree: exp.Expr) -> None:
    """Set which columns of each table are read: those that the query names anywhere."""
    names, star = set[str](), False
    for node in tree.find_all(exp.Column, exp.Join, exp.Star):
        if isinstance(node, exp.Column):
            names.add(node.name)
        elif isinstance(node, exp.Join):
            names |= {name.name for name in node.args.get("using") or []}
            star = star or bool(node.args.get("method"))  # a natural one
        else:
            star = star or not isinstance(node.parent, exp.Count)
    for source in sources:
        known = source.table.columns.names
        source.columns = [name for name in known if star or name in names] or known[:1]


def _by_chunk(tree: exp.Expr, sources: list[Source]) -> bool:
    if len(sources) != 1 or not isinstance(tree, exp.Select) or not sources[0].stored:
        return False
    if len(list(tree.find_all(exp.Select))) > 1 or tree.find(*grammar.AGGREGATES):
        return False
    return not any(tree.args.get(p) for p in ("group", "having", "order", "distinct", "offset"))


def _metadata(tree: exp.Expr, sources: list[Source]) -> dict[str, Mapping[bytes, bytes]]:
    """Unit, UCD and description of columns of the result, by name."""
    of_name: dict[str, Mapping[bytes, bytes]] = {}
    for source in sources:
        for each in source.table.columns:
            of_name.setdefault(each.name, each.metadata or {})
    first = tree if isinstance(tree, exp.Select) else tree.find(exp.Select)
    if first is None or first.find(exp.Subquery, exp.CTE) is not None:
        return of_name
    found_here: dict[str, Mapping[bytes, bytes]] = {}
    for item in first.expressions:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and item.is_star):
            found_here |= of_name
        elif isinstance(item.unalias(), exp.Column):
            found_here[item.alias_or_name] = of_name.get(item.unalias().name, {})
    return found_here


def _calls(tree: exp.Expr) -> None:
    """Write each function by its name in DataFusion."""
    for node in list(tree.walk()):
        name = grammar.FUNCTIONS.get(type(node))
        if name is None or isinstance(node, exp.Count):
            continue
        values = [node.this, node.args.get("expression"), node.args.get("decimals")]
        values = [value for value in values if isinstance(value, exp.Expr)]
        values += [value for value in node.expressions if isinstance(value, exp.Expr)]
        if isinstance(node, exp.Log):  # of one number it is the natural one, as in ADQL
            name = "log" if len(values) == 2 else "ln"
        call: exp.Expr = exp.Anonymous(this=name, expressions=values)
        if isinstance(node, exp.Mod):
            call = exp.Paren(this=exp.Mod(this=values[0], expression=values[1]))
        if node.parent is not None:
            node.replace(call)
