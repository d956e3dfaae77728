"""`python -m stampede`."""

from stampede.cli import main

main()
