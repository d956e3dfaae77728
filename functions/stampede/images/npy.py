"""An image as a .npy file, numpy's own format."""

from io import BytesIO

import numpy as np


def npy(image: np.ndarray) -> bytes:
    """Bytes of a .npy file, version 1.0; `numpy.load` gives the array back, NaN and all."""
    out = BytesIO()
    np.save(out, image, allow_pickle=False)
    return out.getvalue()
