"""Writes the pages of the site, and MkDocs' configuration, into a folder: `make docs`."""

import sys
from pathlib import Path

from tools.docs.site import write_site

if __name__ == "__main__":
    write_site(Path(sys.argv[1]))
