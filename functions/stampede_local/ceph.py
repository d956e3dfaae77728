"""A real Ceph S3 endpoint on one machine: one monitor, one OSD or several, one RADOS gateway.

One directory holds the configuration, the logs and, with the store ``bluestore``, the data in a
sparse file for each OSD. Delete the directory to remove everything. It needs no systemd, no
manager and no root.
"""

import json
import os
import secrets
import shutil
import subprocess
import uuid
from importlib.resources import files
from pathlib import Path
from typing import Literal, NamedTuple

from stampede.errors import SetupError
from stampede.runtime.progress import Progress, silent
from stampede.store.objects.address import StoreAddress
from stampede_local import installer
from stampede_local.ports import require_free
from stampede_local.process import Process, answers, wait_until

USER = "stampede"  # the one user
_TOOL_SECONDS = 200  # for one command, on a busy machine
_CONFIG = files("stampede_local") / "ceph.conf"


class S3Keys(NamedTuple):
    """Access key and secret key of an S3 user."""

    access_key: str
    secret_key: str


def _drawn_keys() -> dict[str, str]:
    """Random keys, of the lengths that S3's own have: 20 and 40 characters."""
    return {
        "access_key": secrets.token_hex(10).upper(),
        "secret_key": secrets.token_hex(20),
    }


