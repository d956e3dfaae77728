"""What an audit asks: is each record of Kafka stored, and is what is stored right?"""

__all__ = [
    "alert_check",
    "audit",
    "status",
]
