"""schemathesis against `read` in this process: each response is one that the OpenAPI page names."""

import sys
import time

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error

from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from tests.support.read.read_service import fill, observe, sample_cutouts, sample_points

EXAMPLES = 40  # of one operation, before the next has its turn


def main(seconds: float) -> int:
    """Send made-up requests until the time is over. Returns 1 if a response is wrong."""
    objects = MemoryObjects()
    fill(objects, sample_cutouts(), sample_points(), Coverage.of({("topic", 0): range(5)}))
    observe(objects, Coverage())
    app = make_app(Settings(store="http://127.0.0.1:1/unused"), objects)
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    deadline, failures, seed, sent = time.monotonic() + seconds, 0, 0, 0
    while time.monotonic() < deadline and not failures:
        seed += 1
        for found in schema.get_all_operations():
            operation = found.ok()

            @settings(
                max_examples=EXAMPLES,
                deadline=None,
                database=None,
                phases=[Phase.explicit, Phase.generate, Phase.shrink],
                suppress_health_check=list(HealthCheck),
            )
            def send(case: schemathesis.Case) -> None:
                nonlocal sent
                sent += 1
                case.call_and_validate(checks=[not_a_server_error])

            try:
                given(case=operation.as_strategy())(send)()
            except Exception as error:
                failures += 1
                print(f"{operation.label}: {error}", flush=True)
            if time.monotonic() > deadline:
                break
    print(f"{sent:,} requests, {failures} operations with a wrong answer")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
