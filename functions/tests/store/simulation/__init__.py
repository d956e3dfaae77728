"""A simulation of the whole store: many processes, each request a point where any other may run.

`campaign.run` plays one seed; `python -m tests.store.simulation` plays many.
"""
