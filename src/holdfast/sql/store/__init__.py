"""The store, written once for all databases."""
