"""The store: immutable packs and tables of sorted runs in an object store."""
