"""Builds what other machines pull: programs, images, kind's node, and a Docker daemon for it.

Nobody who has Docker and can pull images needs anything of this folder.
"""
