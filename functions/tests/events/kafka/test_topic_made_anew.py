"""A topic made anew under its name: real Kafka, functions and commands as processes."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.events.cloudevents.kafka_record import Record
from stampede_local.kafka import LocalKafka
from tests.handlers.audit.test_audit import commit, make_anew, topic_id
from tests.handlers.test_deadletters import deliver
from tests.support.alerts import made_alerts
from tests.support.events.kafka_messages import produce

pytestmark = [pytest.mark.integration, pytest.mark.anyio]


class Commands:
    """Runs commands against a store and functions, as beside a running `stampede up`."""

    def __init__(self, directory: Path, store: str, urls: dict[str, str], kafka: str) -> None:
        self.data, self.kafka = directory / "data", kafka
        self.data.mkdir()
        running = {"pid": os.getpid(), "urls": urls, "store": store, "access_key": ""}
        running |= {"secret_key": "", "kafka": kafka, "topics": ""}
        (self.data / "up.json").write_text(json.dumps(running))

    def run(self, *words: str, status: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "stampede", *words, "--data", str(self.data)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {"COLUMNS": "200"},
            text=True,
            timeout=120,
        )
        assert done.returncode == status, done.stdout
        return done.stdout


@pytest.mark.parametrize("with_ids", [False, True])
async def test_audit_replay_and_purge(
    serve: Callable, kafka: LocalKafka, topic: str, tmp_path: Path, with_ids: bool
) -> None:
    """Without ids it is the alerts themselves that show it: samples are compared."""
    settings = Settings(kafka=kafka.bootstrap)
    functions = {name: serve(name) for name in ("cutouts", "lightcurves", "deadletters")}
    urls = {name: served.url for name, served in functions.items()}
    commands = Commands(tmp_path, functions["cutouts"].settings.store, urls, kafka.bootstrap)

    async def send(alerts: list[bytes], cutouts: str) -> None:
        """As the sources of both functions."""
        known = topic_id(settings, topic) if with_ids else None
        records = [
            Record(topic, 0, offset, None, None, (), alert, known)
            for offset, alert in enumerate(alerts)
        ]
        await deliver(records, cutouts, f"{urls['deadletters']}/cutouts")
        await deliver(records, urls["lightcurves"], f"{urls['deadletters']}/detections")

    old = [made_alerts.ztf_alert(number) for number in range(1, 41)]
    new = [made_alerts.ztf_alert(number) for number in range(101, 121)]
    produce(kafka.bootstrap, topic, old)
    await send(old, urls["cutouts"])
    assert "nothing is missing" in commands.run("audit", topic)

    make_anew(settings, topic)
    produce(kafka.bootstrap, topic, new)
    commit(settings, topic, {0: 20})
    told = commands.run("audit", topic, status=1)
    assert "40 offsets are neither stored nor dead letters" in told  # 20 in each table
    if not with_ids:
        assert "made anew under its name" in told

    # This function refuses every alert, so each becomes a dead letter.
    refusing = serve("cutouts", MAX_ALERT_BYTES=10)
    await send(new, refusing.url)
    listed = commands.run("deadletters", "list", "--json")
    assert [json.loads(line)["stored"] for line in listed.splitlines()] == [False] * 20
    purged = commands.run("deadletters", "purge")
    assert re.search(r"0 dead letters removed, 20 kept", purged)
    replayed = commands.run("deadletters", "replay", "--all")
    assert "20 sent and accepted, 0 refused again, 0 stored before" in replayed
    assert "20 dead letters removed, 0 kept" in commands.run("deadletters", "purge")

    told = commands.run("audit", topic, status=0 if with_ids else 1)
    assert ("nothing is missing" in told) == with_ids
