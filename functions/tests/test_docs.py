"""Checks of the documentation that need no running program."""

import re
import tomllib
from pathlib import Path

import pytest
import typer

from stampede.cli.main import app
from stampede.config.settings import Settings

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "functions" / "stampede"
FOLDERS = ("changes.d", "charts", "client", "docs", "e2e", "eventing", "functions", "manifests")
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(page for folder in FOLDERS for page in sorted(ROOT.glob(f"{folder}/**/*.md"))),
]
MAPS = (
    *("README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/operate.md"),
    "docs/adr/0012-three-packages.md",
)
# A path from the root, such as `functions/stampede/read/app.py` or `manifests/site`.
PATH = re.compile(rf"`((?:{'|'.join(FOLDERS)}|tools|\.ci)/[\w./-]+)`")
RECORDS = sorted((ROOT / "docs" / "adr").glob("0*.md"))
STATUS = re.compile(r"^Status: (accepted|superseded by \[\d+\]\(\S+\.md\)), \d{4}-\d\d-\d\d$", re.M)
PLACEHOLDER = re.compile("NAME|ROOM|MODULE")
# A box of the diagram names its folders or files below the package, such as `events/kafka/`.
STATION = re.compile(r"\w+/(?:\w+/|\w+\.py)*")
# Variables of the tests, of Skaffold and of the stress Job, and those that are options of commands.
OTHER_VARIABLES = {
    "STAMPEDE_DATA",
    "STAMPEDE_TOKEN",
    "STAMPEDE_CLUSTER",
    "STAMPEDE_IMAGE_BASE",
    "STAMPEDE_IMAGE_NETWORK",
    "STAMPEDE_E2E_INGRESS",
    "STAMPEDE_E2E_KUBECONFIG",
    "STAMPEDE_VALUES",
    "STAMPEDE_STRESS_PODS",
    "STAMPEDE_STRESS_RUN",
}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def diagrams(text: str) -> list[str]:
    return re.findall(r"```mermaid\n(.*?)```", text, re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_between_pages_work(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", page.read_text()):
        other = page.parent / target if target else page
        assert other.exists(), f"{page}: {target}"
        assert not anchor or anchor in anchors(other), f"{page}: {target}#{anchor}"


@pytest.mark.parametrize("page", MAPS)
def test_every_path_that_a_page_names_exists(page: str) -> None:
    named = set(PATH.findall((ROOT / page).read_text()))
    real = {path for path in named if not PLACEHOLDER.search(path)}
    missing = {path for path in real if not (ROOT / path).exists()}
    assert not missing, f"{page} names what is not there"


def test_the_architecture_is_one_page_whose_boxes_and_rows_are_rooms_of_the_code() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    (diagram,) = diagrams(page)
    assert len(re.findall(r"^    \w+[\[(]", diagram, re.MULTILINE)) <= 15
    stations = set(STATION.findall(re.sub(r"<br>", " ", diagram)))
    assert len(stations) > 10
    assert not {path for path in stations if not (PACKAGE / path).exists()}
    rows = [line for line in page.splitlines() if line.startswith("| [")]
    assert len(rows) <= 25
    named = set(re.findall(r"\.\./functions/stampede/([\w/]+)\)", " ".join(rows)))
    folders = {str(path.parent.relative_to(PACKAGE)) for path in PACKAGE.rglob("__init__.py")}
    top = {folder for folder in folders if "/" not in folder} - {"."}
    wings = {folder for folder in folders if folder.startswith(("store/", "events/", "read/"))}
    assert top - {"store", "events", "read"} <= named
    assert wings <= named


def test_pages_that_code_and_other_pages_name_exist() -> None:
    for source in [*ROOT.glob("functions/**/*.py"), *ROOT.glob("charts/**/*.yaml"), *PAGES]:
        for page in re.findall(r"docs/[\w/-]+\.md", source.read_text()):
            assert (ROOT / page).exists(), f"{source}: {page}"


def code(page: Path) -> str:
    """What a page shows as code: blocks and words in backticks."""
    return "\n".join(re.findall(r"```.*?```|`[^`]+`", page.read_text(), re.DOTALL))


def test_every_setting_that_a_page_names_exists() -> None:
    settings = {f"STAMPEDE_{field.upper()}" for field in Settings.model_fields}
    settings |= OTHER_VARIABLES
    for page in PAGES:
        named = set(re.findall(r"\bSTAMPEDE_[A-Z0-9_]*[A-Z0-9]", code(page)))
        assert named <= settings, f"{page}: {named - settings}"


def test_every_command_that_a_page_names_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    commands = {*typer.main.get_command(app).commands}  # type: ignore[attr-defined]
    commands |= project["entry-points"]["stampede.commands"].keys()
    for page in PAGES:
        named = set(re.findall(r"(?:[`/] ?|[$] |-- )stampede ([a-z][a-z-]+)\b", code(page)))
        assert named - {"charts"} <= commands, f"{page}: {named - commands}"


def test_every_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"(?:`|[$] )make ([a-z0-9-]+)\b", code(page)))
        assert named <= targets, f"{page}: {named - targets}"


@pytest.mark.parametrize("record", RECORDS, ids=name)
def test_a_decision_record_has_the_common_shape(record: Path) -> None:
    number, text = int(record.name[:4]), record.read_text()
    assert text.startswith(f"# {number}. ")
    assert len(STATUS.findall(text)) == 1
    sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert sections == ["Context", "Decision", "Consequences"]
    assert len(text.split()) <= 500


def test_the_index_names_each_decision_record_once() -> None:
    index = (ROOT / "docs" / "adr" / "README.md").read_text()
    rows = re.findall(r"^\| \[(\d+)\]\((\S+)\) \| (.+) \| (.+) \|$", index, re.MULTILINE)
    assert sorted(file for _, file, _, _ in rows) == [record.name for record in RECORDS]
    for number, file, decided, status in rows:
        assert int(number) == int(file[:4])
        assert len(decided.split()) <= 12, decided
        assert STATUS.findall((ROOT / "docs" / "adr" / file).read_text()) == [status], file


def test_each_page_of_measurements_is_linked_from_its_record() -> None:
    for page in (ROOT / "docs" / "measurements").glob("0*.md"):
        record = ROOT / "docs" / "adr" / page.name
        assert f"](../measurements/{page.name}" in record.read_text(), page
