"""Versions of an alert: messages of one id that differ. The table `cutouts` has rows of each."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa


def shown(rows: pa.Table, image: str = "pack") -> pa.Table:
    """The cutouts that readers get: of each alert and kind the row of one version.

    Any image rather than none, then that of the greatest `message_crc32`: so the choice does not
    depend on the order of arrival, and is the same at both sites.

    Parameters
    ----------
    rows
        Of `columns.CUTOUT_LOCATION`, `CUTOUT` or `PACKED_CUTOUT`, in the order of the key.
    image
        The column that is null where the survey sent no cutout.
    """
    names = (rows[name].to_pylist() for name in ("alert_id", "survey", "kind"))
    chosen = numbers_shown(zip(*names, strict=True), rows[image].is_valid().to_pylist())
    return rows if len(chosen) == rows.num_rows else rows.take(pa.array(chosen, pa.int64()))


def numbers_shown(names: Iterable[tuple[Any, ...]], sent: Iterable[bool]) -> list[int]:
    """Which rows `shown` chooses, by number.

    Parameters
    ----------
    names
        Of each row alert id, survey and kind, in the order of the key.
    sent
        Whether there is an image.
    """
    chosen: dict[tuple[Any, ...], tuple[bool, int]] = {}
    for number, (name, there) in enumerate(zip(names, sent, strict=True)):
        if name not in chosen or there >= chosen[name][0]:
            chosen[name] = there, number
    return [number for _, number in chosen.values()]
