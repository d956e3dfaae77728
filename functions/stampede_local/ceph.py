"""A real Ceph S3 endpoint on one machine: one monitor, one OSD, one RADOS gateway.

Everything lies under one directory: the configuration, the logs, and with the store
``bluestore`` the data, in a sparse plain file that grows as it is filled. Delete the directory
and nothing is left. No systemd, no manager, no root. It listens on 127.0.0.1 if not told otherwise.
"""

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from stampede.errors import SetupError
from stampede_local import installer
from stampede_local.process import Process, require_free, wait_until

_TOOL_SECONDS = 200  # that one command may take, on a machine that does much else

# Each line that is not self-evident cost somebody time to find.
_CONFIG = """\
[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{mon_port}]
mon_initial_members = a
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
# The old wire protocol would want a second port per daemon.
ms_bind_msgr1 = false
# No keys between daemons that listen on this machine only ...
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
auth_allow_insecure_global_id_reclaim = false
keyring = {directory}/none
# ... and then clients must not insist on encryption towards the monitor, as they do by default.
ms_mon_client_mode = crc
# A change of the cluster map waits a second for company; alone there is none: start in 8 s, not 30.
paxos_propose_interval = 0.05
paxos_min_wait = 0.01
run_dir = {directory}/run
pid_file =
admin_socket = {directory}/run/$name.asok
# All logging to standard error, which the parent writes to one file per daemon.
log_file =
log_to_file = false
log_to_stderr = true
err_to_stderr = true
# Else a daemon that fails at once takes its reason with it.
log_flush_on_exit = true
# RocksDB's statistics would be nine tenths of the OSD's log.
debug_rocksdb = 1/1
log_to_syslog = false
mon_cluster_log_to_file = false
crash_dir = {directory}/log
# One copy on one OSD, which Ceph has to be talked into.
osd_pool_default_size = 1
osd_pool_default_min_size = 1
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
osd_crush_chooseleaf_type = 0
# The gateway makes a dozen pools: few placement groups each, and no manager to change that.
osd_pool_default_pg_num = 8
osd_pool_default_pgp_num = 8
osd_pool_default_pg_autoscale_mode = off
rgw_rados_pool_pg_num_min = 8
rgw_rados_pool_autoscale_bias = 1
mon_max_pg_per_osd = 1000

[mon]
mon_data = {directory}/mon
# By default the monitor ends itself when the disk has less than 5 % free, however large that is.
mon_data_avail_warn = 1
mon_data_avail_crit = 0
mon_pg_warn_min_per_osd = 0

[osd]
osd_data = {directory}/osd
osd_objectstore = {store}
osd_journal = {directory}/osd/journal
# A plain file; sparse, so it takes what is written to it.
bluestore_block_create = true
bluestore_block_size = {bytes}
memstore_device_bytes = {bytes}
# The least Ceph accepts (896 MiB); what is used here is about 100 MB.
osd_memory_target = 939524096
# Scrubbing reads everything back; not while somebody is trying something.
osd_scrub_begin_hour = 3
osd_scrub_end_hour = 4

[client.rgw]
rgw_data = {directory}/rgw
# Without tcp_nodelay every small GET waits 44 ms for a delayed acknowledgement.
rgw_frontends = beast endpoint={host}:{port} tcp_nodelay=1
rgw_thread_pool_size = 64
rgw_enable_usage_log = false
# Space of deleted objects is given back after a minute, not two hours.
rgw_gc_obj_min_wait = 60
rgw_gc_processor_period = 60
"""


