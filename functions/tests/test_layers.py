"""Folders import only those below them, in no circle; others import only what a package offers.

No folder, class or function is larger than a reader takes in at a glance, and tests lie as what
they test.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
OURS = ("stampede", "stampede_simulator", "stampede_local", "stampede_bench")
MOST_MODULES = 17
MORE_MODULES = {"stampede/cli": 26, "stampede/alerts": 19}
"""A command is a module; the formats of alerts have parts in common. Neither may grow."""
MOST_METHODS, MOST_LINES, MOST_PARAMETERS = 18, 40, 7
NO_MIRRORS = ("tests/fixtures", "tests/fuzz", "tests/support", "tests/store/simulation")
"""Folders of tests that mirror no folder of a package: they are what tests need."""


def lint(config: Path, code: Path) -> subprocess.CompletedProcess[str]:
    """Hold code to the contracts of a configuration file."""
    program = "from importlinter.cli import lint_imports_command as run; run()"
    return subprocess.run(
        [sys.executable, "-c", program, "--config", str(config), "--no-cache"],
        capture_output=True,
        text=True,
        cwd=code.parent,
        env=os.environ | {"PYTHONPATH": str(code), "COLUMNS": "200"},
    )


def test_the_contracts_hold() -> None:
    done = lint(ROOT / "pyproject.toml", ROOT / "functions")
    assert done.returncode == 0, done.stdout


def test_a_circle_of_two_files_breaks_a_contract(tmp_path: Path) -> None:
    code = tmp_path / "code"
    for folder in ("stampede", "stampede/store", "stampede/alerts"):
        (code / folder).mkdir(parents=True)
        (code / folder / "__init__.py").touch()
    (code / "stampede/store/one.py").write_text("import stampede.alerts.two\n")
    (code / "stampede/alerts/two.py").write_text("import stampede.store.one\n")
    config = tmp_path / "pyproject.toml"
    config.write_text(
        '[tool.importlinter]\nroot_packages = ["stampede"]\n[[tool.importlinter.contracts]]\n'
        'name = "No circle"\ntype = "acyclic_siblings"\nancestors = ["stampede"]\n'
    )
    done = lint(config, code)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "No circle BROKEN" in done.stdout


def test_others_import_only_what_a_package_offers() -> None:
    """The modules in the `__all__` of a package, and no name that begins with `_`."""
    graph = grimp.build_graph(*OURS, cache_dir=None, exclude_type_checking_imports=True)
    hidden = set()
    for imported in graph.modules:
        package, _, name = imported.rpartition(".")
        if not package or name in exported(package):
            continue
        for importer in graph.find_modules_that_directly_import(imported):
            if not f"{importer}.".startswith(f"{package}.") and not is_package(imported):
                hidden.add(f"{importer} imports {imported}, which is not in its package's __all__")
    assert not hidden, "\n".join(sorted(hidden))


def test_what_a_package_offers_is_there() -> None:
    """Modules, or names that its `__init__` defines."""
    for package in packages():
        folder = ROOT / "functions" / Path(*package.split("."))
        defined = {name.id for name in ast.walk(tree_of(package)) if isinstance(name, ast.Name)}
        defined |= {
            node.name for node in tree_of(package).body if isinstance(node, ast.FunctionDef)
        }
        for name in exported(package):
            is_module = (folder / f"{name}.py").exists() or (folder / name).is_dir()
            assert is_module or name in defined, f"{package}.{name}"


def packages() -> list[str]:
    """Every package of ours, dotted."""
    code = ROOT / "functions"
    return sorted(
        ".".join(path.parent.relative_to(code).parts)
        for ours in OURS
        for path in (code / ours).rglob("__init__.py")
    )


def is_package(module: str) -> bool:
    """Whether a module is a package."""
    return (ROOT / "functions" / Path(*module.split(".")) / "__init__.py").exists()


def tree_of(package: str) -> ast.Module:
    """The syntax tree of a package's `__init__`."""
    return ast.parse((ROOT / "functions" / Path(*package.split(".")) / "__init__.py").read_text())


