"""Programs that peers' own Pythons run, on their own code. Nothing of Stampede is imported here."""
