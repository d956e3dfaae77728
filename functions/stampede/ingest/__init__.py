"""Alerts from disk, stored as if they had come from Kafka."""