def exported(package: str) -> list[str]:
    """The names in the `__all__` of a package."""
    for node in tree_of(package).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def test_only_the_verified_reader_imports_parquet(tmp_path: Path) -> None:
    """ruff is red on an import planted anywhere else."""
    planted = "import pyarrow as pa\nimport pyarrow.parquet as pq\n\nprint(pa.parquet, pq)\n"
    for place in ("stampede/read/planted.py", "stampede/store/planted.py", "stampede_bench/x.py"):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format=concise",
             "--select=TID251", f"--stdin-filename=functions/{place}", "-"],
            input=planted, capture_output=True, text=True, cwd=ROOT,
        )  # fmt: skip
        assert done.stdout.count("`pyarrow.parquet` is banned") == 2, done.stdout + done.stderr


def test_modules_that_docstrings_and_comments_name_exist() -> None:
    """A name in backquotes such as `store.runs.reader.Block`, whose first part is a folder."""
    product = ROOT / "functions" / "stampede"
    folders = {path.parent.name for path in product.glob("*/__init__.py")}
    gone = set()
    for top in OURS:
        for path in (ROOT / "functions" / top).rglob("*.py"):
            for named in re.findall(r"`(?:stampede\.)?(\w+(?:\.\w+)+)`", path.read_text()):
                folder, module = named.split(".")[:2]
                place = product / folder / module
                is_there = place.is_dir() or place.with_suffix(".py").exists()
                if folder in folders | {"functions"} and not is_there:
                    gone.add(f"{path.relative_to(ROOT)}: {named}")
    assert not gone, "\n".join(sorted(gone))


def modules_of(*tops: str) -> dict[str, int]:
    """How many modules each folder below `functions` has, without `__init__` and `conftest`."""
    code = ROOT / "functions"
    count: dict[str, int] = {}
    for top in tops:
        for path in (code / top).rglob("*.py"):
            folder = path.parent.relative_to(code).as_posix()
            named = path.name not in ("__init__.py", "conftest.py")
            count[folder] = count.get(folder, 0) + named
    return count


def test_no_folder_has_too_many_modules() -> None:
    count = modules_of(*OURS, "tests")
    most = {folder: MORE_MODULES.get(folder, MOST_MODULES) for folder in count}
    assert count.keys() >= MORE_MODULES.keys()
    assert {name: had for name, had in count.items() if had > most[name]} == {}


def definitions() -> Iterator[tuple[str, ast.AST]]:
    """The classes and functions of the product, each with its file and name."""
    for path in sorted((ROOT / "functions/stampede").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef | FUNCTIONS):
                yield f"{path.relative_to(ROOT / 'functions')}: {node.name}", node


def test_no_class_has_too_many_methods() -> None:
    found = {
        name: methods
        for name, node in definitions()
        if isinstance(node, ast.ClassDef)
        and (methods := sum(isinstance(each, FUNCTIONS) for each in node.body)) > MOST_METHODS
    }
    assert found == {}


def test_no_function_is_too_long_or_has_too_many_parameters() -> None:
    """Not counting its docstring, nor `self` and `cls`."""
    found = {}
    for name, node in definitions():
        if isinstance(node, FUNCTIONS):
            lines = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node, clean=False) is not None:
                lines -= node.body[0].end_lineno - node.body[0].lineno + 1
            names = [each.arg for each in node.args.args + node.args.kwonlyargs]
            parameters = len([each for each in names if each not in ("self", "cls")])
            if lines > MOST_LINES or parameters > MOST_PARAMETERS:
                found[name] = lines, parameters
    assert found == {}


def test_each_folder_of_tests_mirrors_a_folder_of_a_package() -> None:
    packages = modules_of(*OURS).keys()
    tops = {name.partition("_")[2]: name for name in OURS if "_" in name}
    alone = set()
    for folder in modules_of("tests"):
        if folder.startswith(NO_MIRRORS):
            continue
        top, *below = folder.split("/")[1:] or [""]
        start = [tops[top]] if top in tops else ["stampede", top]
        if "/".join([*start, *below]).removesuffix("/") not in packages:
            alone.add(folder)
    assert not alone


def test_a_test_watches_only_processes_that_it_started() -> None:
    """Other tests of the same process leave a Ceph running, whose memory and CPU is not its own."""
    everything = re.compile(r"\.Process\((os\.getpid\(\))?\)\.children\(")
    place = ROOT / "functions/tests/support/children.py"
    found = [
        str(file.relative_to(ROOT))
        for part in ("functions", "client", "e2e", "charts", "tools")
        for file in (ROOT / part).rglob("*.py")
        if file != place and everything.search(file.read_text())
    ]
    assert not found, f"{found}: use `tests.support.children.Children`"
    assert everything.search(place.read_text())
