"""The page of the settings, from the settings' model."""

from stampede.cli.settings import text_of, variable_of
from stampede.config.settings import GROUPS, Settings

HEAD = """# Settings

Every setting is an environment variable. `stampede settings` prints them with their values now, as
a script for a shell. In the chart, a setting is a key of `settings`, by its name without the prefix
and in small letters.
"""


def page() -> str:
    """The whole page."""
    lines = [HEAD]
    for name, field in Settings.model_fields.items():
        if name in GROUPS:
            title = GROUPS[name][0].upper() + GROUPS[name][1:]
            lines.append(f"\n## {title}\n\n| variable | default | what it is |\n|---|---|---|\n")
        default = shown(name)
        about = (field.description or "").replace("|", "\\|")
        lines.append(f"| `{variable_of(name)}` | {default} | {about} |\n")
    return "".join(lines)


def shown(name: str) -> str:
    """The default of a setting; nothing if it has none."""
    if name == "triggers":  # a path on this machine
        return "the package's `triggers.yaml`"
    text = text_of(Settings.model_fields[name].get_default(call_default_factory=True))
    return f"`{text}`" if text else ""
