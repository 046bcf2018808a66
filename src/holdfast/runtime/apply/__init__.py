"""One transaction: rows, queue and checkpoint."""
