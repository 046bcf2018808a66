"""One projection, run as several runners."""