class LocalCeph:
    """A Ceph cluster of one, with an S3 endpoint at `endpoint`.

    Parameters
    ----------
    directory
        Directory of all files. With bluestore a second start finds the data again, even if the
        machine lost power or the daemons were killed.
    port
        The endpoint's port; the next one is the monitor's. OSDs take free ports from 6800 up.
    store
        ``bluestore`` keeps the data on disk; the first start takes 2 s. ``memstore`` keeps it in
        memory; every start is empty and takes 2 s.
    gigabytes
        Capacity of an OSD.
    keys
        Access key and secret key of the one user. By default the first start draws them at random
        and keeps them in a file that only this user can read: every program on the machine
        reaches the endpoint, but not every one may use it.
    host
        Where the endpoint listens; the other daemons stay on 127.0.0.1.
    gc_seconds
        How long after its deletion the space of an object is freed.
    osds
        How many OSDs; the same at every start. Replicated pools have one copy by default.
    progress
        Called with a line at every step of a start.
    """

    def __init__(
        self,
        directory: Path,
        port: int,
        store: Literal["bluestore", "memstore"] = "bluestore",
        gigabytes: int = 20,
        keys: S3Keys | None = None,
        host: str = "127.0.0.1",
        gc_seconds: int = 60,
        osds: int = 1,
        progress: Progress = silent,
    ) -> None:
        self.directory = directory.absolute()
        self.port = port
        self.store = store
        self.gigabytes = gigabytes
        self._keys = keys
        self.host = host
        self.gc_seconds = gc_seconds
        self._progress = progress
        self._config = self.directory / "ceph.conf"
        self.monitor = self._daemon("ceph-mon", "-i", "a")
        self.osds = [self._daemon("ceph-osd", *self._osd(number)) for number in range(osds)]
        self.gateway = self._daemon("radosgw", "-n", "client.rgw")

    @property
    def keys(self) -> S3Keys:
        """The keys of the one user."""
        if self._keys is None:
            identity = self._identity() or _drawn_keys()
            # A directory made by an earlier version does not have them.
            self._keys = S3Keys(
                identity.get("access_key", "stampede"),
                identity.get("secret_key", "stampede-local"),
            )
        return self._keys

    @property
    def endpoint(self) -> str:
        """URL of the S3 endpoint."""
        return f"http://127.0.0.1:{self.port}"

    def address(self, bucket: str) -> StoreAddress:
        """The address of a bucket."""
        return StoreAddress(f"{self.endpoint}/{bucket}", *self.keys)

    @property
    def processes(self) -> list[Process]:
        """The daemons, in the order of their start; for a `Supervisor`."""
        return [self.monitor, *self.osds, self.gateway]

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises
        ------
        SetupError
            A program is missing, or a daemon failed; the message has the end of its log.
        """
        installer.ensure(installer.CEPH, progress=self._progress)
        identity = self._identity()
        # If another monitor has the port, ours fails and our tools talk to the other one.
        require_free(self.port, int(identity["mon_port"]) if identity else self.port + 1)
        try:
            if identity is None:
                self._create()
            else:
                self._configure(identity)
                self._progress(f"starting the Ceph of {self.directory}")
                self.monitor.start()
                for osd in self.osds:
                    osd.start()
                self.gateway.start()
            wait_until(self.answers, self.gateway)
        except BaseException:
            self.stop()
            raise
        self._progress(f"S3 endpoint at {self.endpoint}")

    def stop(self) -> None:
        """Stop the daemons; the data stays (bluestore)."""
        for process in reversed(self.processes):
            process.stop()

    def answers(self) -> bool:
        """Whether the endpoint answers. Raises `SetupError` if a daemon has ended."""
        for process in self.processes:
            if not process.running:
                raise process.failure(f"ended with status {process.status}")
        return answers(self.endpoint)

    def radosgw_admin(self, *arguments: str) -> None:
        """Run Ceph's command for users and buckets. Raises `SetupError` if it fails."""
        self._tool("radosgw-admin", "-n", "client.rgw", *arguments)

    def ceph(self, *arguments: str) -> str:
        """Run Ceph's command for the cluster. Returns what it prints; raises `SetupError`."""
        return self._tool("ceph", "--connect-timeout", "60", *arguments)

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
            # Otherwise a part of its address is its pid, which in a container is often that of
            # the daemon before. To the monitor a restarted OSD is then the old one, so it is never
            # announced as up, sends no beacon, and half an hour later counts as down.
            env={"CEPH_USE_RANDOM_NONCE": "1"},
        )

    def _osd(self, number: int) -> tuple[str, ...]:
        """Which OSD a `ceph-osd` is."""
        return "-i", str(number), f"--osd_data={self.directory / _osd_folder(number)}"

    def _all_up(self) -> bool:
        up: int = json.loads(self.ceph("osd", "stat", "--format=json"))["num_up_osds"]
        return up == len(self.osds)

    @property
    def _identity_file(self) -> Path:
        return self.directory / "cluster.json"

    def _identity(self) -> dict[str, str] | None:
        """What the first start chose; None before the first start and for memstore."""
        if self.store == "memstore" or not self._identity_file.exists():
            return None
        identity: dict[str, str] = json.loads(self._identity_file.read_text())
        if identity["store"] != self.store:
            raise SetupError(
                f"{self.directory} holds a Ceph on {identity['store']}, not {self.store}"
            )
        return identity

    def _configure(self, identity: dict[str, str]) -> None:
        self._config.write_text(
            _CONFIG.read_text().format(
                **identity,
                directory=self.directory,
                frontend=self._frontend(),
                gc_seconds=self.gc_seconds,
                bytes=self.gigabytes * 10**9,
            )
        )

    def _frontend(self) -> str:
        """Where the gateway listens, as an option of `rgw_frontends`."""
        return f"endpoint={self.host}:{self.port}"

    def _create(self) -> None:
        """First start. It writes the identity last, so that a start that broke off is repeated."""
        if self.directory.exists() and not self._config.exists() and any(self.directory.iterdir()):
            raise SetupError(f"{self.directory} holds something else than a Ceph")
        for name in ("mon", "rgw", "run", *map(_osd_folder, range(len(self.osds)))):
            shutil.rmtree(self.directory / name, ignore_errors=True)
            (self.directory / name).mkdir(parents=True)
        (self.directory / "log").mkdir(exist_ok=True)
        fsid = str(uuid.uuid4())
        access_key, secret_key = self.keys
        identity = {
            **{"fsid": fsid, "mon_port": str(self.port + 1), "store": self.store},
            **{"access_key": access_key, "secret_key": secret_key},
        }
        self._configure(identity)
        self._progress(f"making a Ceph cluster in {self.directory} ({self.store})")
        monmap = str(self.directory / "monmap")
        address = f"[v2:127.0.0.1:{self.port + 1}]"
        self._tool(
            "monmaptool", "--create", "--clobber", "--fsid", fsid, "--addv", "a", address, monmap
        )
        self._tool("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap)
        self.monitor.start()
        self._progress("  monitor started")
        for number, osd in enumerate(self.osds):
            name = str(uuid.uuid4())
            self.ceph("osd", "new", name, str(number))
            self._tool("ceph-osd", *self._osd(number), "--mkfs", "--osd-uuid", name)
            osd.start()
        if len(self.osds) > 1:
            # Otherwise the gateway's pools may begin without the last one, and their only copy
            # would have to move: it was not readable for minutes.
            wait_until(self._all_up, self.monitor)
        self._progress("  OSD started")
        self.gateway.start()
        self.radosgw_admin(
            *("user", "create", f"--uid={USER}", f"--display-name={USER}"),
            *(f"--access-key={access_key}", f"--secret-key={secret_key}"),
        )
        self._progress("  gateway started, user made")
        self._identity_file.touch(mode=0o600)
        self._identity_file.write_text(json.dumps(identity))

    def _tool(self, program: str, *arguments: str) -> str:
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
        return done.stdout


def _osd_folder(number: int) -> str:
    return f"osd-{number}" if number else "osd"
