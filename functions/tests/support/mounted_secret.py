"""A Secret in a directory, as Kubernetes' kubelet mounts it and renews it."""

import itertools
import os
import shutil
from pathlib import Path


class MountedSecret:
    """Files that are links through the link `..data` into a directory of one version."""

    def __init__(self, directory: Path, files: dict[str, str]) -> None:
        self._directory = directory
        self._versions = itertools.count()
        directory.mkdir()
        self.change(files)
        for name in files:
            (directory / name).symlink_to(f"..data/{name}")

    def change(self, files: dict[str, str]) -> None:
        """Write a new version beside the old one, change the link, and remove the old one."""
        data, new = self._directory / "..data", self._directory / "..data_tmp"
        old = data.resolve() if data.exists() else None
        version = self._directory / f"..{next(self._versions)}"
        version.mkdir()
        for name, text in files.items():
            (version / name).write_text(text)
        new.symlink_to(version.name)
        os.replace(new, data)
        if old:
            shutil.rmtree(old)

    def __str__(self) -> str:
        return str(self._directory)


def s3_files(access_key: str, secret_key: str) -> dict[str, str]:
    """The files of a Secret with the keys of a store."""
    return {"access-key": access_key, "secret-key": secret_key}


def kafka_files(user: str, password: str) -> dict[str, str]:
    """The files of a Secret with a login to Kafka."""
    return {"user": user, "password": password, "type": "SCRAM-SHA-512"}
