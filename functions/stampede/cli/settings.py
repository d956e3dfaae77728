"""`stampede settings`: list every setting."""

import typer


def settings() -> None:
    """List every setting: its environment variable, its value now, what it is for."""
    from stampede.settings import Settings

    values = Settings()
    for name, field in Settings.model_fields.items():
        typer.echo(f"{variable_of(name)}={getattr(values, name)}")
        if field.description:
            typer.echo(f"    {field.description}")


def variable_of(setting: str) -> str:
    """The environment variable of a setting."""
    return "K_SINK" if setting == "sink" else f"STAMPEDE_{setting.upper()}"
