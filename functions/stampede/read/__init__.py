"""The read service: cutouts and light curves over HTTP."""
