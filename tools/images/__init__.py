"""Images without Docker: reads a Dockerfile and does what it says on this machine, as root."""
