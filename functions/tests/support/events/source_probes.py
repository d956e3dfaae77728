"""What Kubernetes and Prometheus ask a source."""

import urllib.error
import urllib.request

from stampede_local.process import Process


def readiness(source: Process) -> tuple[int, str]:
    """Status and text of a source's readiness."""
    return probe(source, "readiness")


def liveness(source: Process) -> tuple[int, str]:
    """Status and text of a source's liveness."""
    return probe(source, "liveness")


def probe(source: Process, name: str) -> tuple[int, str]:
    """Status and text of a probe; 0 and the error if there is no response."""
    url = f"http://127.0.0.1:{source.env['STAMPEDE_PORT']}/health/{name}"
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def samples(source: Process) -> dict[str, float]:
    """The samples of a source's metrics, by name and labels."""
    url = f"http://127.0.0.1:{source.env['STAMPEDE_PORT']}/metrics"
    with urllib.request.urlopen(url, timeout=5) as response:
        lines = response.read().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}
