"""TAP: ADQL over the tables of the store, run in a process of its own."""

__all__ = [
    "documents",
    "errors",
    "job_documents",
    "jobs",
    "process",
    "sources",
    "tables",
    "uploads",
]
