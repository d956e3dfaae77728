"""What is counted over many alerts: nights, the latest alerts, the ledger, histories."""

__all__ = [
    "known_histories",
    "latest_alerts",
    "maintenance_state",
    "night_counts",
    "nights",
]
