"""What the imports of a process do for nothing, and how it is left out."""

import os


def quicken_imports() -> None:
    """Leave out what imports do for nothing here. Call it before they begin."""
    # Nothing here multiplies matrices. numpy's library for it would start a thread for each core
    # as it is imported, a fifth of the start of a function.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Stampede has no plugin of pydantic's, which looks for them in all installed packages: 25 ms.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
