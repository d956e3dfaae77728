"""Alerts from disk, sent as if they came from Kafka."""