class LocalCeph:
    """A Ceph cluster of one, with an S3 endpoint at `endpoint`.

    Parameters
    ----------
    directory
        Where everything lies. A second start on it finds the data again (bluestore), also
        after the machine lost power or the daemons were killed.
    port
        The endpoint's port; the one after it is the monitor's. The OSD takes free ports from
        6800 up.
    store
        ``bluestore`` keeps the data on disk, ready in 8 s the first time; ``memstore`` keeps it
        in memory, ready in 2 s, and every start is empty.
    gigabytes
        Capacity.
    access_key, secret_key
        Of the one user that is made at the first start. The endpoint is this machine's own, so
        these are no secret.
    host
        Where the endpoint listens; the other daemons stay on 127.0.0.1.
    say
        Called with a line at every step of a start.
    """

    def __init__(
        self,
        directory: Path,
        port: int,
        store: Literal["bluestore", "memstore"] = "bluestore",
        gigabytes: int = 20,
        access_key: str = "stampede",
        secret_key: str = "stampede-local",
        host: str = "127.0.0.1",
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.directory = directory.absolute()
        self.port = port
        self.store = store
        self.gigabytes = gigabytes
        self.access_key = access_key
        self.secret_key = secret_key
        self.host = host
        self._say = say
        self._config = self.directory / "ceph.conf"
        self.monitor = self._daemon("ceph-mon", "-i", "a")
        self.osd = self._daemon("ceph-osd", "-i", "0")
        self.gateway = self._daemon("radosgw", "-n", "client.rgw")

    @property
    def endpoint(self) -> str:
        """URL of the S3 endpoint."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def processes(self) -> list[Process]:
        """The daemons, in the order of their start; for a `Supervisor`."""
        return [self.monitor, self.osd, self.gateway]

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises
        ------
        SetupError
            A program is missing, or a daemon failed: with the end of its log.
        """
        installer.ensure(installer.CEPH, say=self._say)
        identity = self._identity()
        # A second monitor on a port would fail, and our tools would then talk to the first.
        require_free(self.port, int(identity["mon_port"]) if identity else self.port + 1)
        try:
            if identity is None:
                self._create()
            else:
                self._configure(identity)
                self._say(f"starting the Ceph of {self.directory}")
                self.monitor.start()
                self.osd.start()
                self.gateway.start()
            wait_until(self._answers, self.gateway)
        except BaseException:
            self.stop()
            raise
        self._say(f"S3 endpoint at {self.endpoint}")

    def stop(self) -> None:
        """Stop the daemons; the data stays (bluestore)."""
        for process in reversed(self.processes):
            process.stop()

    def __enter__(self) -> "LocalCeph":
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _daemon(self, *command: str) -> Process:
        # -f keeps it in the foreground, where its parent has its pid.
        return Process(
            command[0],
            [*command, "-c", str(self._config), "-f"],
            self.directory / "log" / f"{command[0]}.log",
        )

    @property
    def _identity_file(self) -> Path:
        return self.directory / "cluster.json"

    def _identity(self) -> dict[str, str] | None:
        """What the first start settled; None before that, and for a store that keeps nothing."""
        if self.store == "memstore" or not self._identity_file.exists():
            return None
        identity = json.loads(self._identity_file.read_text())
        if identity["store"] != self.store:
            raise SetupError(
                f"{self.directory} holds a Ceph on {identity['store']}, not {self.store}"
            )
        return identity

    def _configure(self, identity: dict[str, str]) -> None:
        self._config.write_text(
            _CONFIG.format(
                **identity,
                directory=self.directory,
                host=self.host,
                port=self.port,
                bytes=self.gigabytes * 10**9,
            )
        )

    def _create(self) -> None:
        """First start. Its last step writes the identity: a start that broke off begins anew."""
        if self.directory.exists() and not self._config.exists() and any(self.directory.iterdir()):
            raise SetupError(f"{self.directory} holds something else than a Ceph")
        for name in ("mon", "osd", "rgw", "run"):
            shutil.rmtree(self.directory / name, ignore_errors=True)
            (self.directory / name).mkdir(parents=True)
        (self.directory / "log").mkdir(exist_ok=True)
        fsid, osd = str(uuid.uuid4()), str(uuid.uuid4())
        identity = {"fsid": fsid, "mon_port": str(self.port + 1), "store": self.store}
        self._configure(identity)
        self._say(f"making a Ceph cluster in {self.directory} ({self.store})")
        monmap = str(self.directory / "monmap")
        address = f"[v2:127.0.0.1:{self.port + 1}]"
        self._tool(
            "monmaptool", "--create", "--clobber", "--fsid", fsid, "--addv", "a", address, monmap
        )
        self._tool("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap)
        self.monitor.start()
        self._say("  monitor started")
        self._tool("ceph", "--connect-timeout", "60", "osd", "new", osd, "0")
        self._tool("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        self.osd.start()
        self._say("  OSD started")
        self.gateway.start()
        self._tool(
            *("radosgw-admin", "-n", "client.rgw", "user", "create"),
            *("--uid=stampede", "--display-name=stampede"),
            *(f"--access-key={self.access_key}", f"--secret-key={self.secret_key}"),
        )
        self._say("  gateway started, user made")
        self._identity_file.write_text(json.dumps(identity))

    def _tool(self, program: str, *arguments: str) -> None:
        command = [program, *arguments, "-c", str(self._config)]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=_TOOL_SECONDS,
                env=os.environ | {"CEPH_CONF": str(self._config)},
            )
        except subprocess.TimeoutExpired:
            raise self.monitor.failure(
                f"does not let `{program}` finish in {_TOOL_SECONDS} s"
            ) from None
        if done.returncode:
            lines = "\n".join(done.stderr.splitlines()[-15:])
            raise SetupError(f"`{' '.join(command)}` failed:\n{lines}")

    def _answers(self) -> bool:
        for process in self.processes:
            if not process.running:
                raise process.failure(f"ended with status {process.status}")
        try:
            with urllib.request.urlopen(self.endpoint, timeout=2):
                return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
