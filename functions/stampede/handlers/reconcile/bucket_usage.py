"""How full the buckets are."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import product

from stampede.config.settings import Settings
from stampede.errors import StoreDown
from stampede.store.ceph.quotas import SCOPES, UNITS, usage
from stampede.store.objects.address import StoreAddress
from stampede.store.open import first_site, second_site
from stampede.telemetry import reconcile_metrics


def measure(settings: Settings) -> None:
    """Set the metrics of each store. One that does not answer keeps its last values."""
    for site, address in _sites(settings):
        try:
            found = usage(address)
        except StoreDown:
            continue  # requests to this store fail too, and other alert rules tell
        if found.stored_bytes is not None:
            reconcile_metrics.BUCKET_BYTES.labels(site).set(found.stored_bytes)
        ratios = {(each.scope, each.unit): each.ratio for each in found.quotas}
        for scope, unit in product(SCOPES, UNITS):
            if (ratio := ratios.get((scope, unit))) is not None:
                reconcile_metrics.QUOTA_USED.labels(site, scope, unit).set(ratio)
            else:
                with suppress(KeyError):  # a quota that was taken away
                    reconcile_metrics.QUOTA_USED.remove(site, scope, unit)


def _sites(settings: Settings) -> Iterator[tuple[str, StoreAddress]]:
    """The names of the sites in metrics, as those of certificates."""
    yield "store", first_site(settings)
    if settings.replica:
        yield "second site", second_site(settings)
