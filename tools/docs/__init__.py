"""The documentation as a site: `python -m tools.docs FOLDER` writes what MkDocs makes it from."""
