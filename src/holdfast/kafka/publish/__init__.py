"""Records that are written: published events and dead letters."""
