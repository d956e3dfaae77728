"""The file that batches are decoded from, and the secret of the image tokens."""

import resource
import signal

import pytest

from stampede.alerts.framing import Framing
from stampede.errors import Overloaded
from stampede.functions.decoding import make_batch_decoder
from stampede.settings import Settings
from tests.support import made_alerts
from tests.support.batch_decoders import make_decoder

FRAMED = Framing(16 << 20).take(made_alerts.confluent(made_alerts.rubin_record(1101, 1), 1101))


def test_the_file_is_deleted_with_its_decoder(tmp_path) -> None:
    schema, record = FRAMED
    decoder = make_decoder(tmp_path)
    assert decoder.decode(schema, [[record]], ["diaSourceId"]).num_rows == 1
    assert len(list(tmp_path.iterdir())) == 1
    del decoder
    assert not list(tmp_path.iterdir())


def test_a_full_spool_is_no_alerts_fault(tmp_path) -> None:
    schema, record = FRAMED
    decoder = make_decoder(tmp_path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with pytest.raises(Overloaded, match="no room"):
            decoder.decode(schema, [[record]], ["diaSourceId"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, before)
    assert [file.stat().st_size for file in tmp_path.iterdir()] == [0]
    assert decoder.decode(schema, [[record]], ["diaSourceId"]).num_rows == 1


def test_a_file_that_somebody_removed_is_made_again(tmp_path) -> None:
    schema, record = FRAMED
    spool = tmp_path / "spool"
    spool.mkdir()
    decoder = make_decoder(spool)
    for _ in range(2):
        assert decoder.decode(schema, [[record]], ["diaSourceId"]).num_rows == 1
        (file,) = spool.iterdir()
        file.unlink()
    spool.rmdir()
    with pytest.raises(Overloaded, match="No such file"):
        decoder.decode(schema, [[record]], ["diaSourceId"])


def test_each_decoder_has_a_random_secret(tmp_path) -> None:
    secrets = {make_batch_decoder(Settings(spool=tmp_path))._secret for _ in range(3)}
    assert len(secrets) == 3
    assert {len(secret) for secret in secrets} == {12}
