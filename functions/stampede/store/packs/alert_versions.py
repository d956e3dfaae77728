"""Versions of an alert: messages of one id that differ. The table `cutouts` has rows of each."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from stampede.store.packs.pack_name import night_of


def shown(rows: pa.Table, image: str = "pack") -> pa.Table:
    """The cutouts that readers get: of each alert those of one version, of all kinds.

    That with the most images, then of the latest night, then of the greatest `message_crc32`: so
    the choice does not depend on the order of arrival, and is the same at both sites.

    Parameters
    ----------
    rows
        Of `columns.CUTOUT_LOCATION` or `PACKED_CUTOUT`.
    image
        The column that is null where the survey sent no cutout.
    """
    alerts = zip(rows["alert_id"].to_pylist(), rows["survey"].to_pylist(), strict=True)
    if image == "pack":
        packs = rows[image].to_pylist()
    else:
        packs = ["" if sent else None for sent in rows[image].is_valid().to_pylist()]
    chosen = numbers_shown(alerts, rows["message_crc32"].to_pylist(), packs)
    return rows if len(chosen) == rows.num_rows else rows.take(pa.array(chosen, pa.int64()))


def numbers_shown(
    alerts: Iterable[tuple[int, str]],
    messages: Iterable[int | None],
    packs: Sequence[str | None],
    expired: Callable[[str], bool] = lambda pack: False,
) -> list[int]:
    """Which rows `shown` chooses, by number, ascending.

    Parameters
    ----------
    alerts
        Of each row alert id and survey.
    messages
        Of each row `message_crc32`. Rows with a null are a version of their own.
    packs
        Of each row the pack of its image; None if the survey sent none.
    expired
        Whether a pack is past its retention: its images do not count. A later night expires later,
        so an image that is still there is shown rather than one that is not.
    """
    versions: dict[tuple[int, str], dict[int | None, list[int]]] = defaultdict(dict)
    for number, (alert, message) in enumerate(zip(alerts, messages, strict=True)):
        versions[alert].setdefault(message, []).append(number)

    def rank(version: tuple[int | None, list[int]]) -> tuple[int, bool, int, int]:
        message, numbers = version
        sent = [pack for number in numbers if (pack := packs[number]) is not None]
        night = max((night_of(pack) or 0 for pack in sent), default=0)
        there = sum(not expired(pack) for pack in sent)
        return there, bool(sent), night, -1 if message is None else message

    chosen: list[int] = []
    for of_alert in versions.values():
        [best] = of_alert if len(of_alert) == 1 else [max(of_alert.items(), key=rank)[0]]
        chosen += of_alert[best]
    return sorted(chosen)
