"""Reading: cutouts and light curves over HTTP."""
