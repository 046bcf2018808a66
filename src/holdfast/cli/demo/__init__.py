"""The command `holdfast demo`."""
