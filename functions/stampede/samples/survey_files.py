"""Writes the files of a new survey into a checkout: its module, a test, samples, a report."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from string import Template
from types import ModuleType
from typing import NamedTuple

from stampede.alerts import surveys
from stampede.alerts.bounds import SURVEY_NAME
from stampede.alerts.recognition import telling_words
from stampede.errors import SetupError
from stampede.samples.fields import printable, twice
from stampede.samples.guesses import Guesses, guess
from stampede.samples.sample import Sample, Verdict, judge
from stampede.samples.survey_module import module_text

MODULES = Path("functions/stampede/alerts/surveys")
TESTS = Path("functions/tests/alerts/surveys")
SAMPLES = Path("functions/tests/fixtures/surveys")
MOST_SAMPLES = 5
"""Alerts that are copied for the test."""

TEST = Template('''\
"""$upper: its samples are recognised, and both functions would store all that is in them."""

from pathlib import Path

import pytest

from stampede.alerts import surveys
from tests.support.alerts.batch_decoders import make_batch_decoder

SAMPLES = sorted((Path(__file__).parents[2] / "fixtures" / "surveys" / "$name").glob("*.avro"))


@pytest.fixture
def decoded(tmp_path):
    assert "$name" in surveys.names(), "add $upper to MODULES in alerts/surveys/__init__.py"
    assert SAMPLES, "the samples are not here"
    return make_batch_decoder(tmp_path).alerts([path.read_bytes() for path in SAMPLES])


def test_each_sample_is_stored(decoded) -> None:
    for table in decoded:
        assert [fault and fault.message for fault in table.faults] == [None] * len(SAMPLES)
        assert set(table.rows["survey"].to_pylist()) == {"$name"}


def test_the_first_sample_has_these_values(decoded) -> None:
    """Compare each with what the survey says of this alert."""
    row = decoded.detections.rows.slice(0, 1).to_pylist()[0]
    expected = {
$expected    }
    assert {name: row[name] for name in expected} == expected


def test_all_points_and_images_are_there(decoded) -> None:
    assert decoded.detections.rows.num_rows == $detections
    assert decoded.cutouts.rows["fits"].is_valid().to_pylist().count(True) == $cutouts
''')

REPORT = Template("""\
# $upper: what was guessed from $samples

The module decodes $decoded.

| what | guess |
|---|---|
$guesses
## To look up

Each of these is a doubt. Ask the survey or its documentation, then correct [the module]($module).

$doubts
## Next

1. Add the line `"$name": "stampede.alerts.surveys.$name",` to `MODULES` in `$modules/__init__.py`.
2. Run the test: `.venv/bin/python -m pytest -q $test`
3. Compare the values in the test with what the survey says of this alert; go through the list.
4. `.venv/bin/stampede up`, then `.venv/bin/stampede ingest` your files: look at an object's page.
5. Add its fields to the descriptions in `functions/stampede/alerts/columns.py`, then run
   `.venv/bin/python tools/columns.py`.

