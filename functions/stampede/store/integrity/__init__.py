"""What is stored is right: the ledger, verification, orphans, and the state of the rounds."""

__all__ = [
    "acceptances",
    "dead_letter_offsets",
    "digests",
    "ledger",
    "ledger_json",
    "orphans",
    "proof_keys",
    "reconcile_state",
    "referenced_packs",
    "references",
    "row_digests",
    "saved_state",
    "scrub_state",
    "topic_entries",
    "unindexed_packs",
    "verification",
    "verified_objects",
]
