"""The way of one event, from a feed into the rows of a projection."""
