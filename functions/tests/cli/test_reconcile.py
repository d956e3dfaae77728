"""`stampede reconcile`: when it repeats its pass."""

import pytest

from stampede.cli.reconcile import retry_while_down
from stampede.errors import BrokerDown, Damaged, StampedeError, StoreDown, StoreRefused


def test_a_pass_is_retried_only_while_something_is_down() -> None:
    failures = iter([StoreDown("busy"), BrokerDown("busy"), None, StoreDown("not retried")])
    retries: list[tuple[str, float]] = []

    def one_pass() -> None:
        if error := next(failures):
            raise error

    def report_retry(error: StampedeError, pause: float) -> None:
        retries.append((error.name, pause))

    def damaged() -> None:
        raise Damaged("rot")

    def refused() -> None:
        raise StoreRefused("a wrong key")

    retry_while_down(one_pass, report_retry, (0, 0.01, 0))
    assert retries == [("store-down", 0), ("broker-down", 0.01)]
    with pytest.raises(StoreDown, match="not retried"):
        retry_while_down(one_pass, report_retry, ())
    with pytest.raises(Damaged):
        retry_while_down(damaged, report_retry, (0, 0))
    with pytest.raises(StoreRefused):
        retry_while_down(refused, report_retry, (0, 0))
    assert len(retries) == 2
