"""The journal: an append-only event store."""
