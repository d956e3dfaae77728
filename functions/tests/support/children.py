"""The processes that a part of the tests started."""

import psutil


class Children:
    """Processes that this one starts from now on, and what those start.

    Those that are there already belong to other tests: a Ceph serves all tests of a session.
    """

    def __init__(self) -> None:
        self._others = {*psutil.Process().children(recursive=True)}

    def __call__(self) -> set[psutil.Process]:
        """Those that are alive."""
        return {*psutil.Process().children(recursive=True)} - self._others
