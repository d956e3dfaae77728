"""Metrics of the hourly check of each store."""

from prometheus_client import Gauge

STORE_CHECK = Gauge(
    "stampede_store_check_seconds",
    "Time of a request in the last check of a store: the quantile over some tens of them",
    ["site", "step", "quantile"],
)
STORE_CHECK_USUAL = Gauge(
    "stampede_store_check_usual_seconds",
    "The median of this time in the checks of the last seven days; absent before there are 24",
    ["site", "step", "quantile"],
)
