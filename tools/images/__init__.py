"""Build images without Docker: run the steps of a Dockerfile on this machine, as root."""
