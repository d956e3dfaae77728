"""The page of the Python packages: what each one offers the others, from the code itself."""

import ast
from collections.abc import Iterator
from pathlib import Path

CODE = Path(__file__).parents[2] / "functions"
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
PACKAGES = sorted(path.parent.name for path in CODE.glob("stampede*/__init__.py"))
HEAD = """# Python packages

What each package offers the others: its public modules, which its `__all__` names, and their public
names. The docstrings in the code say more: shapes, units, errors.
"""


def page() -> str:
    """The page."""
    parts = [HEAD]
    for name in PACKAGES:
        for folder in sorted(path.parent for path in (CODE / name).rglob("__init__.py")):
            parts += package(folder)
    return "\n".join(parts)


def package(folder: Path) -> Iterator[str]:
    """The lines on one package."""
    tree = ast.parse((folder / "__init__.py").read_text())
    dotted = ".".join(folder.relative_to(CODE).parts)
    yield f"\n## `{dotted}`\n"
    yield first_line(tree) + "\n"
    for node in definitions(tree):
        yield f"- `{dotted}.{node.name}`: {first_line(node)}"
    for name in exported(tree):
        path = folder / f"{name}.py"
        if path.exists():
            yield from module(f"{dotted}.{name}", path)


def module(dotted: str, path: Path) -> Iterator[str]:
    """The lines on one module."""
    tree = ast.parse(path.read_text())
    yield f"### `{dotted}`\n"
    yield first_line(tree) + "\n"
    for node in definitions(tree):
        yield f"- `{node.name}`: {first_line(node)}"
    yield ""


def exported(tree: ast.Module) -> list[str]:
    """The names in `__all__`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def definitions(tree: ast.Module) -> Iterator[Definition]:
    """The public classes and functions of a module, in order."""
    for node in tree.body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield node


def first_line(node: ast.Module | Definition) -> str:
    """The first paragraph of a docstring, as one line."""
    text = ast.get_docstring(node) or ""
    return " ".join(text.partition("\n\n")[0].split())
