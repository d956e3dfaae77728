"""`stampede up` with both sites, alerts that arrive, a reader, and a Prometheus with the rules."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError

import psutil
import yaml

from e2e.alert_rules.rules import NAMESPACE, rules
from e2e.alert_rules.traffic import repeatedly, sending
from e2e.commands import READY_SECONDS, BackgroundCommand, until
from e2e.faults.processes import build_clock
from e2e.faults.proxy import Proxy
from e2e.http import get, get_json
from e2e.prometheus import prometheus, targets
from e2e.stampede_up import StampedeUp
from stampede.alerts.columns import KINDS
from stampede.cli.running import running
from stampede.config.settings import Settings
from stampede.events.auth.access import key_header
from stampede.events.http.probes import is_ready
from stampede_local import environment
from stampede_local.cli import TOPICS
from stampede_local.ports import free_port
from stampede_local.servers import USUAL_PORTS
from stampede_local.up import send
from stampede_simulator.cli import paced
from stampede_simulator.simulator import Fields, Simulator

SEED, RATE = 91, 1  # of the alerts that always arrive, a second
OBJECTS = 8  # few in a field, so that the alerts are of several nights
NIGHTS = ("nights_{YYYYMMDD}_1", "!nights_{YYYYMMDD}_2")  # nobody sends to them
TOPIC = "other-alerts-v1"  # of the second source
SITES = ("ceph", "second-site")
SLOW = 0.3, 0.6  # seconds of a request of a store; a reader waits for several, one after the other
PASSES = {"compact": 2.0, "reconcile": 5.0, "scrub": 5.0}  # seconds between events
# Further processes that faults start: name, and the function that each serves.
OTHERS = {
    **{"source-other": "source", "publish": "publish"},
    **dict.fromkeys(("nights", "tls", "histories", "checked"), "reconcile"),
}
SETTINGS = {
    # Shorter than from pass to pass: then a pass finds what the second site lacks.
    "STAMPEDE_GRACE_SECONDS": "3",
    "STAMPEDE_SCRUB_DAYS": "0",  # each pass begins a round
    "STAMPEDE_CUTOUT_DAYS": "9999",  # so that clocks are compared
    "STAMPEDE_NOTIFICATION_PATIENCE_SECONDS": "20",
    "STAMPEDE_QUEUE_BYTES": str(1 << 20),  # some alerts: one source fills it
    "STAMPEDE_HOLD_SECONDS": "1",
    "STAMPEDE_DETACH_SECONDS": "3",
    "STAMPEDE_LINGER_MS": "1000",  # fewer objects, so that passes are short
}
SECONDS = 300  # timeout; allows for a slow and busy machine


class Watched:
    """The running system; all of it ends with the ``with`` block."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clocks = directory / "clocks"
        self._stack, self._kept = ExitStack(), ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def _start(self, stack: ExitStack) -> None:
        data = self.directory / "data"
        data.mkdir()
        self.ports = {name: free_port(2) for name in USUAL_PORTS}
        (data / "ports.json").write_text(json.dumps(self.ports))
        build_clock(self.clocks)
        self.proxies = [
            stack.enter_context(Proxy(free_port(), self.ports[site], SEED, slow=SLOW))
            for site in SITES
        ]
        before = {
            self.ports[site]: each.port for site, each in zip(SITES, self.proxies, strict=True)
        }
        options = ("--second-site", "--sources", "--topics", ",".join((*TOPICS, TOPIC, *NIGHTS)))
        proxied = {"E2E_PROXIES": json.dumps(before), "E2E_CLOCKS": str(self.clocks)}
        self.up = StampedeUp(data, *options, **SETTINGS, **proxied)
        self.up.arguments = ("e2e.faults.up", *self.up.arguments)
        stack.enter_context(self.up)
        system = running(data)
        assert system is not None
        self.settings = system.settings
        self.bucket = self.settings.store.rpartition("/")[2]
        self.others = {name: f"http://127.0.0.1:{free_port()}" for name in OTHERS}
        self.urls = system.urls | self.others
        for name, seconds in PASSES.items():
            stack.enter_context(repeatedly(lambda name=name: self._ping(name), seconds))
        alerts = paced(Simulator(SEED, Fields(objects=OBJECTS)).alerts(100_000), RATE)
        stack.enter_context(sending(alerts, self.up.kafka))
        stack.enter_context(repeatedly(self.read, 0.5))
        self.prometheus = stack.enter_context(
            prometheus(self.directory / "prometheus", self._configuration(system.urls))
        )
        until(self._has_made_passes, READY_SECONDS)

    def _configuration(self, urls: dict[str, str]) -> dict[str, Any]:
        rules_file = self.directory / "rules.yml"
        rules_file.write_text(yaml.safe_dump(rules()))
        # Only the `reconcile` of `stampede up` copies: others find nothing that is not replicated.
        found = {"source_labels": ["__name__"], "regex": "stampede_reconcile_found_objects"}
        return {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules_file)],
            "scrape_configs": [
                {"job_name": "up", "static_configs": targets(urls, NAMESPACE)},
                {
                    "job_name": "others",
                    "static_configs": targets(self.others, NAMESPACE),
                    "metric_relabel_configs": [{**found, "action": "drop"}],
                },
            ],
        }

    def wait(self, condition: Callable[[set[str]], object]) -> None:
        """Wait for a condition of the alerts that fire; the message names those."""
        try:
            until(lambda: condition(self.prometheus.firing()), SECONDS, 0.5)
        except AssertionError:
            raise AssertionError(f"these fire: {self.prometheus.firing()}") from None

    def _has_made_passes(self) -> bool:
        """Whether Prometheus has seen a pass of each: until then rules miss them."""
        return all(
            self.prometheus.query(f'stampede_{name}_passes_total{{outcome="done"}}')
            for name in PASSES
        )

    def processes(self, name: str) -> list[psutil.Process]:
        """The processes of `stampede up` that serve a function of this name."""
        return list(self.up.processes(name))

    def read(self) -> None:
        """GET the images of the latest alert, whatever the responses are."""
        (latest,) = get_json(f"{self.up.url}/v1/alerts?limit=1")["alerts"]
        for kind in KINDS:
            with suppress(HTTPError):
                get(f"{self.up.url}/v1/alerts/{latest['alert_id']}/cutouts/{kind}")

    def _ping(self, name: str) -> None:
        send(name, self.urls[name], key_header(self.settings))

    # -- further processes

    @contextmanager
    def serving(self, name: str, settings: Settings | None = None, /, **env: str) -> Iterator[None]:
        """One more process of a function, which gets events at intervals if it makes passes."""
        function = OTHERS[name]
        variables = {**environment.of_process(function, settings or self.settings), **env}
        variables["STAMPEDE_PORT"] = self.others[name].rpartition(":")[2]
        log = self.directory / f"{name}-{free_port()}.log"
        with BackgroundCommand(log, "serve", function, **variables), ExitStack() as stack:
            until(lambda: is_ready(self.others[name]), READY_SECONDS)
            if function != "source":
                stack.enter_context(repeatedly(lambda: self._ping(name), 3))
            yield

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """What `keep` is called with in the block ends with it."""
        with ExitStack() as self._kept:
            yield

    def keep(self, manager: AbstractContextManager[Any]) -> None:
        """Enter a context, and leave it when the alerts have ended."""
        self._kept.enter_context(manager)
