"""How long packs of each kind are kept."""

from typing import NamedTuple, Self

from stampede.clock import now_mjd
from stampede.settings import Settings
from stampede.store.packs import expired
from stampede.store.schema import PACKET_PACKS


class Retention(NamedTuple):
    """Days after their night that packs are kept, of images and of packets; None is for ever."""

    cutout_days: int | None = None
    packet_days: int | None = None

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """That of the settings."""
        return cls(settings.cutout_days, settings.packet_days)

    def days(self, key: str) -> int | None:
        """For how many days the pack of that key is kept."""
        packets = key.startswith(f"{PACKET_PACKS.prefix}/")
        return self.packet_days if packets else self.cutout_days

    def expired(self, key: str) -> bool:
        """Whether a pack is past its retention now."""
        return expired(key, self.days(key), now_mjd())
