"""Proofs of nights: which alerts a night had, signed (docs/how-to/verify-a-night.md)."""

__all__ = [
    "checks",
    "leaves",
    "night_proof",
    "proof_reader",
    "prover",
    "ranges",
    "signatures",
]
