"""Dead letters in the store: written, listed, replayed and purged."""
