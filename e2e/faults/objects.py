"""Faults of the store: damaged objects, requests that fail, and a compactor with a wrong clock."""

import random
from collections.abc import Sequence
from datetime import timedelta

from e2e.faults.proxy import FAULTS, Proxy
from stampede.errors import StampedeError
from stampede.runtime import clock
from stampede.store.compaction.compact import Policy, compact
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.runs.schema import ALL_TABLES
from stampede.store.tables.table import Table

SETTLED = timedelta(seconds=25)  # only objects of that age are damaged
DAMAGED = ("tables/", "tables/", "tables/", "packs/", "packets/", "thumbnails/")


class Stores:
    """Damages objects at two sites.

    Parameters
    ----------
    sites
        The stores, reached without a proxy.
    proxies
        The proxies before them.
    """

    def __init__(
        self, chance: random.Random, sites: Sequence[Objects], proxies: Sequence[Proxy]
    ) -> None:
        self._chance, self._sites, self._proxies = chance, sites, proxies
        # Each object is damaged at most once: nobody can mend what has no good copy.
        self._damaged: set[str] = set()

    def request_fault(self) -> str:
        """The next requests of S3 fail, come late, come twice, or response wrongly."""
        site = self._chance.choices((0, 1), (3, 1))[0]
        fault = self._chance.choice(list(FAULTS))
        requests = self._chance.randint(1, 4)
        self._proxies[site].inject(fault, requests)
        return f"s3-{fault} for {requests} requests of site {site + 1}"

    def damage(self) -> str | None:
        """A bit of an object is flipped, or the object is cut or deleted, at one of two sites."""
        prefix = self._chance.choice(DAMAGED)
        try:
            here, there = ({info.key: info for info in site.list(prefix)} for site in self._sites)
            latest = clock.now() - SETTLED
            both = [
                info
                for key, info in sorted(here.items())
                if key in there
                and there[key].size == info.size
                and info.modified < latest
                and key not in self._damaged
            ]
            if not both:
                return None
            info, site = self._chance.choice(both), self._chance.choice(self._sites)
            self._damaged.add(info.key)
            return self._damage(info, site)
        except StampedeError:
            return None

    def compactor_of_another_time(self) -> str | None:
        """A compactor makes a pass whose clock is years wrong, though the store accepts it."""
        years = self._chance.choice((-10, -1, 1, 10))
        now = clock.now() + timedelta(days=365 * years)
        spec = self._chance.choice(list(ALL_TABLES.values()))
        table = Table(self._sites[0], spec)
        try:
            compact(table, now, Policy(fanout=4, grace=timedelta(seconds=20)))
        except StampedeError:
            return None
        finally:
            table.close()
        return f"compactor {years:+} years off, of {spec.name}"

    def _damage(self, info: ObjectInfo, site: Objects) -> str:
        data = bytearray(site.get(info.key))
        how = self._chance.choice(("flip", "cut", "delete"))
        if how == "delete":
            site.delete(info.key)
        else:
            if how == "flip":
                bit = self._chance.randrange(8 * len(data))
                data[bit // 8] ^= 1 << bit % 8
            else:
                del data[self._chance.randrange(len(data)) :]
            site.put(info.key, bytes(data))
        return f"{how} {info.key} at site {self._sites.index(site) + 1}"
