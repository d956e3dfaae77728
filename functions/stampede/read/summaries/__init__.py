"""What is counted over many alerts: nights, the latest alerts, the ledger."""

__all__ = [
    "latest_alerts",
    "maintenance_state",
    "night_counts",
    "nights",
]
