"""A queue of notifications that is soon full: Ceph has no setting for its 128 MB.

Ceph keeps a queue that is there when a topic is made, so a test makes one first, with Ceph's own
calls. They run in Debian's Python: `ceph-common` needs its library of RADOS, and so brings it.
"""

import subprocess

from stampede_local.ceph import LocalCeph

_OPEN = """\
import rados, struct, sys
cluster = rados.Rados(conffile=sys.argv[1], name="client.admin")
cluster.connect(timeout=30)
pool = cluster.open_ioctx("default.rgw.log")
pool.set_namespace("notif")
topic = sys.argv[2]
"""
# `cls_queue_init_op` of Ceph, and what lists the queues that a gateway serves.
_MAKE = """\
body = struct.pack("<QQI", int(sys.argv[3]), 0, 0)
with rados.WriteOpCtx() as make:
    make.new(rados.LIBRADOS_CREATE_EXCLUSIVE)
    make.execute("2pc_queue", "2pc_queue_init", struct.pack("<BBI", 1, 1, len(body)) + body)
    pool.operate_write_op(make, topic)
with rados.WriteOpCtx() as list_it:
    pool.set_omap(list_it, (topic,), (b"",))
    pool.operate_write_op(list_it, "queues_list_object")
"""
# `cls_queue_head`: where its first and last entry are, its size, and what is reserved or lost.
_READ = """\
head = pool.read(topic, 24 * 1024)
begin, = struct.unpack_from("<Q", head, 16)
front, = struct.unpack_from("<Q", head, 38)
tail, = struct.unpack_from("<Q", head, 60)
size, = struct.unpack_from("<Q", head, 68)
lost, = struct.unpack_from("<Q", head, 94)
print(tail - front if tail >= front else size - begin - (front - tail), lost)
"""


def make_queue(ceph: LocalCeph, topic: str, size: int) -> None:
    """Make the queue of a topic that is not there yet; a bucket must be."""
    _run(ceph, _MAKE, topic, size)


def used_and_lost(ceph: LocalCeph, topic: str) -> tuple[int, int]:
    """How many bytes of a queue hold notifications, and how many are reserved or lost for ever."""
    used, lost = map(int, _run(ceph, _READ, topic).split())
    return used, lost


def _run(ceph: LocalCeph, code: str, *words: object) -> str:
    config = str(ceph.directory / "ceph.conf")
    command = ["/usr/bin/python3", "-c", _OPEN + code, config, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout
