"""The page of the HTTP API, from the OpenAPI document that `read` serves."""

from collections.abc import Iterator
from typing import Any

from stampede.read.openapi import describe

HEAD = """# HTTP

The routes of `read`. `GET /openapi.json` of a running system is the same for programs.

"""


def page() -> str:
    """The whole page."""
    document = describe()
    parts = [HEAD, document["info"]["description"].strip(), "\n"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if isinstance(operation, dict) and "responses" in operation:
                parts += route(path, method, operation)
    parts.append("\n## Schemas\n")
    for name, schema in document["components"]["schemas"].items():
        parts += schema_lines(name, schema)
    return "".join(parts)


def route(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    """The lines on one method of a route."""
    yield f"\n## {method.upper()} `{path}`\n\n"
    yield sentence(operation.get("summary", "")) + "\n"
    if description := operation.get("description"):
        yield f"\n{description.strip()}\n"
    if parameters := operation.get("parameters"):
        yield "\n| parameter | in | type | what it is |\n|---|---|---|---|\n"
        for each in parameters:
            name = f"`{each['name']}`" + (" (required)" if each.get("required") else "")
            about = cell(each.get("description", ""))
            if "example" in each:
                about = f"{about}; for example `{each['example']}`".removeprefix("; ")
            yield f"| {name} | {each['in']} | {kind(each['schema'])} | {about} |\n"
    if body := operation.get("requestBody"):
        yield f"\nBody: {', '.join(f'`{name}`' for name in body['content'])}.\n"
    yield "\n| status | answer | as |\n|---|---|---|\n"
    for status, response in operation["responses"].items():
        types = ", ".join(f"`{name}`" for name in response.get("content", {}))
        yield f"| {status} | {cell(response.get('description', ''))} | {types} |\n"


def schema_lines(name: str, schema: dict[str, Any]) -> Iterator[str]:
    """The fields of a schema."""
    yield f"\n### {name}\n\n"
    if description := schema.get("description"):
        yield sentence(description) + "\n\n"
    if properties := schema.get("properties"):
        yield "| field | type | what it is |\n|---|---|---|\n"
        for field, each in properties.items():
            yield f"| `{field}` | {kind(each)} | {cell(each.get('description', ''))} |\n"


def kind(schema: dict[str, Any]) -> str:
    """The type of a value in words."""
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "enum" in schema:
        return " ".join(f"`{value}`" for value in schema["enum"])
    types = schema.get("type", "any")
    text = " or ".join(types) if isinstance(types, list) else str(types)
    if text == "array" and "items" in schema:
        text += f" of {kind(schema['items'])}"
    limits = [
        f"{word} {schema[name]}"
        for name, word in (("minimum", "from"), ("maximum", "to"), ("default", "default"))
        if name in schema
    ]
    return ", ".join([text, *limits])


def sentence(text: str) -> str:
    """A summary with a full stop."""
    text = " ".join(text.split())
    return text if not text or text.endswith(".") else f"{text}."


def cell(text: str) -> str:
    """Text inside a table."""
    return " ".join(text.split()).replace("|", "\\|")
