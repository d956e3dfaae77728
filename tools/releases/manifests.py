"""What is in the manifests of Kubernetes."""

from collections.abc import Iterator

import yaml


def texts_in(manifest: str) -> Iterator[str]:
    """All texts in the objects of a YAML file, in its order; keys of mappings are none."""
    for document in yaml.safe_load_all(manifest):
        yield from _texts(document)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
