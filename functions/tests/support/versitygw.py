"""versitygw: an S3 server that is not Ceph. It keeps objects as files of a directory."""

import subprocess
from functools import partial
from pathlib import Path

from stampede.config.settings import Settings
from stampede_local.ports import free_port
from stampede_local.process import Process, answers, wait_until

BUILD = Path(__file__).parents[3] / "tools" / "versitygw" / "build"
KEYS = {"access_key": "versity", "secret_key": "versity-local"}


class VersityGateway:
    """versitygw on loopback, with its data below `directory`.

    Parameters
    ----------
    directory
        Of its data and its log.
    options
        More of its options.
    """

    def __init__(self, directory: Path, *options: str) -> None:
        built = subprocess.run([BUILD], stdout=subprocess.PIPE, text=True, check=True)
        self.program = built.stdout.strip()
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        data = directory / "data"
        data.mkdir(parents=True)
        self.process = Process(
            "versitygw",
            [self.program, "--port", f"127.0.0.1:{self.port}", *options, "posix", str(data)],
            directory / "log",
            {
                "ROOT_ACCESS_KEY_ID": KEYS["access_key"],
                "ROOT_SECRET_ACCESS_KEY": KEYS["secret_key"],
            },
        )

    def settings(self, bucket: str) -> Settings:
        """Settings whose store is that bucket; it may not exist yet."""
        return Settings.model_validate({"store": f"{self.endpoint}/{bucket}", **KEYS})

    def version(self) -> str:
        """Its version, as it says it."""
        said = subprocess.run([self.program, "--version"], capture_output=True, text=True)
        return said.stdout.split()[2].removeprefix("v")

    def __enter__(self) -> "VersityGateway":
        self.process.start()
        wait_until(partial(answers, self.endpoint), self.process)
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.stop()
