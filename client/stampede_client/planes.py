"""The array that threads fill with images."""

from collections.abc import Sequence
from threading import Lock

import numpy as np

from stampede_client.errors import BadInput, Damaged
from stampede_client.fits_planes import Layout, first_image, pixels
from stampede_client.pack_reader import Place


class Planes:
    """Images of one shape; `failed` says why some could not be read.

    Parameters
    ----------
    count
        Number of images.
    size
        Rows and columns of each. None for those of the first image that is read.
    """

    def __init__(self, count: int, size: int | None) -> None:
        self._count, self._size = count, size
        self.pixels = np.empty((0, 0, 0), np.float32)
        self.failed: dict[int, Damaged] = {}
        self._making = Lock()

    def read(self, heads: Sequence[tuple[Place, memoryview | Damaged]]) -> None:
        """Read the images of files into their rows.

        Raises
        ------
        BadInput
            If images differ in shape, and there is no size.
        """
        alike: dict[Layout, list[tuple[Place, memoryview]]] = {}
        for place, head in heads:
            try:
                if isinstance(head, Damaged):
                    raise head
                layout, data = first_image(head)
            except (Damaged, ValueError) as error:
                why = f"{_title(place)}: {error}; report it to the operator"
                self.failed[place.number] = Damaged(why)
            else:
                alike.setdefault(layout, []).append((place, data))
        for layout, images in alike.items():
            self._keep(pixels(layout, [data for _, data in images]), [place for place, _ in images])

    def _keep(self, images: np.ndarray, places: list[Place]) -> None:
        if self._size is not None:
            images = fitted(images, self._size)
        shape = images.shape[1:]
        with self._making:
            if not self.pixels.size:
                self.pixels = np.empty((self._count, *shape), np.float32)
        if shape != self.pixels.shape[1:]:
            shapes = f"{self.pixels.shape[1:]} and {shape}"
            raise BadInput(
                f"the images differ in shape: {shapes} ({_title(places[0])}); "
                "give size, e.g. size=63"
            )
        self.pixels[[place.number for place in places]] = images


def fitted(images: np.ndarray, size: int) -> np.ndarray:
    """Images, cut to `size` by `size` pixels about their middles; NaN around smaller ones.

    The last two axes are those of rows and columns.
    """
    if images.shape[-2:] == (size, size):
        return images
    fit = np.full((*images.shape[:-2], size, size), np.nan, np.float32)
    into, out_of = zip(*(_overlap(size, length) for length in images.shape[-2:]), strict=True)
    fit[(..., *into)] = images[(..., *out_of)]
    return fit


def _overlap(size: int, length: int) -> tuple[slice, slice]:
    common = min(size, length)
    inner, outer = (size - common) // 2, (length - common) // 2
    return slice(inner, inner + common), slice(outer, outer + common)


def _title(place: Place) -> str:
    return f"the {place.kind} cutout of alert {place.alert_id}"
