"""Runs the deliveries of records on the event loop: one task for each outlet of a record."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from stampede.events.cloudevents.kafka_record import Record
from stampede.events.delivery.in_flight import AssignedPartition, RecordsInFlight, Taken
from stampede.events.delivery.outlet import Outlet
from stampede.events.delivery.sink import Abandoned


class Dispatcher:
    """Begins and cancels deliveries, for the threads that read Kafka. Made on the event loop.

    Parameters
    ----------
    headers
        Makes the headers of a record's event; they are made once for all outlets.
    failed
        Called when a delivery has met a bug.
    """

    def __init__(
        self,
        headers: Callable[[Record], Mapping[str, str]],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._headers, self.failed = headers, failed
        self._loop = asyncio.get_running_loop()

    def start(self, in_flight: RecordsInFlight, batch: Sequence[Taken]) -> None:
        """Begin to deliver the records of a batch."""
        self._loop.call_soon_threadsafe(self._start, in_flight, batch)

    def cancel(self, partitions: Iterable[AssignedPartition], outlet: Outlet | None = None) -> None:
        """Cancel the deliveries of partitions, or only those to one outlet."""
        self._loop.call_soon_threadsafe(_cancel, list(partitions), outlet)

    def _start(self, in_flight: RecordsInFlight, batch: Sequence[Taken]) -> None:
        for taken in batch:
            headers = self._headers(taken.record)
            for outlet in list(taken.waiting):
                task = self._loop.create_task(outlet.deliver(headers, taken.record))
                taken.partition.tasks[task] = outlet
                task.add_done_callback(partial(self._done, in_flight, taken, outlet))

    def _done(
        self, in_flight: RecordsInFlight, taken: Taken, outlet: Outlet, task: asyncio.Task[None]
    ) -> None:
        del taken.partition.tasks[task]
        error = None if task.cancelled() else task.exception()
        delivered = error is None and not task.cancelled()
        in_flight.remove(taken, outlet, delivered)
        if error and not isinstance(error, Abandoned):
            self.failed(error)


def _cancel(partitions: Sequence[AssignedPartition], outlet: Outlet | None) -> None:
    for partition in partitions:
        for task, each in partition.tasks.items():
            if outlet in (None, each):
                task.cancel()
