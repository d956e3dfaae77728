"""Where queries that run while nobody waits are kept (`stampede.read.tap.jobs`)."""

QUERY_JOBS = "tap/"
"""First part of the keys of their objects."""
