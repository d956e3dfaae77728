"""What commands print of audits: tables for people, JSON for programs."""

__all__ = [
    "audit_json",
    "ledger_report",
    "object_reports",
]
