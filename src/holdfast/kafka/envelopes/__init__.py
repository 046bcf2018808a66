"""How events lie in records."""
