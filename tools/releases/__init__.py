"""Making a release: the parts of `tools/release`."""
