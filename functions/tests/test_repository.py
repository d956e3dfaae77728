"""Files for the site that hosts the repository, and for tools: they hold to their schemas.

The workflows run only there. What can be known here is that they have no key that does not exist,
call targets that the Makefile has, and may do no more than they need.
"""

import json
import re
import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
SCHEMAS = {
    "CITATION.cff": "citation-file-format",
    ".github/dependabot.yml": "dependabot",
    ".github/ISSUE_TEMPLATE/config.yml": "github-issue-config",
    ".github/ISSUE_TEMPLATE/bug_report.yml": "github-issue-forms",
    ".github/ISSUE_TEMPLATE/feature_request.yml": "github-issue-forms",
    **{str(path.relative_to(ROOT)): "github-workflows" for path in WORKFLOWS},
}
VENDORED = "check_jsonschema.builtin_schemas.vendor"
# A version of three numbers, or a commit.
PINNED = re.compile(r"[\w-]+/[\w/-]+@(v\d+\.\d+\.\d+|[0-9a-f]{40})")
# Targets after `make`, and `make` at the end of a line that has none.
MADE = re.compile(r"(?:^|[\s;&|])make((?:[ \t]+[^\s;&|]+)*)")


def loaded(path: Path) -> Any:
    """The document, by YAML 1.2, in which `on` is a word."""
    return YAML(typ="safe", pure=True).load(path)


def faults(document: Any, schema: str) -> list[str]:
    """What a document has that its schema does not allow."""
    text = resources.files(VENDORED).joinpath(f"{schema}.json").read_text("utf-8")
    kind = jsonschema.validators.validator_for(json.loads(text))
    return [error.message for error in kind(json.loads(text)).iter_errors(document)]


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def targets() -> set[str]:
    """The targets that the Makefile has and that a user may call."""
    return set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def called(commands: str) -> list[str]:
    """The targets that shell commands make. A bare `make` is the target `help`."""
    found = []
    for words in MADE.findall(commands):
        found += [word for word in words.split() if "=" not in word and word[0] != "-"] or ["help"]
    return found


def unpinned(workflow: dict[str, Any]) -> list[str]:
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    return [action for action in used if not PINNED.fullmatch(action)]


def unknown_targets(workflow: dict[str, Any]) -> set[str]:
    return {name for step in steps(workflow) for name in called(step.get("run", ""))} - targets()


@pytest.mark.parametrize(("file", "schema"), SCHEMAS.items())
def test_a_file_holds_to_its_schema(file: str, schema: str) -> None:
    assert not faults(loaded(ROOT / file), schema)


@pytest.mark.parametrize(("file", "schema"), SCHEMAS.items())
def test_a_key_that_does_not_exist_is_a_fault(file: str, schema: str) -> None:
    assert faults({**loaded(ROOT / file), "surprise": 1}, schema)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
class TestWorkflow:
    def test_calls_only_targets_of_the_makefile(self, path: Path) -> None:
        assert not unknown_targets(loaded(path))
        assert unknown_targets(
            {"jobs": {"a": {"steps": [{"run": "cd x && make nothing-like-it"}]}}}
        )

    def test_its_actions_have_a_version(self, path: Path) -> None:
        assert not unpinned(loaded(path))

    def test_may_do_nothing_that_it_does_not_name(self, path: Path) -> None:
        workflow = loaded(path)
        assert workflow["permissions"] in ({}, {"contents": "read"})
        for name, job in workflow["jobs"].items():
            assert job["timeout-minutes"] <= (180 if path.stem == "nightly" else 90), name
        for step in steps(workflow):
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False

    def test_puts_no_word_of_a_stranger_into_a_shell(self, path: Path) -> None:
        """A title or a branch's name inside `run` would be run: variables take them there."""
        workflow = loaded(path)
        assert not [step["run"] for step in steps(workflow) if "${{" in step.get("run", "")]


@pytest.mark.parametrize("action", ["actions/checkout", "actions/checkout@v4", "a/b@main"])
def test_an_action_without_a_whole_version_is_not_pinned(action: str) -> None:
    assert unpinned({"jobs": {"a": {"steps": [{"uses": action}]}}}) == [action]


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        ("make check", ["check"]),
        ("sudo env PATH=x make --keep-going check test SEED=1", ["check", "test"]),
        ("a\nmake e2e && make release; make", ["e2e", "release", "help"]),
        ("remake check", []),
    ],
)
def test_targets_of_commands(commands: str, expected: list[str]) -> None:
    assert called(commands) == expected


def test_the_workflow_makes_what_ci_makes() -> None:
    ours = {name for name in called((ROOT / ".ci" / "run").read_text()) if name in targets()}
    assert ours == {"check", "test", "e2e"}
    workflow = loaded(GITHUB / "workflows" / "ci.yml")
    matrix = workflow["jobs"]["make"]["strategy"]["matrix"]["target"]
    assert set(matrix) == ours
    made = {
        name for step in workflow["jobs"]["make"]["steps"] for name in called(step.get("run", ""))
    }
    assert made == ours


def test_the_workflow_of_the_night_makes_the_longer_forms() -> None:
    job = loaded(GITHUB / "workflows" / "nightly.yml")["jobs"]["make"]
    made = {name for step in job["steps"] for name in called(step.get("run", ""))}
    assert made == set(job["strategy"]["matrix"]["target"]) <= targets()
    assert {f"{name}-all" for name in ("test", "e2e")} <= made


def test_the_workflow_tests_the_client_with_each_python_that_it_names() -> None:
    project = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text())["project"]
    named = [text.rpartition(" ")[2] for text in project["classifiers"] if "Python :: 3." in text]
    workflow = loaded(GITHUB / "workflows" / "ci.yml")
    assert workflow["jobs"]["client"]["strategy"]["matrix"]["python"] == named
    assert project["requires-python"] == f">={named[0]}"


def test_only_what_publishes_may_write() -> None:
    jobs = loaded(GITHUB / "workflows" / "release.yml")["jobs"]
    allowed = {name: job["permissions"] for name, job in jobs.items()}
    assert allowed == {
        "build": {"contents": "read"},
        "files": {"contents": "write"},
        "image": {"contents": "read"},
        "image-and-chart": {"contents": "read"},
        "wheels": {"id-token": "write"},
    }


def test_hooks_call_the_environment_of_the_project_alone() -> None:
    pinned = (ROOT / "requirements-dev.txt").read_text()
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert lint
    programs = set()
    for repository in loaded(ROOT / ".pre-commit-config.yaml")["repos"]:
        assert repository["repo"] == "local"
        for hook in repository["hooks"]:
            assert hook["language"] == "system"
            folder, _, program = hook["entry"].split()[0].rpartition("/")
            assert folder == ".venv/bin"
            assert re.search(rf"^{program}==", pinned, re.MULTILINE)
            programs.add(program)
    assert programs == set(re.findall(r"\$\(BIN\)/([\w-]+)", lint[1]))


def test_directories_that_are_kept_up_to_date_exist() -> None:
    for update in loaded(GITHUB / "dependabot.yml")["updates"]:
        for directory in update.get("directories", [update.get("directory")]):
            assert (ROOT / directory.strip("/")).is_dir(), directory


def test_what_has_owners_exists() -> None:
    lines = (GITHUB / "CODEOWNERS").read_text().splitlines()
    for line in lines:
        if line and not line.startswith("#"):
            path, *owners = line.split()
            assert owners, line
            assert path == "*" or (ROOT / path.strip("/")).exists(), line


def test_the_end_to_end_tests_can_be_collected() -> None:
    """They run on a cluster; a module that is not where they look for it is seen here."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "e2e"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
