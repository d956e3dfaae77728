"""A user of a Ceph whose keys are exchanged."""

from pathlib import Path

from stampede.config.settings import Settings
from stampede.store.open import open_objects
from stampede.store.s3.credentials import KeyPair
from stampede_local.ceph import LocalCeph
from tests.support.mounted_secret import MountedSecret, s3_files


class RotatedUser:
    """A user with a bucket of its name, and a Secret with one of its keys.

    Attributes
    ----------
    keys
        The newest ones; the Secret may have others.
    settings
        Of processes that have the Secret.
    """

    def __init__(self, ceph: LocalCeph, name: str, directory: Path) -> None:
        self._ceph, self._name = ceph, name
        self._count = 0
        self.keys = self._pair()
        given = (f"--access-key={self.keys[0]}", f"--secret-key={self.keys[1]}")
        ceph.radosgw_admin("user", "create", f"--uid={name}", f"--display-name={name}", *given)
        self.secret = MountedSecret(directory, s3_files(*self.keys))
        self.settings = Settings(store=f"{ceph.endpoint}/{name}", keys=str(self.secret))
        open_objects(self.settings).ensure_bucket()

    def make_key(self) -> KeyPair:
        """One more key, which is not in the Secret yet."""
        self.keys = self._pair()
        given = (f"--access-key={self.keys[0]}", f"--secret-key={self.keys[1]}")
        kind = (f"--uid={self._name}", "--key-type=s3")
        self._ceph.radosgw_admin("key", "create", *kind, *given)
        return self.keys

    def remove_key(self, keys: KeyPair) -> None:
        kind = (f"--uid={self._name}", "--key-type=s3")
        self._ceph.radosgw_admin("key", "rm", *kind, f"--access-key={keys.access_key}")

    def _pair(self) -> KeyPair:
        self._count += 1
        return KeyPair(f"{self._name.upper()}{self._count:03}", f"secret-{self._count:030}")
