"""One module a survey: everything in which it differs from the others."""
