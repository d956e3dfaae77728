"""The notebooks run in the environment of lightkurve, with simulated alerts."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from stampede.alerts.positions import positions_of
from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.pack import write_pack
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, POSITIONS
from stampede.store.tables.table import Table
from stampede_simulator.simulator import Fields, Simulator
from tests.support.alerts.batch_decoders import make_batch_decoder
from tests.support.read.read_service import serving

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
JUPYTER = ROOT / ".venv-lightkurve" / "bin" / "jupyter-execute"


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 2,400 alerts of 240 objects."""
    folder = tmp_path_factory.mktemp("notebooks")
    objects, decoder = DirectoryObjects(folder / "bucket"), make_batch_decoder(folder, 70_000.0)
    messages = [
        alert.body for alert in Simulator(3, Fields(objects=240)).alerts(2400) if not alert.fault
    ]
    for first in range(0, len(messages), 300):
        batch = messages[first : first + 300]
        coverage = Coverage.of({("alerts", 0): range(first, first + len(batch))})
        pack, points = write_pack(decoder.cutouts(batch).rows, coverage), decoder.detections(batch)
        objects.put(pack.key, memoryview(pack.data))
        Table(objects, CUTOUTS).append(pack.locations, coverage)
        Table(objects, DETECTIONS).append(points.rows, coverage)
        Table(objects, POSITIONS).append(positions_of(points.rows), coverage)
    return folder / "bucket"


def outputs(notebook: Path) -> list[str]:
    """The text of each code cell's output."""
    cells = json.loads(notebook.read_text())["cells"]
    return [json.dumps(cell["outputs"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.integration
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, bucket: Path, tmp_path: Path) -> None:
    if not JUPYTER.exists():
        pytest.skip("`make servers` makes .venv-lightkurve")
    env = os.environ | {"STAMPEDE_BUCKET": str(bucket), "PYTHONPATH": str(ROOT / "client")}
    env |= {"IPYTHONDIR": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(tmp_path)}
    for read in serving(make_app(Settings(), DirectoryObjects(bucket))):
        done = subprocess.run(
            [JUPYTER, notebook, f"--output={tmp_path / notebook.name}"],
            env=env | {"STAMPEDE_URL": read.url},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    made = outputs(tmp_path / notebook.name)
    kept = outputs(notebook)
    kinds = [sorted(set(re.findall(r'"(image/png|text/html|stdout)"', text))) for text in made]
    assert kinds == [sorted(set(re.findall(r'"(image/png|text/html|stdout)"', t))) for t in kept]
    if found := re.search(r"right for (\d+)% of .* same answer: (\d+)%", made[-1]):
        right, always = map(int, found.groups())
        assert right > always + 10


def test_the_notebooks_are_executed() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["classifier", "object"]
    for notebook in NOTEBOOKS:
        assert "/home" not in notebook.read_text()
        assert '"error"' not in "".join(outputs(notebook))
        assert len([text for text in outputs(notebook) if text != "[]"]) >= 4
