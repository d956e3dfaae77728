"""Write functions/stampede/alerts/surveys/rubin_schemas.json from the published schemas.

    python tools/rubin_schemas.py

A developer's tool: it reads the .avsc files of the package ``lsst-alert-packet`` (extra ``dev``),
keeps names and types, and writes one version a line. Run it when Rubin publishes a version, and
add the version's id to `RUBIN_VERSIONS`.
"""

import json
import re
from importlib import resources
from pathlib import Path

from fastavro.schema import load_schema

from stampede.alerts.schemas import simplify

HERE = Path(__file__).parent.parent
TARGET = HERE / "functions" / "stampede" / "alerts" / "surveys" / "rubin_schemas.json"


def main() -> None:
    """Read every version of the package, oldest first, and write the file."""
    root = Path(str(resources.files("lsst.alert.packet") / "schema"))
    schemas = {}
    for path in root.glob("*/*/lsst.v*.alert.avsc"):
        major, minor = map(int, re.findall(r"\d+", path.name))
        schemas[100 * major + minor] = simplify(load_schema(str(path)))
    lines = (
        f'"{schema_id}":{json.dumps(schemas[schema_id], separators=(",", ":"))}'
        for schema_id in sorted(schemas)
    )
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{TARGET.relative_to(HERE)}: {len(schemas)} versions, {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
