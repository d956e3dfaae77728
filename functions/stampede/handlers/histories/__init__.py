"""What histories know: detections that never came as an alert of their own."""

__all__ = [
    "audit",
    "causes",
    "missing",
]
