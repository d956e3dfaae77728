"""Images: FITS cutouts as arrays and as pictures."""
