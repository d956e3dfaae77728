"""`python -m stampede`."""

from stampede.cli.start import main

main()
