"""Whether single alerts are in a table, whatever offsets they had.

The bytes of a dead letter are those that a function refused, so they are decoded as a function
decodes alerts: in a worker process, under its deadline.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from anyio.from_thread import start_blocking_portal

from stampede.alerts.batch_decoder import BatchDecoder
from stampede.alerts.batch_parts import AlertIdentity
from stampede.config.settings import Settings
from stampede.errors import NotFound, StampedeError, Undecodable
from stampede.events.cloudevents.event import Event
from stampede.events.workers.pool import Workers
from stampede.events.workers.worker import Batch, BatchStorer, StoredBatch
from stampede.handlers.decoding import in_parts, make_batch_decoder
from stampede.store.open import open_objects
from stampede.store.runs.schema import DETECTIONS, TABLES
from stampede.store.tables.table import Table

# A function may have had other bounds when it stored the alert.
WITHOUT_BOUNDS = {
    **{"future_days": 1e9, "max_alert_bytes": 1 << 30},
    "ztf_programids": ",".join(map(str, range(100))),
}


@contextmanager
def alert_check(
    settings: Settings,
) -> Iterator[Callable[[str, Sequence[Event]], Sequence[StampedeError | None]]]:
    """A function that says of each event why its alert is not in a table, or None if it is.

    Its worker processes start when they are needed, and end with the block.
    """
    settings = settings.model_copy(update=WITHOUT_BOUNDS)
    with ExitStack() as started:
        workers: dict[str, Workers] = {}
        portal = None

        def check(table: str, events: Sequence[Event]) -> Sequence[StampedeError | None]:
            nonlocal portal
            if portal is None:
                portal = started.enter_context(start_blocking_portal())
            if table not in workers:
                made = Workers("alert-check", partial(make_check, table), settings)
                workers[table] = started.enter_context(portal.wrap_async_context_manager(made))
            return portal.call(workers[table].store_batch, events)

        yield check


def make_check(table: str, settings: Settings) -> BatchStorer:
    """What a worker does with a batch: it stores nothing, and each outcome is the reason."""
    stored = Table(open_objects(settings), TABLES[table])
    decoder = make_batch_decoder(settings)

    def check(batch: Batch) -> StoredBatch:
        return StoredBatch(reasons(stored, decoder, batch), {}, 0)

    return in_parts(check, settings)


def reasons(table: Table, decoder: BatchDecoder, batch: Batch) -> list[StampedeError | None]:
    """For each message None if the table has a row of its alert, otherwise the reason why not.

    Only of the first messages, as `BatchDecoder.identities`.
    """
    alerts, faults = decoder.identities(batch.messages, batch.isolation, batch.suspect)
    rows = table.lookup([_leading(table, alert) for alert in alerts.values()]).to_pylist()
    stored = {
        AlertIdentity(row["survey"], row[_column(table)], row["object_id"])
        for row in rows
        if not (row.get("forced") or row.get("limit"))
    }
    found: list[StampedeError | None] = []
    for number, fault in enumerate(faults):
        alert = alerts.get(number)
        if alert is None:
            found.append(Undecodable(fault.message if fault else "its alert has no id"))
        elif alert in stored:
            found.append(None)
        else:
            found.append(
                NotFound(f"alert {alert.alert_id} of {alert.survey} is not in {table.spec.name}")
            )
    return found


def _column(table: Table) -> str:
    return "source_id" if table.spec is DETECTIONS else "alert_id"


def _leading(table: Table, alert: AlertIdentity) -> int | str:
    return alert.object_id if table.spec is DETECTIONS else alert.alert_id
