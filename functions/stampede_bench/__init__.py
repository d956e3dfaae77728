"""Benchmarks: each a module with `measure`, whose figures stand beside a rival or a limit."""
