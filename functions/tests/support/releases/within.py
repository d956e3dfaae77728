"""What an earlier release does with a bucket, in its own sources: ``within.py DO BUCKET SPOOL``.

DO is ``ask``, which prints what the bucket says as JSON, or ``go-on``, which lets its functions
merge, repair and delete. This file imports only what the first release has.
"""

import json
import os
import sys
from typing import Any

from stampede.config.settings import Settings
from stampede.handlers.compact import compact_tables
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.handlers.scrub.handler import scrub_sites
from tests.handlers.merges.passes import run_merges
from tests.support.releases.contents import DOORS, Names

MERGES = {
    **{"fanout": 2, "grace_seconds": 0, "scrub_days": 0},
    **{"merge_days": 0, "orphan_days": 1e-9},
}


def main() -> None:
    """Do what the command line says. Names and programmes to ask for are JSON on stdin."""
    do, bucket, spool = sys.argv[1:]
    given = json.load(sys.stdin)
    settings = Settings(
        store=f"file://{bucket}", spool=spool, refresh_seconds=0, ztf_programids=given["programmes"]
    )
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # functions log to stdout
    if do == "ask":
        json.dump(ask(settings, Names(**given["names"])), answers)
    else:
        go_on(settings.model_copy(update=MERGES))


def ask(settings: Settings, names: Names) -> dict[str, Any]:
    """What the bucket says by each door; where one refuses to answer, its reason as text."""
    said: dict[str, Any] = {}
    for door, answer in DOORS.items():
        try:
            said[door] = answer(settings, names)
        except Exception as error:
            said[door] = f"{type(error).__name__}: {error}"
    return said


def go_on(settings: Settings) -> None:
    """Merge what is due, delete what was merged, and read it all."""
    for _ in range(3):
        compact_tables(settings)
        run_merges(settings)
        Reconciler(settings).run()
        scrub_sites(settings)


if __name__ == "__main__":
    main()
