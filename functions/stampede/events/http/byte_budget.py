"""How many bytes of requests a function holds, and may hold."""

from stampede.errors import Overloaded


class Budget:
    """Counts the bytes that are held, and refuses more than a limit.

    Parameters
    ----------
    limit
        Most bytes. A single request may exceed them if nothing else is held.

    Attributes
    ----------
    held
        Bytes that are taken and not given back.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0

    def take(self, size: int, own: int = 0) -> None:
        """Count `size` bytes more, for a request that has taken `own` before.

        Raises `Overloaded` if they are too many.
        """
        if self.held > own and self.held + size > self._limit:
            raise Overloaded(f"{self.held:,} bytes of requests are held already")
        self.held += size

    def give_back(self, size: int) -> None:
        """Count `size` bytes less."""
        self.held -= size
