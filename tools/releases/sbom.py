"""The Debian packages of an image, in its SBOM (CycloneDX 1.6)."""

import io
import json
import tarfile
import zipfile
from email.message import Message
from email.parser import HeaderParser
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from releases.notices import NOT_SHIPPED, licence, packages

STATUS = "var/lib/dpkg/status"


def debian_packages(image: Path) -> list[dict[str, str]]:
    """The installed packages of a ``docker save`` archive: components of CycloneDX, by name.

    Raises `ValueError` if the archive holds none.
    """
    with tarfile.open(image) as outer:
        (manifest,) = json.load(_file(outer, "manifest.json"))
        status = b""
        for layer in manifest["Layers"]:  # the uppermost layer that has the file counts
            with tarfile.open(fileobj=_file(outer, layer)) as inner:
                if STATUS in inner.getnames():
                    status = _file(inner, STATUS).read()
    entries = (HeaderParser().parsestr(text) for text in status.decode().split("\n\n") if text)
    found = [_component(e) for e in entries if e["Status"] == "install ok installed"]
    if not found:
        raise ValueError(f"{image} has no Debian packages")
    return sorted(found, key=lambda component: component["purl"])


def wheel_component(wheel: Path) -> dict[str, Any]:
    """A wheel that is released beside the image: its name, version, licence and digest."""
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(path).decode())
    name, version = metadata["Name"], metadata["Version"]
    purl = f"pkg:pypi/{name}@{version}"
    return {
        **{"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl},
        "licenses": [{"license": {"id": metadata["License-Expression"]}}],
        "hashes": [{"alg": "SHA-256", "content": sha256(wheel.read_bytes()).hexdigest()}],
    }


def with_declared_licences(sbom: Path, directory: Path) -> None:
    """Add what packages in a directory call their licence, where cyclonedx-py found none.

    It knows expressions of SPDX and classifiers only.
    """
    document = json.loads(sbom.read_text())
    declared = {package.name: licence(package) for package in packages(directory)}
    for component in document["components"]:
        name = component["name"]
        if not component.get("licenses") and name in declared:
            called = {"acknowledgement": "declared", "name": declared[name]}
            component["licenses"] = [{"license": called}]
    sbom.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


def with_debian_packages(sbom: Path, components: list[dict[str, Any]]) -> None:
    """Add components to an SBOM; leave out what is of this machine: paths, and pip."""
    document = json.loads(sbom.read_text())
    document["components"] = [
        each for each in document["components"] if each["name"] not in NOT_SHIPPED
    ]
    for component in document["components"]:
        references = component.get("externalReferences", [])
        component["externalReferences"] = [
            each for each in references if not each["url"].startswith("file:")
        ]
    document["components"] += components
    sbom.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


def _component(entry: Message) -> dict[str, str]:
    name, version, arch = entry["Package"], entry["Version"], entry["Architecture"]
    purl = f"pkg:deb/debian/{quote(name)}@{quote(version, safe='')}?arch={arch}"
    return {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl}


def _file(tar: tarfile.TarFile, name: str) -> io.BufferedReader:
    file = tar.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is no file")
    return file  # type: ignore[return-value]
