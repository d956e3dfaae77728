"""Alerts of an earlier Stampede's simulator, in files: run by its own Python.

Arguments: the survey, how many, history rows, of how many objects, and the folder.
"""

import json
import sys
from importlib import import_module
from pathlib import Path


def main() -> None:
    """Write the messages one after the other, and what they are."""
    survey, *numbers, folder = sys.argv[1:]
    try:
        load = import_module("stampede_bench.instruments.load")
    except ModuleNotFoundError:  # before it was moved
        load = import_module("stampede_bench.load")
    alerts = load.simulated(survey, *map(int, numbers))
    about = {
        "description": alerts.description,
        "sizes": [*map(len, alerts.messages)],
        "ids": alerts.ids,
    }
    Path(folder, f"{survey}.avro").write_bytes(b"".join(alerts.messages))
    Path(folder, f"{survey}.json").write_text(json.dumps(about))


if __name__ == "__main__":
    main()
