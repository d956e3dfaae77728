"""One machine: a local Kafka, a local Ceph, and all functions as supervised processes."""
