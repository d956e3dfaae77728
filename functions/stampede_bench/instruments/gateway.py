"""What the gateway of a local Ceph was asked for: requests by kind.

Its log has a line for each request, of all processes. So counting costs Stampede nothing.
"""

import re
from collections import Counter

from stampede_local.process import Process

_REQUEST = re.compile(rb'"(GET|PUT|HEAD|DELETE|POST) /[^/ ?"]+(/[^ ?"]*)?[^ "]* HTTP/')


class Gateway:
    """Requests since this object was made.

    Parameters
    ----------
    process
        The process ``radosgw`` of a `LocalCeph`, which runs.
    """

    def __init__(self, process: Process) -> None:
        self._log = process.log
        self._begin = self._log.stat().st_size

    def requests(self) -> Counter[str]:
        """How many by kind: PUT, GET, HEAD and DELETE of objects, LIST, others by their method."""
        with self._log.open("rb") as log:
            log.seek(self._begin)
            found = _REQUEST.findall(log.read())
        return Counter(
            "LIST" if method == b"GET" and len(key) < 2 else method.decode()
            for method, key in found
        )
