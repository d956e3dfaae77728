"""Running programs of another architecture: the kernel starts qemu for them (binfmt_misc)."""

import subprocess
from pathlib import Path

_BINFMT = Path("/proc/sys/fs/binfmt_misc")
# The head of an ELF file: 64 bits, little-endian, a program or a library, for this machine. Qemu's
# own list of architectures; the mask lets the system's ABI and the file's type be any.
_HEAD = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00%s"
_MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
_MACHINES = {"arm64": ("aarch64", r"\xb7\x00"), "amd64": ("x86_64", r"\x3e\x00")}


def emulate(architecture: str) -> None:
    """See that the kernel runs programs of an architecture; register qemu if it does not.

    The kernel opens qemu now (flag F), so that it also works where its file is not visible, as in a
    chroot. The registration lasts until the machine starts again.

    Raises
    ------
    ValueError
        There is no such architecture.
    OSError
        The kernel, or this user, cannot register it.
    """
    if architecture not in _MACHINES:
        raise ValueError(f"{architecture} is none of {', '.join(_MACHINES)}")
    machine, number = _MACHINES[architecture]
    qemu = Path(f"/usr/bin/qemu-{machine}-static")
    if not qemu.exists():
        raise OSError(f"{qemu} is missing: apt-get install qemu-user-static")
    if not (_BINFMT / "register").exists():
        mount = ["mount", "-t", "binfmt_misc", "binfmt_misc", str(_BINFMT)]
        if subprocess.run(mount, capture_output=True).returncode:
            raise OSError("the kernel has no binfmt_misc, or this user may not mount it")
    if not (_BINFMT / f"qemu-{machine}").exists():
        entry = f":qemu-{machine}:M::{_HEAD % number}:{_MASK}:{qemu}:F"
        (_BINFMT / "register").write_text(entry)
