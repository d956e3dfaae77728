"""The licences of installed Python packages."""

from importlib.metadata import Distribution, distributions
from pathlib import Path

# Installed with every environment, and not in the image.
NOT_SHIPPED = {"pip"}


def packages(directory: Path) -> list[Distribution]:
    """The packages installed in a directory, by name."""
    found = distributions(path=[str(directory)])
    shipped = (each for each in found if each.name.lower() not in NOT_SHIPPED)
    return sorted(shipped, key=lambda each: each.name.lower())


def licence(package: Distribution) -> str:
    """The licence that a package declares: an SPDX expression, or what it calls it."""
    metadata = package.metadata
    for name in ("License-Expression", "License"):
        text = str(metadata.get(name) or "")
        if text and "\n" not in text:
            return text
    classifiers = [str(text) for text in metadata.get_all("Classifier") or []]
    named = [text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License ::")]
    return ", ".join(named) or "see its licence text"


def notices(directory: Path) -> str:
    """Name, version, licence and licence texts of each package."""
    parts = ["Stampede's image contains these Python packages, under the licences below.\n"]
    for package in packages(directory):
        parts.append(f"\n{'=' * 100}\n{package.name} {package.version}: {licence(package)}\n")
        for text in _texts(package):
            parts.append(f"{'-' * 100}\n{text.strip()}\n")
    return "".join(parts)


def _texts(package: Distribution) -> list[str]:
    """Licence and notice files, each text once."""
    texts: dict[str, None] = {}
    for file in package.files or []:
        name = file.name.upper()
        inside = any(part.endswith(".dist-info") for part in file.parts)
        if inside and name.startswith(("LICENSE", "LICENCE", "COPYING", "NOTICE")):
            texts[Path(str(file.locate())).read_text(errors="replace")] = None
    return [*texts]
