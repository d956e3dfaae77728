"""HTTP for all: connections, problem documents, headers, signed tokens."""

__all__ = [
    "client",
    "connection",
    "jwt_verifier",
    "problem_details",
    "security_headers",
]
