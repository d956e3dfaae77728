"""Events: the HTTP endpoint of a function, and what sends events to it (source, relay, broker)."""
