from pathlib import Path

import pytest

from stampede.alerts.batch_decoder import BatchDecoder
from tests.support.alerts.batch_decoders import make_batch_decoder

LATEST_MJD = 62000.0


@pytest.fixture
def decoder(tmp_path: Path) -> BatchDecoder:
    return make_batch_decoder(tmp_path, LATEST_MJD)
