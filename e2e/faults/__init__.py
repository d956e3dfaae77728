"""A campaign of faults against the real system on one machine: ``python -m e2e.faults``."""
