"""Each route of the API in words, and commands that call it with ids that exist in the store."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from markupsafe import Markup

_SUFFIXES = {
    "application/fits": "fits",
    "application/avro": "avro",
    "application/x-tar": "tar",
    "application/vnd.apache.arrow.stream": "arrow",
    "image/png": "png",
    "application/x-votable+xml": "vot",
}
"""Ends of the names of files, by the types of responses that a terminal does not show."""
_OFFERED = {"survey", "ID"}
"""Optional parameters that an example has if their value is known."""


_REDIRECTED = "/find", "/tap/async"


PARTS = "Data", "Pages", "The server"
"""Parts of the page: what gives data to programs comes first."""


class Parameter(NamedTuple):
    """A parameter of a route, for people: `kind` is its type or its values."""

    name: str
    where: str
    required: bool
    kind: "Markup"
    default: str
    text: "Markup"


class Operation(NamedTuple):
    """A route and a method: what it is, and how it is called.

    `curl` is for a shell and `python` for an interpreter; both expect the variable URL. `path` is
    that of the example. They are empty where no example is known: of a job that a client made.
    """

    method: str
    route: str
    summary: "Markup"
    description: "Markup"
    parameters: list[Parameter]
    types: list[str]
    path: str
    curl: str
    python: str

    @property
    def anchor(self) -> str:
        """Where it is on the page."""
        route = self.route.translate(str.maketrans("/", "-", "{}")).strip("-")
        return f"{self.method.lower()}-{route}"

    @property
    def part(self) -> str:
        """The part of the page that it belongs to, one of `PARTS`."""
        if self.route.startswith(("/v1/", "/.well-known/")):
            return PARTS[0]
        return PARTS[1] if "text/html" in self.types else PARTS[2]


def operations(api: Mapping[str, Any], known: Mapping[str, Mapping[str, str]]) -> list[Operation]:
    """All operations of an OpenAPI document.

    Parameters
    ----------
    known
        By route the values of its parameters, and of `body`; those for all routes under ``""``.
        What is not known is as in the document's examples.
    """
    return [
        _operation(method, route, spec, {**known.get("", {}), **known.get(route, {})})
        for route, item in api["paths"].items()
        for method, spec in item.items()
    ]


def _operation(
    method: str, route: str, spec: Mapping[str, Any], known: Mapping[str, str]
) -> Operation:
    path, query, is_known = route, {}, True
    for each in spec["parameters"]:
        name = each["name"]
        value = known.get(name, str(each.get("example", name.upper())))
        is_known &= each["in"] != "path" or name in known or "example" in each
        if each["in"] == "path":
            path = path.replace(f"{{{name}}}", quote(value, safe=""))
        elif each.get("required") or name in known.keys() & _OFFERED or route == "/cone":
            query[name] = value
    if query:
        path += f"?{urlencode(query, quote_via=quote, safe='')}"
    types = [
        kind
        for status, response in spec["responses"].items()
        if status == "200"
        for kind in response.get("content", {})
    ]
    body = known.get("csv" if "radius" in query else "body", "") if method == "post" else None
    name = path.partition("?")[0].rpartition("/")[2]
    return Operation(
        method.upper(),
        route,
        prose(spec["summary"].rstrip(".") + ".", as_blocks=False),
        prose(spec.get("description", "")),
        [_parameter(each) for each in spec["parameters"]],
        types,
        path if is_known else "",
        _curl(path, types[0], name, body) if is_known else "",
        _python(path, types[0], body) if is_known else "",
    )


def _curl(path: str, kind: str, name: str, body: str | None) -> str:
    data = "" if body is None else f'--data-binary "{body}" '
    suffix = _SUFFIXES.get(kind)
    output = f" --output {name}.{suffix}" if suffix else ""
    follow = "--location " if path.startswith(_REDIRECTED) else ""
    return f'curl --fail {follow}{data}"$URL{path}"{output}'


def _python(path: str, kind: str, body: str | None) -> str:
    if kind == "application/fits":
        return f'astropy.io.fits.open(f"{{URL}}{path}")'
    if kind == "application/x-votable+xml":
        return f'astropy.table.Table.read(f"{{URL}}{path}", format="votable")'
    member = "json()" if kind == "application/json" else "text" if "text/" in kind else "content"
    data = f', content="{body}"' if body else ""
    follow = ", follow_redirects=True" if path.startswith(_REDIRECTED) else ""
    verb = "get" if body is None else "post"
    return f'httpx.{verb}(f"{{URL}}{path}"{data}{follow}).raise_for_status().{member}'


def _parameter(each: Mapping[str, Any]) -> Parameter:
    schema = each["schema"]
    text = each.get("description", "").rstrip(".")
    return Parameter(
        each["name"],
        each["in"],
        bool(each.get("required")),
        prose(_kind(schema), as_blocks=False),
        str(schema.get("default", "")).lower(),
        prose(f"{text[:1].upper()}{text[1:]}." if text else "", as_blocks=False),
    )


def _kind(schema: Mapping[str, Any]) -> str:
    """The values that a parameter may have, in words."""
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if schema["type"] == "array":
        return f"some of {_kind(schema['items'])}"
    if schema.get("format") == "date":
        return "date"
    name = {"boolean": "`true` or `false`", "string": "text"}.get(schema["type"], schema["type"])
    ends = (("minimum", "from"), ("maximum", "to"))
    limits = [f"{word} {schema[end]:,}" for end, word in ends if end in schema]
    return " ".join([name, *limits])


def prose(text: str, as_blocks: bool = True) -> "Markup":
    """Text with `code` in backticks as HTML: a line, or paragraphs and lists."""
    from markupsafe import Markup, escape

    marked = re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    if not as_blocks:
        return Markup(marked)
    blocks = []
    for block in filter(None, re.split(r"\n\s*\n", marked.strip())):
        items = re.split(r"(?:^|\n)- ", block)
        lines = "".join(f"<li>{item}</li>" for item in items[1:])
        blocks.append(f"<ul>{lines}</ul>" if lines else f"<p>{block}</p>")
    return Markup("".join(blocks))
