"""The plan of a system on one machine, as its user asks for it."""

from pathlib import Path
from typing import NamedTuple


class SystemPlan(NamedTuple):
    """What to run on this machine.

    Attributes
    ----------
    data
        Directory of all data: the local Ceph and Kafka, logs.
    store, kafka
        Addresses of the store and of Kafka; None to start a local one.
    topics
        Topics to take alerts from; none to run without Kafka.
    port
        Port of `read`. The other processes take free ports.
    install
        Consent to install Debian packages.
    replica
        Address of the store of a second site, to which everything is copied; None for no such site.
    second_site
        Whether to start a second local Ceph and copy everything to it.
    sources
        Whether each function that takes alerts has a source of its own, as on a cluster. Otherwise
        it reads Kafka itself.
    ceph_port, kafka_port
        Port of the local Ceph and of the local Kafka; the next one is used too. None for that of
        the last start in `data`, or else the usual one, or a free one if it is taken.
    triggers
        File with the Triggers of functions of the user's own; None for no such functions.
    """

    data: Path
    store: str | None
    kafka: str | None
    topics: tuple[str, ...]
    port: int
    install: bool
    replica: str | None = None
    second_site: bool = False
    sources: bool = False
    ceph_port: int | None = None
    kafka_port: int | None = None
    triggers: Path | None = None
