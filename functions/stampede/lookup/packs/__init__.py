"""Images and packets out of packs."""

__all__ = [
    "async_images",
    "images",
    "locations",
    "pack_alerts",
    "packet_reader",
]
