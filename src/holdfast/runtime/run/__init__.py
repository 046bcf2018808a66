"""The loop, and who runs it."""
