"""Rubin's alert schemas, all published versions, built in.

A Rubin message names its schema by a number only, ``100 * major + minor`` (11.1 is 1101).
`rubin_schemas.json` holds names and types of every published version, one line each, as
``tools/rubin_schemas.py`` wrote them.
"""

import json
from functools import cache
from importlib import resources
from typing import Any

# Every published version of Rubin's alert schema, oldest first.
RUBIN_VERSIONS = [300, 400, 500, 600, 601, 700, 701, 702, 703, 704, 800, 900, 1000, 1100, 1101]
NEWEST_RUBIN = RUBIN_VERSIONS[-1]


@cache
def rubin_schemas() -> dict[int, dict[str, Any]]:
    """All versions by number, oldest first; shared, so do not change them."""
    text = resources.files(__package__).joinpath("rubin_schemas.json").read_text("utf-8")
    return {int(schema_id): schema for schema_id, schema in json.loads(text).items()}
