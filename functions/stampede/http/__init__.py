"""HTTP for all: connections, problem documents, headers, signed tokens."""

__all__ = [
    "client",
    "jwt_verifier",
    "problem_details",
    "response_reader",
    "security_headers",
]
