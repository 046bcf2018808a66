"""Outbox delivery on SQL databases."""
