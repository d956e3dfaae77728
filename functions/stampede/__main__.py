"""`python -m stampede`."""

from stampede.cli.main import main

main()
