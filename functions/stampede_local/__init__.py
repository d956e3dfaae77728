"""Stampede on one machine: a local Kafka, a local Ceph, and all functions as processes."""
