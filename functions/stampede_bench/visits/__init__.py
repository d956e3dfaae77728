"""Rubin's visits: their alerts are sent, and each is timed until it is durable and readable."""
