"""Measures holdfast beside its peers: `python -m bench --help`."""
