"""How things are kept: packs, runs, files and objects; their bytes, checksums and rates."""
