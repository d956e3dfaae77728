"""The page of the Python client's API, from its docstrings."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "client" / "stampede_client"
HEAD = """# Python client: API

Every public name of `stampede_client`, from its docstring. [stampede-client](client.md) shows how
to use them.
"""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def page() -> str:
    """The whole page."""
    return HEAD + "".join(f"\n{line}\n" for line in _lines())


def _lines() -> Iterator[str]:
    top = ast.parse((PACKAGE / "__init__.py").read_text())
    modules = [node for node in top.body if isinstance(node, ast.ImportFrom) and node.module]
    for module in modules:
        path = PACKAGE / f"{str(module.module).rpartition('.')[2]}.py"
        known = {
            node.name: node
            for node in ast.parse(path.read_text()).body
            if isinstance(node, Function | ast.ClassDef)
        }
        for name in sorted(alias.name for alias in module.names):
            yield from _described(known[name])


def _described(node: Function | ast.ClassDef) -> Iterator[str]:
    yield f"## `{node.name}`"
    if isinstance(node, Function):
        yield f"```python\nstampede_client.{_signature(node)}\n```"
    yield markdown(ast.get_docstring(node) or "")
    for method in node.body if isinstance(node, ast.ClassDef) else ():
        text = ast.get_docstring(method) if isinstance(method, Function) else None
        if isinstance(method, Function) and text and not method.name.startswith("_"):
            yield f"### `{node.name}.{_signature(method)}`"
            yield markdown(text)


def _signature(node: Function) -> str:
    arguments = re.sub(r"^self(, )?", "", ast.unparse(node.args))
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({arguments}){returns}".replace('"', "").replace("'", "")


def markdown(docstring: str) -> str:
    """A numpydoc docstring as Markdown: its sections become lists."""
    text = re.sub(r"``(.+?)``", r"`\1`", docstring)
    parts = re.split(r"^(\w+)\n-{3,}\n", text, flags=re.MULTILINE)
    lines = [parts[0].strip()]
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        lines.append(f"**{title}**\n\n{_list(body)}")
    return "\n\n".join(lines)


def _list(body: str) -> str:
    """Names at the margin with indented texts, as a list; other text as it is."""
    items: list[list[str]] = []
    for line in filter(str.strip, body.splitlines()):
        if line.startswith(" ") and items:
            items[-1].append(line.strip())
        else:
            items.append([line.strip()])
    return "\n".join(
        f"- `{name}`: {' '.join(rest)}" if rest else f"- {name}" for name, *rest in items
    )
