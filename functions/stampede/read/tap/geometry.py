"""ADQL's geometry: points, circles, and how far positions are from each other.

Only what a look-up by cone needs. The distance is that of `/v1/cone`, by the same formula
(`stampede.lookup.sky.separation`).
"""

from typing import NamedTuple

from sqlglot import exp

from stampede.read.tap.errors import BadAdql

SEPARATION = "stampede_separation"
"""Name of the function of four angles in degrees."""
_SHAPES = ("POINT", "CIRCLE")


class Point(NamedTuple):
    """Two expressions: ICRS degrees."""

    ra: exp.Expr
    dec: exp.Expr


class Near(NamedTuple):
    """Two points are at most `radius` degrees from each other."""

    one: Point
    other: Point
    radius: exp.Expr


def near(condition: exp.Expr) -> Near | None:
    """What a condition says of two points; None if it says nothing that a cone search knows."""
    if isinstance(condition, exp.EQ):
        for number, call in (
            (condition.this, condition.expression),
            (condition.expression, condition.this),
        ):
            if constant(number) == 1 and name_of(call) in ("CONTAINS", "INTERSECTS"):
                return contained(call)
        return None
    if isinstance(condition, exp.LT | exp.LTE):
        distance, radius = condition.this, condition.expression
    elif isinstance(condition, exp.GT | exp.GTE):
        distance, radius = condition.expression, condition.this
    else:
        return None
    return Near(*_ends(distance), radius) if name_of(distance) == "DISTANCE" else None


def contained(call: exp.Expr) -> Near:
    """What CONTAINS(POINT, CIRCLE) says. Raises `BadAdql`."""
    first, second = _arguments(call, 2)
    if name_of(call) == "INTERSECTS" and name_of(first) == "CIRCLE":
        first, second = second, first
    if name_of(first) != "POINT" or name_of(second) != "CIRCLE":
        raise BadAdql(f"{name_of(call)} takes a POINT and a CIRCLE here, nothing else")
    values = _without_system(second)
    if len(values) == 2 and name_of(values[0]) == "POINT":
        return Near(point(first), point(values[0]), values[1])
    if len(values) != 3:
        raise BadAdql("CIRCLE takes ra, dec and radius in degrees, or a POINT and a radius")
    return Near(point(first), Point(values[0], values[1]), values[2])


def point(call: exp.Expr) -> Point:
    """The two expressions of a POINT. Raises `BadAdql`."""
    values = _without_system(call)
    if name_of(call) != "POINT" or len(values) != 2:
        raise BadAdql("POINT takes ra and dec in degrees, with or without 'ICRS' before them")
    return Point(*values)


def constant(node: exp.Expr) -> float | None:
    """The number that an expression is; None if it is none."""
    if isinstance(node, exp.Paren):
        return constant(node.this)
    if isinstance(node, exp.Neg):
        value = constant(node.this)
        return None if value is None else -value
    return float(node.name) if isinstance(node, exp.Literal) and not node.is_string else None


def name_of(node: exp.Expr) -> str:
    """The name of a function of geometry; empty if it is none."""
    if isinstance(node, exp.Contains):
        return "CONTAINS"
    return str(node.this).upper() if isinstance(node, exp.Anonymous) else ""


def translate(tree: exp.Expr) -> None:
    """Replace the functions of geometry in a tree. Raises `BadAdql`."""
    calls = [node for node in tree.walk() if isinstance(node, exp.Anonymous | exp.Contains)]
    for call in calls:
        name = name_of(call)
        if name in ("CONTAINS", "INTERSECTS"):
            _replace_contained(call)
        elif name == "DISTANCE":
            call.replace(separation(*_ends(call)))
        elif name in ("COORD1", "COORD2"):
            call.replace(point(_arguments(call, 1)[0])[name == "COORD2"].copy())
    for call in tree.find_all(exp.Anonymous):
        if name_of(call) in _SHAPES:
            raise BadAdql(
                f"{name_of(call)} stands only in CONTAINS, INTERSECTS, DISTANCE, COORD1 and COORD2"
            )


def _replace_contained(call: exp.Expr) -> None:
    """CONTAINS is 1 or 0; compared with 1 it is a condition."""
    found = contained(call)
    inside = exp.LTE(this=separation(found.one, found.other), expression=found.radius.copy())
    parent = call.parent
    if isinstance(parent, exp.EQ) and near(parent):
        parent.replace(exp.Paren(this=inside))
        return
    ones = [exp.If(this=inside, true=exp.Literal.number(1))]
    call.replace(exp.Case(ifs=ones, default=exp.Literal.number(0)))


def separation(one: Point, other: Point) -> exp.Expr:
    """Degrees between two points."""
    angles = [angle.copy() for angle in (*one, *other)]
    return exp.Anonymous(this=SEPARATION, expressions=[_double(angle) for angle in angles])


def _double(node: exp.Expr) -> exp.Expr:
    return exp.Cast(this=node, to=exp.DataType(this=exp.DType.DOUBLE))


def _ends(call: exp.Expr) -> tuple[Point, Point]:
    """The points of DISTANCE: two, or four angles. Raises `BadAdql`."""
    values = list(call.expressions)
    if len(values) == 4:
        return Point(*values[:2]), Point(*values[2:])
    first, second = _arguments(call, 2)
    return point(first), point(second)


def _arguments(call: exp.Expr, count: int) -> list[exp.Expr]:
    found = [call.this, call.expression] if isinstance(call, exp.Contains) else call.expressions
    if len(found) != count:
        raise BadAdql(f"{name_of(call)} takes {count} arguments, not {len(found)}")
    return list(found)


def _without_system(call: exp.Expr) -> list[exp.Expr]:
    """The arguments of a shape without its coordinate system, which is ICRS."""
    values = list(call.expressions)
    if values and isinstance(values[0], exp.Literal) and values[0].is_string:
        system = values.pop(0).name
        if system.upper() not in ("", "ICRS"):
            raise BadAdql(f"positions are ICRS here, not {system[:40]!r}")
    return values
