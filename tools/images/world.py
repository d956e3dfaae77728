"""The shell scripts that run the steps, and the settings of this machine that downloads need.

A script has three directories in its environment: the layer to build (`LAYER`), the layers below it
(`LOWER`), and the mount point of the overlay of both (`ROOT`).
"""

import os
from pathlib import Path

_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_JAVA_CERTIFICATES = Path("/etc/ssl/certs/java/cacerts")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# The contents of Debian's own slim images, made with the same tool.
DEBIAN = r"""
debootstrap --variant=minbase $ARCHITECTURE "$SUITE" "$LAYER"
cd "$LAYER"
for mounted in proc sys; do umount --lazy "$mounted" 2>/dev/null || true; done
archive=$(sed -n -E 's,^deb (\S+)/debian .*,\1,p' etc/apt/sources.list)
echo "deb $archive/debian $SUITE-updates main" >> etc/apt/sources.list
echo "deb $archive/debian-security $SUITE-security main" >> etc/apt/sources.list
printf '#!/bin/sh\nexit 101\n' > usr/sbin/policy-rc.d
chmod 755 usr/sbin/policy-rc.d
printf 'path-exclude /usr/share/%s/*\n' doc man locale info > etc/dpkg/dpkg.cfg.d/slim
printf 'path-include /usr/share/doc/*/copyright\n' >> etc/dpkg/dpkg.cfg.d/slim
printf 'Acquire::Languages "none";\n' > etc/apt/apt.conf.d/slim
rm -rf dev/* run/* tmp/* var/log/* var/cache/* var/lib/apt/lists/*
rm -rf usr/share/man/* usr/share/locale/* usr/share/info/*
find usr/share/doc -type f ! -name copyright -delete
: > etc/resolv.conf
: > etc/hosts
: > etc/hostname
: > etc/machine-id
"""

_OVERLAY = r"""
on="redirect_dir=off,metacopy=off,lowerdir=$LOWER,upperdir=$LAYER,workdir=$WORK"
mount -t overlay overlay -o "$on" "$ROOT"
"""

# What a RUN command sees: the overlay and, from this machine, only the files for name resolution,
# devices without state and, under /run, the certificates that downloads are checked against.
_WORLD = r"""
mount -t proc proc "$ROOT/proc"
for memory in dev run tmp; do mount -t tmpfs -o mode=1777 tmpfs "$ROOT/$memory"; done
for device in null zero full random urandom; do
    : > "$ROOT/dev/$device"
    mount --bind "/dev/$device" "$ROOT/dev/$device"
done
ln -s /proc/self/fd "$ROOT/dev/fd"
ln -s /proc/self/fd/1 "$ROOT/dev/stdout"
ln -s /proc/self/fd/2 "$ROOT/dev/stderr"
mkdir "$ROOT/dev/shm" "$ROOT/run/outside"
for file in $OUTSIDE; do cp -L "$file" "$ROOT/run/outside/"; done
for file in resolv.conf hosts; do mount --bind "/etc/$file" "$ROOT/etc/$file"; done
"""
# The command gets the image's environment, not this script's.
RUN = (
    _OVERLAY
    + _WORLD
    + 'exec env --ignore-environment "$@" "$(command -v chroot)" "$ROOT" /bin/sh -ec "$COMMAND"\n'
)

# COPY needs only the overlay and, if it copies from another stage, that stage's files.
COPY = (
    _OVERLAY
    + r"""
if [ -n "$FROM" ]; then
    mount -t overlay overlay -o "lowerdir=$FROM:$EMPTY" "$SEEN"
fi
case "$TARGET" in
    */) mkdir -p "$ROOT$TARGET" ;;
    *) mkdir -p "$ROOT$(dirname "$TARGET")" ;;
esac
for source in $SOURCES; do
    if [ -d "$SEEN$source" ]; then
        mkdir -p "$ROOT$TARGET"
        cp -R -P --preserve=mode,links,ownership "$SEEN$source/." "$ROOT$TARGET/"
    else
        cp -R -P --preserve=mode,links,ownership "$SEEN$source" "$ROOT$TARGET"
    fi
done
"""
)


def settings() -> dict[str, str]:
    """The environment of this machine that downloads need, but for files: proxies, pip's options.

    The dates of a build are the epoch, for commands that put them into files.
    """
    env = {
        name: value
        for name, value in os.environ.items()
        if name.lower() in ("http_proxy", "https_proxy", "no_proxy") or name.startswith("PIP_")
    }
    env.pop("PIP_FIND_LINKS", None)  # a directory of this machine, which the command cannot see
    return env | {"DEBIAN_FRONTEND": "noninteractive", "SOURCE_DATE_EPOCH": "0"}


def outside() -> dict[str, str]:
    """These settings, and the certificates that downloads are checked against."""
    env = settings()
    if _CERTIFICATES.exists():
        env |= dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE"), f"/run/outside/{_CERTIFICATES.name}")
    if _JAVA_CERTIFICATES.exists():
        store = f"/run/outside/{_JAVA_CERTIFICATES.name}"
        env["JAVA_TOOL_OPTIONS"] = f"-Djavax.net.ssl.trustStore={store}"
    return env


def files() -> str:
    """The files of this machine that are copied to /run/outside."""
    return " ".join(str(path) for path in (_CERTIFICATES, _JAVA_CERTIFICATES) if path.exists())
