"""The functions: one short module each, what it does with an event, in order."""
