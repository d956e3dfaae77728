"""The functions that handle events, and what they share."""

__all__ = [
    "alert_check",
    "apps",
    "audit",
    "checkpoints",
    "cutouts",
    "decoding",
    "deep_audit",
    "findings",
    "kafka_sender",
    "lightcurves",
    "packets",
    "reconcile",
    "replay",
    "replay_plan",
    "replayed",
    "replicate",
    "restore",
    "scrub",
    "server",
    "status",
]
