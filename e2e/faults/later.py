"""What is done to the system for a while, and undone in a thread."""

import threading
import time
from collections.abc import Callable


class Later:
    """Runs actions after a delay."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Call `action` in a thread after so many seconds."""

        def act() -> None:
            time.sleep(seconds)
            action()

        self.start(act)

    def start(self, action: Callable[[], object]) -> None:
        """Call `action` in a thread."""
        thread = threading.Thread(target=action, daemon=True)
        thread.start()
        self._threads.append(thread)

    def finish(self) -> None:
        """Wait until everything is undone."""
        for thread in self._threads:
            thread.join()
        self._threads.clear()
