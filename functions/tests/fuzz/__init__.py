"""Bytes that nobody thought of: fuzz targets, run by `make fuzz` under atheris."""
