"""Events: the CloudEvent door of a function, and the source that knocks at it."""
