"""How long packs of each kind are kept."""

from typing import NamedTuple, Self

from stampede.config.settings import Settings
from stampede.runtime.clock import now_mjd
from stampede.store.packs.pack import expired
from stampede.store.programmes.rights import EVERYTHING, Rights
from stampede.store.runs.schema import PACKET_PACKS


class Retention(NamedTuple):
    """Which packs are kept.

    Attributes
    ----------
    cutout_days, packet_days
        Days after their night that packs of images and of packets are kept; None is for ever.
    rights
        Packs of programmes that are not stored are not kept.
    """

    cutout_days: int | None = None
    packet_days: int | None = None
    rights: Rights = EVERYTHING

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """That of the settings."""
        return cls(settings.cutout_days, settings.packet_days, Rights.of(settings))

    def days(self, key: str) -> int | None:
        """For how many days the pack of that key is kept."""
        packets = key.startswith(f"{PACKET_PACKS.prefix}/")
        return self.packet_days if packets else self.cutout_days

    def expired(self, key: str) -> bool:
        """Whether a pack is past its retention now, or of a programme that is not stored."""
        return not self.rights.holds(key) or expired(key, self.days(key), now_mjd())
