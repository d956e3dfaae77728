import os
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import typer
from confluent_kafka import Consumer, TopicPartition
from typer.testing import CliRunner

from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede_simulator.cli import kafka_target, simulate
from stampede_simulator.simulator import Fields, Mix, Simulator
from stampede_simulator.write import TOPICS, parse_kafka, topic_now, write


def make_alerts(count=40):
    simulator = Simulator(8, Fields(objects=5), Mix(duplicates=0.1, corrupt=0.1))
    return list(simulator.alerts(count))


@pytest.fixture
def app():
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(simulate)
    return app


def test_folder_holds_every_message(tmp_path):
    alerts, written = make_alerts(), []
    alerts += [replace(alerts[0], duplicate=True)] * 2
    assert write(alerts, str(tmp_path / "new" / "alerts"), written.append) == len(alerts)
    assert written == alerts
    files = {path.name: path.read_bytes() for path in (tmp_path / "new" / "alerts").iterdir()}
    assert Counter(files.values()) == Counter(alert.body for alert in alerts)
    assert all(files[f"{a.alert_id}.avro"] == a.body for a in alerts)


def test_a_tar_holds_every_message_and_is_reproducible(tmp_path):
    alerts = make_alerts()
    for name in ("a.tar", "b.tar"):
        assert write(alerts, str(tmp_path / name)) == len(alerts)
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    with tarfile.open(tmp_path / "a.tar") as tar:
        members = tar.getmembers()
        assert [tar.extractfile(member).read() for member in members] == [a.body for a in alerts]
    assert len({member.name for member in members}) == len(alerts)


def test_a_target_that_cannot_be_written_to_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="file"):
        write(make_alerts(1), str(tmp_path / "file" / "folder"))
    with pytest.raises(SetupError, match="s3://"):
        write(make_alerts(1), "s3://bucket")


@pytest.mark.parametrize(
    ("target", "need"),
    [
        ("localhost:9092", r"give kafka://localhost:9092, .* \./localhost:9092"),
        ("10.0.0.1:9092,10.0.0.2:9092", "give kafka://10.0.0.1:9092,10.0.0.2:9092"),
        ("night.tar.gz", r"it writes FILE\.tar, not compressed, or a folder"),
        ("night.zip", r"it writes FILE\.tar"),
        ("", "give kafka://HOST:PORT, FILE.tar or a folder"),
        ("kafka://", r"kafka://HOST:PORT\?lsst=TOPIC&ztf=TOPIC"),
        ("kafka://localhost:9092/alerts", r"kafka://HOST:PORT\?lsst=TOPIC"),
        ("kafka://localhost:9092?lst=alerts", r"kafka://HOST:PORT\?lsst=TOPIC"),
        ("kafka://localhost:9092?lsst=", r"kafka://HOST:PORT\?lsst=TOPIC"),
    ],
)
def test_a_target_that_was_hardly_meant_makes_no_folder(tmp_path, monkeypatch, target, need):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SetupError, match=need):
        write(make_alerts(1), target)
    assert not list(tmp_path.iterdir())
    assert write(make_alerts(1), "./localhost:9092") == 1
    assert write(make_alerts(1), "localhost:9092") == 1  # the folder is there now


def test_kafka_takes_every_message_without_a_key(kafka):
    alerts = make_alerts(60)
    lsst, ztf = f"lsst-{os.getpid()}", f"ztf-{os.getpid()}"
    written = []
    target = f"kafka://{kafka.bootstrap}?lsst={lsst}&ztf={ztf}"
    assert write(alerts, target, written.append) == len(alerts)
    assert Counter(a.body for a in written) == Counter(a.body for a in alerts)
    for survey, topic in (("lsst", lsst), ("ztf", ztf)):
        sent = Counter(a.body for a in alerts if a.survey == survey)
        messages = drain(kafka.bootstrap, topic, sum(sent.values()))
        assert Counter(message.value() for message in messages) == sent
        assert all(message.key() is None for message in messages)
    assert TOPICS == {"lsst": "lsst-alerts", "ztf": "ztf-alerts"}


def drain(bootstrap, topic, count):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    messages = []
    deadline = time.monotonic() + 120
    while len(messages) < count and time.monotonic() < deadline:
        messages += consumer.consume(count, timeout=1)
    messages += consumer.consume(1, timeout=0.5)  # there should be no more
    consumer.close()
    return messages


def test_a_kafka_that_does_not_answer_is_an_error(monkeypatch):
    monkeypatch.setattr("stampede_simulator.write.RESPONSE_SECONDS", 1)
    with pytest.raises(SetupError, match=r"Kafka at 127\.0\.0\.1:1: no broker answers there"):
        write(make_alerts(3), "kafka://127.0.0.1:1")


def test_command(app, tmp_path):
    arguments = ["--alerts", "30", "--objects", "5", "--seed", "8", "--to", str(tmp_path / "x.tar")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("30 alerts, ")
    with tarfile.open(tmp_path / "x.tar") as tar:
        bodies = [tar.extractfile(member).read() for member in tar]
    assert bodies == [alert.body for alert in Simulator(8, Fields(objects=5)).alerts(30)]


@pytest.mark.parametrize(
    "wrong", [["--alerts", "0"], ["--nights", "341"], ["--corrupt", "2"], ["--codec", "zip"]]
)
def test_command_refuses_invalid_options(app, tmp_path, wrong):
    result = CliRunner().invoke(app, [*wrong, "--to", str(tmp_path / "x.tar")])
    assert result.exit_code != 0
    assert not (tmp_path / "x.tar").exists()


def test_rate_is_kept(app, tmp_path):
    start = time.monotonic()
    CliRunner().invoke(app, ["--alerts", "11", "--rate", "20", "--to", str(tmp_path / "d")])
    assert 0.5 <= time.monotonic() - start < 20
    assert len(list((tmp_path / "d").iterdir())) == 11


@pytest.mark.integration
def test_interrupt_leaves_whole_files(tmp_path):
    code = "import typer; from stampede_simulator.cli import simulate; typer.run(simulate)"
    target = tmp_path / "x.tar"
    command = [sys.executable, "-c", code, "--alerts", "100000", "--rate", "100", "--to", target]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 150
    while not (target.exists() and target.stat().st_size > 500_000):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    with tarfile.open(target) as tar:
        count = len(tar.getmembers())
    assert out.startswith(f"{count:,} alerts, ")


def test_alerts_go_to_the_topics_that_are_read() -> None:
    """A family's topic of today; of versions the first."""
    settings = Settings(kafka="a:1", topics="lsst-alerts-v{n},ztf_{YYYYMMDD:10}_programid1,x")
    target = kafka_target(settings)
    assert target == "kafka://a:1?lsst=lsst-alerts-v1&ztf=ztf_{YYYYMMDD}_programid1"
    _, topics = parse_kafka(target)
    assert topic_now(topics["ztf"]) == f"ztf_{datetime.now(UTC):%Y%m%d}_programid1"
    usual = kafka_target(Settings(kafka="a:1", topics="lsst-alerts,ztf-alerts,lsst-v1"))
    assert parse_kafka(usual) == ("a:1", TOPICS)
