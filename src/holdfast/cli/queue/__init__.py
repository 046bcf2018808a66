"""The commands `holdfast queue`."""
