"""Projections for event-sourced applications: applied once, in order, with nothing lost."""
