"""Names of archives: an archive is a survey that has no alerts."""

from stampede.alerts import surveys
from stampede.alerts.bounds import SURVEY_NAME
from stampede.errors import SetupError
from stampede.store.objects.object_store import Objects
from stampede.store.packs.raw_alerts import PREFIX


def check_name(name: str, objects: Objects) -> None:
    """Raise `SetupError` if an archive in this store may not have the name.

    It has the form of a survey's name, and is not the name of a survey whose alerts this version
    knows or the store holds: whoever reads a row must know by its survey where it comes from.
    Raises `StoreDown`.
    """
    if not SURVEY_NAME.fullmatch(name):
        raise SetupError(f"{name!r} is no name of an archive: 2 to 16 small letters and digits")
    if name in surveys.names():
        raise SetupError(f"{name} is a survey that sends alerts: give the archive another name")
    if next(iter(objects.list(f"{PREFIX}{name}/")), None) is not None:
        raise SetupError(f"the store has alerts of {name}: give the archive another name")
