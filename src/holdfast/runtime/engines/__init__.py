"""How one kind of projection applies events."""