The samples were copied for the test. Commit them only if the survey has made them public.
""")


class Written(NamedTuple):
    """The files of a new survey.

    Attributes
    ----------
    files
        All that were written, relative to the checkout: the report, the module, the test, samples.
    guesses
        What the module takes the fields for.
    verdict
        What the functions would do with the samples.
    """

    files: list[Path]
    guesses: Guesses
    verdict: Verdict


def write(name: str, samples: Sequence[Sample], root: Path) -> Written:
    """Write a survey's module, its test, samples for it, and a report of what was guessed.

    Raises
    ------
    SetupError
        The name cannot be that of the survey, `root` is no checkout, a file is there already, or
        the samples lack what each survey has. Then nothing is written.
    """
    _check(name, samples, root)
    module, test = MODULES / f"{name}.py", TESTS / f"test_{name}.py"
    report = Path(f"{name}-report.md")
    for path in (module, test, report, SAMPLES / name):
        if (root / path).exists():
            raise SetupError(f"{root / path} is there already: nothing was written")
    found = guess(samples)
    text = module_text(name, report.name, found)
    chosen = samples[:MOST_SAMPLES]
    with registered(name, text):
        verdict = judge(sample.message for sample in chosen)
    contents = {
        report: _report(name, chosen, found, verdict).encode(),
        module: text.encode(),
        test: _test(name, verdict).encode(),
    }
    contents |= {SAMPLES / name / f"{n}.avro": each.message for n, each in enumerate(chosen, 1)}
    for path, content in contents.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    return Written([*contents], found, verdict)


@contextmanager
def registered(name: str, text: str) -> Iterator[None]:
    """A block in which a module of this text is a survey of the registry."""
    module = ModuleType(f"stampede.alerts.surveys.{name}")
    exec(compile(text, f"{name}.py", "exec"), vars(module))
    surveys.MODULES[name], sys.modules[module.__name__] = module.__name__, module
    try:
        yield
    finally:
        del surveys.MODULES[name], sys.modules[module.__name__]
        surveys.forget()


def _check(name: str, samples: Sequence[Sample], root: Path) -> None:
    if not (root / MODULES).is_dir():
        raise SetupError(
            f"{root.resolve()} is no checkout of Stampede, it has no {MODULES}: use --into"
        )
    if not SURVEY_NAME.fullmatch(name):
        raise SetupError(f"{name!r} is no name of a survey: 2 to 16 small letters and digits")
    if name in surveys.names() or (root / MODULES / f"{name}.py").exists():
        raise SetupError(f"there is a survey {name} already: nothing was written")
    for sample in samples:
        shown = printable(sample.schema_name, 80)
        if sample.survey:
            raise SetupError(
                f"{sample.name} is an alert of {sample.survey}, which is known already"
            )
        words = telling_words(sample.schema_name)
        if words and not any(word.startswith(name) for word in words):
            raise SetupError(
                f"{sample.name} has the schema {shown}, and a survey is recognised by that name: "
                f"take {printable(words[0], 16)!r} for {name!r}"
            )


def _report(name: str, samples: Sequence[Sample], found: Guesses, verdict: Verdict) -> str:
    rows = {
        "alert id": f"`{found.alert_id}`",
        "object id": f"`{found.object_id}`",
        "measurement": f"the record `{found.own}`",
        "time": f"`{found.time}`, {found.scale}",
        "position": f"`{found.ra}`, `{found.dec}`, ICRS degrees",
        "band": f"`{found.band}`: {', '.join(found.bands)}" if found.band else "none",
        "brightness": _brightness(found),
        "score, 0 bogus to 1 real": f"`{found.score}`" if found.score else "none",
        "limiting magnitude": f"`{found.depth}`" if found.depth else "none",
        **{f"{kind} cutout": f"`{path}`" for kind, path in found.cutouts.items()},
        "images": "gzipped FITS" if found.gzipped else "FITS",
        **{
            f"history `{each.field}`": "forced photometry" if each.forced else "earlier detections"
            for each in found.histories
        },
    }
    doubts = [*found.doubts, *(f"the schema has `{path}` twice" for path in twice(samples[0]))]
    doubts += [f"why this is refused: {reason}" for reason in verdict.refusals if reason]
    stored = verdict.refusals.count("")
    return REPORT.substitute(
        name=name,
        upper=name.upper(),
        samples=f"{len(samples)} alert{'s' * (len(samples) > 1)}",
        decoded=f"{stored} of {len(samples)}: {verdict.detections} points of light curves and "
        f"{verdict.cutouts} cutouts",
        guesses="".join(f"| {what} | {guessed} |\n" for what, guessed in rows.items()),
        doubts="".join(f"- [ ] {doubt}\n" for doubt in doubts),
        module=MODULES / f"{name}.py",
        modules=MODULES,
        test=TESTS / f"test_{name}.py",
    )


def _brightness(found: Guesses) -> str:
    own = found.brightness
    unit = "AB magnitude" if own.is_magnitude else f"{own.factor:g} nJy"
    sign = f", negative by `{own.sign}`" if own.sign else ""
    return f"`{own.value}` ± `{own.error}`, {unit}{sign}"


def _test(name: str, verdict: Verdict) -> str:
    names = ("object_id", "source_id", "mjd", "band", "ra", "dec", "flux", "flux_err")
    values = {each: verdict.first_point.get(each) for each in names}
    return TEST.substitute(
        name=name,
        upper=name.upper(),
        expected="".join(f"        {_quoted(each)}: {_quoted(v)},\n" for each, v in values.items()),
        detections=verdict.detections,
        cutouts=verdict.cutouts,
    )


def _quoted(value: object) -> str:
    """A value as Python has it, text in double quotes, whatever a stranger wrote into it."""
    return json.dumps(value) if isinstance(value, str) else repr(value)
