"""Metrics of what histories know: detections that never came as an alert of their own."""

from prometheus_client import Gauge

UNEXPLAINED = Gauge(
    "stampede_histories_unexplained_detections",
    "Detections of the last nights that never came as an alert, for no known cause",
    ["survey"],
)
LACKING = Gauge(
    "stampede_histories_lacking_detectors",
    "Detectors of visits of the last nights of which much never came as an alert: "
    "at least ten detections and a quarter, for no known cause",
    ["survey"],
)
WAITING = Gauge(
    "stampede_histories_waiting_nights",
    "Nights whose histories could not be compared with the alerts at the last attempt",
)
