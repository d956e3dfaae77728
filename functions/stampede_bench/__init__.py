"""Benchmarks: each module has a `measure`, which yields figures beside a rival or a limit."""
