from pathlib import Path

import pytest

from stampede.alerts.batch_decoder import BatchDecoder
from stampede.alerts.decoder import Decoder
from stampede.alerts.framing import Framing

LATEST_MJD = 62000.0


@pytest.fixture
def reader(tmp_path: Path) -> BatchDecoder:
    return BatchDecoder(Framing(16 << 20), Decoder(tmp_path), lambda: LATEST_MJD)
