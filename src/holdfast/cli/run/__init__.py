"""The command `holdfast run`."""
