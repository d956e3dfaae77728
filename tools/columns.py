"""Writes docs/columns.md from the model: `python tools/columns.py`. A test compares the two."""

from pathlib import Path

from stampede.alerts import columns

PAGE = Path(__file__).parents[1] / "docs" / "columns.md"
TABLES = (
    ("A point of a light curve", columns.DETECTION),
    ("A cutout", columns.PACKED_CUTOUT),
    ("A packet", columns.PACKET),
    ("A thumbnail", columns.THUMBNAIL),
    ("A position", columns.POSITION),
    ("What an alert shows of a body of the solar system", columns.MOVING),
)


def page() -> str:
    """The whole page."""
    text = "# Columns\n\n" + (columns.__doc__ or "").partition("Conventions: ")[2].strip() + "\n"
    for title, schema in TABLES:
        text += f"\n## {title}\n\n| column | type | unit | what it is |\n|---|---|---|---|\n"
        for field in schema:
            metadata = {key.decode(): value.decode() for key, value in field.metadata.items()}
            null = "" if field.nullable else ", never null"
            unit = metadata.get("unit", "")
            text += f"| `{field.name}` | {field.type}{null} | {unit} | {metadata['doc']} |\n"
    text += "\n## Bits of `flags`\n\nThe names are those of Rubin's schemas. "
    text += "`flags & 2 = 0` leaves out the points with `psfFlux_flag`.\n"
    text += "\n| value | flag |\n|---|---|\n"
    return text + "".join(f"| {1 << bit} | `{name}` |\n" for bit, name in enumerate(columns.FLAGS))


if __name__ == "__main__":
    PAGE.write_text(page())
