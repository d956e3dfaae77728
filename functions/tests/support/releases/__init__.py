"""Buckets that released versions wrote: what makes one, and what reads one.

``cd functions && python -m tests.support.releases`` writes that of the present version.
"""
