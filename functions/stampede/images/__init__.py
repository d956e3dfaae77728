"""Images: FITS cutouts as arrays, PNG and thumbnails."""
